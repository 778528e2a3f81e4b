/**
 * Tokens: who may use the API, and for what. A token is 256 random bits; the store keeps only its hash, under an id
 * that is part of the token's text, so that finding one takes a single read.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Json } from "../../core/json.js";
import type { Clock } from "../../engine/clock.js";
import type { Engine } from "../../engine/engine.js";
import { recordId, type StoredRecord } from "../../engine/record.js";
import type { Capability } from "./caller.js";

/** How long a token that was read counts as it was, so that a revoked one stops within this time. */
const freshMs = 2_000;

/** How many tokens are kept in memory, unknown ones included. */
const cachedMax = 10_000;

/** How long a token that has expired is still listed, until the store forgets it. */
const expiredKeptMs = 7 * 24 * 60 * 60 * 1_000;

/** Comes after every id. */
const end = "~";

const tokenPattern = /^mr_([0-9a-f]{16})_([A-Za-z0-9_-]{43})$/;

/** A token as it is shown: everything but its secret. */
export interface Token {
  readonly id: string;
  readonly name: string;
  readonly capabilities: readonly Capability[];
  readonly createdAt: number;
  readonly createdBy: string;
  readonly expiresAt?: number;
  /** The agent that claims under this token are for. */
  readonly agent?: string;
}

/** What a new token is to be. */
export type NewToken = Pick<Token, "name" | "capabilities" | "createdBy" | "expiresAt" | "agent">;

/** Which tokens are listed. */
interface TokensAsk {
  readonly limit: number;
  /** Where the page before ended. */
  readonly cursor?: string;
}

/** Tokens, and where their list goes on. */
interface TokensPage {
  readonly entries: readonly Token[];
  readonly nextCursor?: string;
}

type StoredToken = Omit<Token, "id"> & { readonly hash: string };

interface Cached {
  readonly stored: StoredToken | null;
  readonly readAt: number;
}

/** Makes, finds and revokes tokens. */
export class Tokens {
  readonly #engine: Engine;
  readonly #clock: Clock;
  readonly #cache = new Map<string, Cached>();

  constructor(engine: Engine, clock: Clock) {
    this.#engine = engine;
    this.#clock = clock;
  }

  /** Makes a token. Its text is given here and never again. */
  async create(wish: NewToken): Promise<{ readonly token: Token; readonly secret: string }> {
    const id = randomBytes(8).toString("hex");
    const key = randomBytes(32).toString("base64url");
    const { name, capabilities, createdBy, expiresAt, agent } = wish;
    const shown = {
      ...{ name, capabilities, createdBy, createdAt: this.#engine.now() },
      ...(expiresAt === undefined ? null : { expiresAt }),
      ...(agent === undefined ? null : { agent }),
    };
    const body = { ...shown, hash: hashOf(key) } as unknown as Json;
    const forgetAt = expiresAt === undefined ? null : { expiresAt: expiresAt + expiredKeptMs };
    const write = { id: recordId.token(id), expect: 0, body, ...forgetAt };
    const [swapped] = await this.#engine.swap([write]);
    if (!swapped?.swapped) throw new Error("A fresh token id was taken.");
    return { token: { id, ...shown }, secret: `mr_${id}_${key}` };
  }

  /** A page of tokens in the falling order of their ids, those included that expired within the last week. */
  async list({ limit, cursor = end }: TokensAsk): Promise<TokensPage> {
    const ask = { prefix: recordId.tokens, before: recordId.token(cursor), limit: limit + 1 };
    const records = await this.#engine.query("records", ask);
    const listed = records.slice(0, limit);
    const entries = listed.flatMap((record) => {
      const stored = storedToken(record);
      if (stored === null) return [];
      const { hash: _, ...shown } = stored;
      return [{ id: idOf(record), ...shown }];
    });
    const last = records.length > limit ? listed.at(-1) : undefined;
    return { entries, ...(last && { nextCursor: idOf(last) }) };
  }

  /** Revokes a token. Gives whether there was one. */
  async revoke(id: string): Promise<boolean> {
    const [record] = await this.#engine.records([recordId.token(id)]);
    this.#cache.delete(id);
    if (!record) return false;
    const write = { id: record.id, expect: record.version, body: null };
    const [swapped] = await this.#engine.swap([write]);
    return swapped?.swapped ?? false;
  }

  /** The token that a text is; `null` when it is none, was revoked, or has expired. */
  async find(text: string): Promise<Token | null> {
    const [, id, key] = tokenPattern.exec(text) ?? [];
    if (id === undefined || key === undefined) return null;
    const stored = await this.#stored(id);
    // The hash of what was given is compared also where there is no token, so that both take as long.
    const matches = sameHash(stored?.hash ?? noHash, hashOf(key));
    if (stored === null || !matches) return null;
    const { hash: _, ...shown } = stored;
    const isExpired = stored.expiresAt !== undefined && stored.expiresAt <= this.#engine.now();
    return isExpired ? null : { id, ...shown };
  }

  async #stored(id: string): Promise<StoredToken | null> {
    const now = this.#clock.monotonic();
    const cached = this.#cache.get(id);
    if (cached !== undefined && now - cached.readAt < freshMs) return cached.stored;
    const [record] = await this.#engine.records([recordId.token(id)]);
    const stored = record ? storedToken(record) : null;
    if (this.#cache.size >= cachedMax) this.#cache.clear();
    this.#cache.set(id, { stored, readAt: now });
    return stored;
  }
}

const noHash = "0".repeat(64);

function hashOf(key: string): string {
  return createHash("sha256").update(key).digest("hex");
}

function sameHash(one: string, other: string): boolean {
  return timingSafeEqual(Buffer.from(one, "hex"), Buffer.from(other, "hex"));
}

function idOf({ id }: StoredRecord): string {
  return id.slice(recordId.tokens.length);
}

/** A record of a newer version may have another shape, and then is nobody's token. */
function storedToken({ body }: StoredRecord): StoredToken | null {
  const { name, hash, capabilities } = body as Partial<StoredToken>;
  const isKnown =
    typeof name === "string" &&
    typeof hash === "string" &&
    /^[0-9a-f]{64}$/.test(hash) &&
    Array.isArray(capabilities);
  return isKnown ? (body as unknown as StoredToken) : null;
}
