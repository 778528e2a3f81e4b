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

/** The most tokens that are listed. */
const tokensMax = 1_000;

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
    const [swapped] = await this.#engine.swap([{ id: recordId.token(id), expect: 0, body }]);
    if (!swapped?.swapped) throw new Error("A fresh token id was taken.");
    return { token: { id, ...shown }, secret: `mr_${id}_${key}` };
  }

  /** All tokens, expired ones included. */
  async list(): Promise<readonly Token[]> {
    const ask = { prefix: recordId.tokens, limit: tokensMax };
    const records = await this.#engine.query("records", ask);
    return records.flatMap((record) => {
      const stored = storedToken(record);
      if (stored === null) return [];
      const { hash: _, ...shown } = stored;
      return [{ id: record.id.slice(recordId.tokens.length), ...shown }];
    });
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
