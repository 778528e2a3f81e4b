/**
 * The first half of a create, without any I/O: a checked payload and its options become the change to append.
 */
import type { Schema } from "../contract/definition.js";
import { issuesSentence, type SchemaIssue } from "../contract/schema.js";
import type { JobSettings } from "../contract/settings.js";
import type { CommandOf } from "../core/command.js";
import { decide } from "../core/decide.js";
import type { EventOf } from "../core/event.js";
import type { Actor, JobContext, JobKeyPolicy } from "../core/job.js";
import { type Json, jsonText } from "../core/json.js";
import { deriveKey } from "../core/keys.js";
import { isSealed, sealedProblem } from "../core/secrets.js";
import { recordId } from "../engine/record.js";
import { type BlockerInputs, type BlockerTypes, blockersOf, ownBlocker } from "./blockers.js";
import type { Client } from "./client.js";
import { type CreateOptions, createProblem, idempotencyWindowMs } from "./create-options.js";
import {
  EncryptionRequired,
  type InvalidBlocker,
  InvalidOption,
  InvalidPayload,
  SignatureInvalid,
  SignatureRequired,
} from "./errors.js";
import { timeMs } from "./option-checks.js";
import { actorOf } from "./runtime.js";
import { contextOf } from "./trace.js";
import { payloadHash, sealPart } from "./vault.js";

/** The job type that a create is for. `schema` is `null` where no contract names the type. */
export interface CreateTarget {
  readonly service: string;
  readonly type: string;
  readonly queue: string;
  readonly schema: Schema | null;
  readonly settings: JobSettings;
  /** Whether its jobs are the first of a chain even if their type names no continuations. */
  readonly startsChain?: boolean;
  /** Whether only a chain will do: a job that is none cannot stand for a new one. */
  readonly needsChain?: boolean;
}

/** The idempotency key of a create, ready to be compared. */
export interface PreparedIdempotency {
  readonly recordId: string;
  readonly key: string;
  readonly scope: "any" | "unfinished";
  readonly expiresAt: number;
  readonly payloadHash: string;
  /** Whether a job that is no chain cannot be the answer. */
  readonly needsChain: boolean;
}

/** A create that only has to be appended. */
export interface PreparedCreate {
  readonly event: EventOf<"created">;
  readonly idempotency: PreparedIdempotency | null;
  /** The types that its named blockers must be of, where it has some. */
  readonly blockerTypes?: BlockerTypes;
}

/** What keeps a create from being prepared. */
export type PrepareFailure =
  | InvalidPayload
  | InvalidOption
  | InvalidBlocker
  | EncryptionRequired
  | SignatureRequired
  | SignatureInvalid;

/** The options of a create, with blockers in either form. */
type AnyCreateOptions = CreateOptions<BlockerInputs>;

type CreateCommand = CommandOf<"create">;
type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

const noOptions: AnyCreateOptions = {};

/** What a create is given by whoever makes it on behalf of something else. */
export interface CreateOrigin {
  /** The chain that it goes on. */
  readonly chainId?: string;
  /** When it counts as decided; now by default. */
  readonly at?: number;
  readonly actor?: Actor;
}

const noOrigin: CreateOrigin = {};

/** Prepares the create of a payload that its schema has accepted. */
export function prepareCreate(
  client: Client,
  target: CreateTarget,
  value: unknown,
  options: AnyCreateOptions = noOptions,
  origin: CreateOrigin = noOrigin,
): PreparedCreate | PrepareFailure {
  const problem = options === noOptions ? null : createProblem(options);
  if (problem !== null) return problem;
  const payload = storedPayload(target.type, value);
  if (payload instanceof InvalidPayload) return payload;
  const key = keyPolicy(target, payload.json);
  if (key instanceof InvalidPayload) return key;
  const { ids, engine } = client.runtime;
  const { chainId, at: now = engine.now(), actor = actorOf(client.runtime) } = origin;
  const id = options.id ?? ids.jobId();
  const context = contextOf(id, options.context, client.activeTrace, ids);
  if (context === null) {
    const message = `context: "${options.context?.traceparent}" is not a W3C traceparent; pass one on as it came.`;
    return new InvalidOption({ field: "context", message });
  }
  const idempotency = preparedIdempotency(client, target, options, payload.json, now);
  const command = createCommand(target, options, now, {
    id,
    eventId: ids.eventId(),
    actor,
    context,
    payload: payload.json,
  });
  if (key !== null) command.key = key;
  // A job that may be continued is the first of a chain, which has its id.
  if (chainId !== undefined) command.chainId = chainId;
  else if (target.startsChain || target.settings.continuations.length > 0) command.chainId = id;
  if (idempotency !== null) command.idempotencyKey = idempotency.key;
  const problemOfBlockers = addBlockers(command, target, options);
  if (problemOfBlockers !== null) return problemOfBlockers;
  const problemOfSignature = addSignature(command, client, options, now);
  if (problemOfSignature !== null) return problemOfSignature;
  const sealed = sealPart(client.runtime, command, "payload", command.payload);
  if (sealed instanceof EncryptionRequired) return sealed;
  command.payload = sealed;
  const decision = decide(null, command, now);
  if (!decision.ok || decision.event.name !== "created")
    throw new Error("A create was not decided as one.");
  const { event } = decision;
  const { blockers: blockerTypes } = target.settings;
  return blockerTypes === undefined ? { event, idempotency } : { event, idempotency, blockerTypes };
}

