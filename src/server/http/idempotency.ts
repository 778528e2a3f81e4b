/**
 * The `Idempotency-Key` of a create: for ten minutes the same request gives the same job, whichever server it meets
 * and wherever a server dies in between. The record that stands for the key names the job's id before the job is
 * created, so that whoever comes after a crash creates that very job or finds it.
 */
import type { Json } from "../../core/json.js";
import { canonicalHash } from "../../core/json.js";
import type { Engine } from "../../engine/engine.js";
import { isStoreError } from "../../engine/errors.js";
import { recordId, type StoredRecord } from "../../engine/record.js";
import type { Caller } from "./caller.js";
import { badArgument, refused } from "./refusal.js";

/** How long a key is remembered. */
const windowMs = 10 * 60 * 1_000;

/** How long a create may be under way before another request with its key takes it over. */
const underWayMs = 30_000;

const keyLengthMax = 255;

interface Body {
  readonly hash: string;
  readonly jobId: string;
  /** Until when the first request counts as under way; absent once it has been answered. */
  readonly underWayUntil?: number;
}

/** What a key allows: to create the job of this id, or to answer with it. */
export type KeyedCreate =
  | {
      readonly kind: "create";
      readonly jobId: string;
      /** The create was answered with a job: this one, or another that stands for it. */
      done(jobId: string): Promise<void>;
      undo(): Promise<void>;
    }
  | { readonly kind: "existing"; readonly jobId: string };

/** What a create with a key is told. */
export interface KeyedAsk {
  readonly engine: Engine;
  readonly caller: Caller;
  readonly key: string;
  /** The hash of everything that the request asks for; the same key with another one is refused. */
  readonly hash: string;
  /** The id that a new job gets. */
  readonly jobId: string;
}

/** Takes a key for a create. Refuses one that is in use, or was used for something else. */
export async function keyedCreate(ask: KeyedAsk): Promise<KeyedCreate> {
  const { engine, caller, key, hash } = ask;
  if (key.length === 0 || key.length > keyLengthMax)
    throw badArgument(
      "idempotency_key_invalid",
      `The Idempotency-Key must be 1 to ${keyLengthMax} characters.`,
      "Idempotency-Key",
    );
  const id = recordId.request(canonicalHash(caller.id).slice(0, 32), canonicalHash(key));
  const [found = null] = await engine.records([id]);
  const now = engine.now();
  if (found !== null) {
    const { hash: before, jobId, underWayUntil } = found.body as unknown as Body;
    if (before !== hash) throw otherRequest();
    if (underWayUntil === undefined) return { kind: "existing", jobId };
    if (underWayUntil > now) throw underWay(underWayUntil - now);
    const [loaded] = await engine.load([jobId]);
    if (loaded) {
      await write(engine, found, { hash, jobId });
      return { kind: "existing", jobId };
    }
    return take(engine, found, id, { hash, jobId });
  }
  return take(engine, null, id, { hash, jobId: ask.jobId });
}

async function take(
  engine: Engine,
  found: StoredRecord | null,
  id: string,
  { hash, jobId }: Body,
): Promise<KeyedCreate> {
  const underWayUntil = engine.now() + underWayMs;
  const body: Body = { hash, jobId, underWayUntil };
  const expect = found?.version ?? 0;
  const [taken] = await engine.swap([
    { id, expect, body: body as unknown as Json, expiresAt: engine.now() + windowMs },
  ]);
  // Somebody else was faster by a moment.
  if (!taken?.swapped) throw underWay(underWayMs);
  const record: StoredRecord = { id, version: taken.version, body: body as unknown as Json };
  return {
    kind: "create",
    jobId,
    done: (answered) => write(engine, record, { hash, jobId: answered }),
    undo: () => write(engine, record, null),
  };
}

/**
 * Writes the record anew. If somebody else has, theirs stands: it says the same. If the store cannot, the key counts as
 * under way for a while, after which the job's own id tells whether it was created.
 */
async function write(
  engine: Engine,
  { id, version }: StoredRecord,
  body: Body | null,
): Promise<void> {
  const expiresAt = engine.now() + windowMs;
  const json = body as unknown as Json | null;
  try {
    await engine.swap([{ id, expect: version, body: json, ...(json !== null && { expiresAt }) }]);
  } catch (error) {
    if (!isStoreError(error)) throw error;
  }
}

function otherRequest() {
  const message =
    "The Idempotency-Key was used for another request; use a new key for a new request.";
  const parts = { status: 422, reason: "idempotency_key_reused", field: "Idempotency-Key" };
  return refused("invalid_argument", { ...parts, message });
}

function underWay(retryAfterMs: number) {
  const message = "A request with this Idempotency-Key is under way; try again in a moment.";
  return refused("conflict", {
    reason: "idempotency_key_in_flight",
    field: "Idempotency-Key",
    message,
    retryAfterMs: Math.min(retryAfterMs, 1_000),
  });
}