/** Most jobs wait for nothing, and cost nothing here. */
function addBlockers(
  command: Writable<CreateCommand>,
  { type, settings }: CreateTarget,
  options: AnyCreateOptions,
): InvalidOption | InvalidBlocker | null {
  if (options.blockers === undefined && settings.blockers === undefined) return null;
  const blockers = blockersOf(options.blockers, type, settings.blockers ?? {});
  if (blockers instanceof InvalidOption) return blockers;
  command.blockers = blockers;
  return ownBlocker(blockers, command);
}

/** Signs where there are keys, and passes on what was signed elsewhere. */
function addSignature(
  command: Writable<CreateCommand>,
  { runtime: { signing, engine } }: Client,
  { signature: given }: AnyCreateOptions,
  now: number,
): SignatureRequired | SignatureInvalid | null {
  if (signing === undefined && given === undefined) return null;
  const signature =
    signing === undefined ? given : signing.signatureOf(command, given, now, engine.now());
  if (signature instanceof SignatureRequired || signature instanceof SignatureInvalid)
    return signature;
  if (signature) command.signature = signature;
  return null;
}

interface CreateParts {
  readonly id: string;
  readonly eventId: string;
  readonly actor: Actor;
  readonly context: JobContext;
  readonly payload: Json;
}

function createCommand(
  target: CreateTarget,
  options: AnyCreateOptions,
  now: number,
  parts: CreateParts,
): Writable<CreateCommand> {
  const { settings } = target;
  const command: Writable<CreateCommand> = {
    command: "create",
    eventId: parts.eventId,
    actor: parts.actor,
    id: parts.id,
    service: target.service,
    type: target.type,
    context: parts.context,
    typeVersion: settings.version,
    queue: target.queue,
    payload: parts.payload,
    maxTries: options.maxTries ?? settings.maxTries,
    priority: options.priority ?? settings.priority,
    runAt: timeMs(options.runAt ?? now + (options.delayMs ?? 0)),
    deadLetter: settings.deadLetter,
    tags: options.tags === undefined ? noTags : [...new Set(options.tags)],
    blockers: noBlockers,
  };
  if (settings.secret !== undefined) command.secret = settings.secret;
  const deadline = deadlineOf(settings, options, now);
  if (deadline !== undefined) command.deadline = deadline;
  return command;
}

const noTags: readonly string[] = [];
const noBlockers: CreateCommand["blockers"] = [];

/** The job's own deadline or its type's, unless the queue lets no job grow that old. */
function deadlineOf(
  settings: JobSettings,
  options: AnyCreateOptions,
  now: number,
): number | undefined {
  const { deadlineMs, queue } = settings;
  const own = options.deadline === undefined ? undefined : timeMs(options.deadline);
  const deadline = own ?? (deadlineMs === undefined ? undefined : now + deadlineMs);
  if (queue.maxAgeMs === undefined) return deadline;
  return Math.min(deadline ?? Number.POSITIVE_INFINITY, now + queue.maxAgeMs);
}

/** The payload as it is stored: plain JSON that nobody else holds. */
export function storedPayload(
  type: string,
  value: unknown,
): { readonly json: Json } | InvalidPayload {
  if (value === undefined) {
    const message = "is undefined, which JSON cannot hold; give null or {}";
    return invalidPayload(type, [{ path: "", message }]);
  }
  const text = jsonText(value);
  if (!text.ok) return invalidPayload(type, [text.problem]);
  const json = JSON.parse(text.text) as Json;
  return isSealed(json) ? invalidPayload(type, [sealedProblem]) : { json };
}

function keyPolicy(target: CreateTarget, payload: Json): JobKeyPolicy | InvalidPayload | null {
  const { keyConcurrency, queue } = target.settings;
  if (keyConcurrency === undefined) return null;
  const derived = deriveKey(target.service, target.type, keyConcurrency.key, payload);
  if (!derived.ok)
    return invalidPayload(target.type, [{ path: derived.pointer, message: derived.message }]);
  return {
    key: derived.key,
    hash: derived.hash,
    maxActive: keyConcurrency.maxActive,
    maxQueued: queue.maxQueuedPerKey,
    whenFull: queue.whenFull,
    stalePolicy: keyConcurrency.stalePolicy,
  };
}

function preparedIdempotency(
  { runtime }: Client,
  target: CreateTarget,
  { idempotencyKey }: AnyCreateOptions,
  payload: Json,
  now: number,
): PreparedIdempotency | null {
  if (idempotencyKey === undefined) return null;
  const given = typeof idempotencyKey === "string" ? { key: idempotencyKey } : idempotencyKey;
  return {
    recordId: recordId.idempotency(target.service, target.type, target.settings.version, given.key),
    key: given.key,
    scope: given.scope ?? "any",
    expiresAt: timeMs(now + (given.windowMs ?? idempotencyWindowMs)),
    payloadHash: payloadHash(runtime, payload),
    needsChain: target.needsChain ?? false,
  };
}

/** The error of a payload that cannot be used. */
export function invalidPayload(type: string, issues: readonly SchemaIssue[]): InvalidPayload {
  return new InvalidPayload({
    type,
    issues,
    message: `The payload of ${type} is not valid: ${issuesSentence(issues)}`,
  });
}
