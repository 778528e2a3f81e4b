/**
 * Creating jobs: one, with an idempotency key if need be, or many, and chains.
 */
import { z } from "zod";
import { JobExists } from "../../../client/errors.js";
import type { Submission } from "../../../client/job-creator.js";
import type { JobRef } from "../../../client/job-ref.js";
import type { UntypedOptions } from "../../../client/untyped.js";
import { encryptionRequired, lacksVault, payloadHash } from "../../../client/vault.js";
import { maxTriesLimit } from "../../../contract/validate.js";
import { contextFrom } from "../../../core/context.js";
import type { JobContext } from "../../../core/job.js";
import type { Json } from "../../../core/json.js";
import { keyedCreate } from "../idempotency.js";
import { errorOut } from "../openapi.js";
import { checkQueueName } from "../queue-names.js";
import { badArgument, errorBody, refusalOf, refused } from "../refusal.js";
import { bulkBytesMax } from "../request-body.js";
import { type Answer, ok, type Route, type RouteRequest, route } from "../route.js";
import { blockersIn, blockersOf } from "../wire/blockers.js";
import { anyJson, durationMs, name, priority, time, typeVersion } from "../wire/common.js";

const group = "Jobs";

/** How many jobs one request may create. */
const batchMax = 1_000;

/** What a create says of the new job. */
export const createFields = {
  id: name("id").optional(),
  queue: name("queue").optional(),
  priority: priority.optional(),
  delayMs: durationMs.optional(),
  runAt: time.optional(),
  deadline: time.optional(),
  maxTries: z.number().int().min(1).max(maxTriesLimit).optional(),
  idempotencyKey: z
    .union([
      z.string().min(1).max(255),
      z.strictObject({
        key: z.string().min(1).max(255),
        scope: z.enum(["any", "unfinished"]).optional(),
        windowMs: durationMs.optional(),
      }),
    ])
    .optional(),
  blockers: blockersIn.optional(),
  tags: z.array(z.string()).max(20).optional(),
  signature: z
    .strictObject({
      createdAt: time,
      expiresAt: time.optional(),
      value: z.string().regex(/^[0-9a-fA-F]{128}$/, "must be 128 hexadecimal digits"),
    })
    .optional()
    .meta({ description: "The caller's Ed25519 signature of the job, which goes with its id." }),
  context: z
    .strictObject({
      requestId: z.string().min(1).max(128).optional(),
      traceparent: z.string().optional(),
      tracestate: z.string().max(512).optional(),
    })
    .optional(),
};

const payloadFields = {
  payload: anyJson.optional(),
  payload_base64: z
    .string()
    .optional()
    .meta({ description: "The payload's JSON text in base64, in place of payload." }),
};

/** The body of a create. */
export const createIn = z
  .strictObject({
    service: name("service"),
    type: name("type"),
    version: typeVersion.optional(),
    ...payloadFields,
    ...createFields,
    chain: z.boolean().optional().meta({ description: "Whether it is the first job of a chain." }),
  })
  .meta({ id: "CreateJob" });

/** A create as its body was read. */
export type CreateIn = z.output<typeof createIn>;

const createdOut = z
  .object({
    outcome: z.enum(["accepted", "replaced", "existing", "coalesced"]),
    id: z.string(),
    service: z.string(),
    type: z.string(),
    replacedJobId: z.string().optional(),
  })
  .meta({ id: "CreatedJob" });

const batchEntryOut = z.union([
  createdOut,
  z.object({
    outcome: z.literal("refused"),
    error: errorOut.shape.error.omit({ requestId: true }),
  }),
]);

/** What creates may answer. */
export const createAnswers = {
  200: {
    description: "The job was there already, or one that stands for it.",
    body: createdOut,
    headers: { Location: "The path of the job." },
  },
  201: { description: "Created.", body: createdOut, headers: { Location: "The path of the job." } },
  409: {
    description: "Its key is full, its id is taken, or its Idempotency-Key is in use.",
    body: errorOut,
  },
  422: {
    description:
      "Its payload does not fit, it cannot wait for what it names, or its Idempotency-Key was used for another request.",
    body: errorOut,
  },
} as const;

/** The routes that create jobs. */
export const createRoutes: readonly Route[] = [
  route({
    method: "post",
    path: "/v1/jobs",
    operation: "createJob",
    group,
    summary: "Create a job.",
    description:
      "The payload is checked against the service's accepted contract where there is one. With an Idempotency-Key the same request gives the same job for ten minutes.",
    needs: "admin.mutate",
    headers: { "Idempotency-Key": "Makes the request repeatable for ten minutes." },
    body: createIn,
    answers: createAnswers,
    handle: createOne,
  }),
  route({
    method: "post",
    path: "/v1/jobs/batch",
    operation: "createJobs",
    group,
    summary: "Create up to 1,000 jobs, each with an outcome of its own.",
    needs: "admin.mutate",
    body: z.strictObject({ jobs: z.array(createIn).min(1).max(batchMax) }),
    bodyBytesMax: bulkBytesMax,
    answers: {
      200: {
        description: "What became of each, in their order.",
        body: z.object({ entries: z.array(batchEntryOut) }),
      },
    },
    handle: createMany,
  }),
];

type CreateRequest = RouteRequest<undefined, undefined, CreateIn>;

/** What a create needs to know of the request that brings it, alone or with others. */
type RequestOfCreate = Pick<RouteRequest, "backend" | "caller" | "header" | "requestId">;

/** Creates one job, under its Idempotency-Key if it has one. */
export async function createOne(request: CreateRequest): Promise<Answer> {
  const { backend, body, caller } = request;
  const key = request.header("idempotency-key");
  if (key === null) return createdAnswer(await submit(request, body));
  const { engine } = backend;
  const jobId = body.id ?? backend.ids.jobId();
  const { service, type } = body;
  const runtime = await backend.services.runtime(service);
  if (lacksVault(runtime)) throw encryptionRequired({ service, type, id: jobId });
  const hash = payloadHash(runtime, JSON.parse(JSON.stringify(body)));
  const keyed = await keyedCreate({ engine, caller, key, hash, jobId });
  if (keyed.kind === "existing")
    return createdAnswer({ outcome: "existing", id: keyed.jobId, service, type });
  const named = { ...body, id: keyed.jobId };
  const created = await submit(request, named).catch(async (error: unknown) => {
    // Whoever was slow with this key has created the very job by now.
    if (body.id === undefined && error instanceof JobExists)
      return { outcome: "existing", id: keyed.jobId, service, type } as const;
    // A refusal means that nothing was created: the caller may mend its request under the same key. Where the store
    // fails, the job may be there, and the key goes on standing for it.
    const refusal = refusalOf(error);
    if (refusal !== null && refusal.code !== "unavailable") await keyed.undo();
    throw error;
  });
  await keyed.done(created.id);
  return createdAnswer(created);
}

/** Creates every job as if it had come alone; the store batches them. */
async function createMany(
  request: RouteRequest<undefined, undefined, { readonly jobs: readonly CreateIn[] }>,
): Promise<Answer> {
  const entries: Promise<unknown>[] = [];
  for (const body of request.body.jobs) {
    // A job may wait for one that comes before it.
    if (body.blockers !== undefined) await Promise.all(entries);
    const entry = submit(request, body).catch((error: unknown) => {
      const refusal = refusalOf(error);
      if (refusal === null) throw error;
      return { outcome: "refused", error: errorBody(refusal) };
    });
    entries.push(entry);
  }
  return ok({ entries: await Promise.all(entries) });
}

async function submit(request: RequestOfCreate, body: CreateIn): Promise<CreatedBody> {
  const { backend, caller } = request;
  if (body.queue !== undefined) checkQueueName(backend, body.queue);
  const { service, type } = body;
  const untyped = await backend.services.creator(service, caller);
  const options = { ...optionsOf(body), context: contextOf(request, body) };
  const submitted = await untyped.submit(type, payloadOf(body), options);
  if (submitted.isErr()) throw submitted.error;
  return createdBody(body, submitted.value);
}

/** The payload of a create, from either of the two ways to send it. */
export function payloadOf(body: Pick<CreateIn, "payload" | "payload_base64">): Json {
  const { payload, payload_base64: encoded } = body;
  if (encoded === undefined) {
    if (payload === undefined)
      throw badArgument("payload_missing", "Give a payload, or payload_base64.", "payload");
    return payload as Json;
  }
  if (payload !== undefined) {
    const message = "payload and payload_base64 exclude each other; give one of them.";
    throw badArgument("payload_both_set", message, "payload");
  }
  const isBase64 = /^[A-Za-z0-9+/]*={0,2}$/.test(encoded) && encoded.length % 4 === 0;
  try {
    if (!isBase64) throw new Error("It is not base64.");
    const bytes = Buffer.from(encoded, "base64");
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as Json;
  } catch {
    const message = "payload_base64 must be JSON text in UTF-8, encoded in base64.";
    throw badArgument("payload_base64_invalid", message, "payload_base64");
  }
}

/** The options of a create, from its body. */
function optionsOf(body: CreateIn): UntypedOptions {
  const { service: _s, type: _t, payload: _p, payload_base64: _b, blockers, ...rest } = body;
  // The body was JSON, so that what was not given is not there, either.
  const options = rest as Omit<UntypedOptions, "blockers">;
  if (blockers === undefined) return options;
  // A type that names its blockers takes them by name here, too.
  return { ...options, blockers: blockersOf(blockers) };
}

/** The request and trace of a create: its own, or those of the request that brings it. */
function contextOf(
  { backend, header, requestId }: RequestOfCreate,
  body: CreateIn,
): Partial<JobContext> {
  const { requestId: named = requestId, traceparent, tracestate } = body.context ?? {};
  // Where requests are recorded, the active span is of the trace that the headers name.
  const isRecorded = traceparent === undefined && backend.telemetry?.recorder() != null;
  if (isRecorded) return { requestId: named };
  const given = traceparent ?? validTraceparent(header("traceparent"));
  if (given === undefined) return { requestId: named };
  const state = traceparent === undefined ? header("tracestate") : tracestate;
  return { requestId: named, traceparent: given, ...(state && { tracestate: state }) };
}

/** A header that a proxy has mangled is no reason to refuse a job. */
function validTraceparent(header: string | null): string | undefined {
  return header !== null && contextFrom("", header) !== null ? header : undefined;
}

interface CreatedBody {
  readonly outcome: "accepted" | "replaced" | "existing" | "coalesced";
  readonly id: string;
  readonly service: string;
  readonly type: string;
  readonly replacedJobId?: string;
}

function createdAnswer(body: CreatedBody): Answer {
  const isNew = body.outcome === "accepted" || body.outcome === "replaced";
  return { status: isNew ? 201 : 200, body, headers: { Location: `/v1/jobs/${body.id}` } };
}

/** What a submission gave; one that was rejected is thrown. */
function createdBody({ service, type }: CreateIn, submission: Submission<JobRef>): CreatedBody {
  if (submission.outcome === "rejected") {
    const { outcome: _, reason, ...details } = submission;
    const { key, active, queued, limit } = details;
    const message = `The key ${key} is full: ${active} active and ${queued} queued of ${limit}; create the job later, or allow more.`;
    throw refused("conflict", { reason, message, details });
  }
  const { outcome, job } = submission;
  const body = { outcome, id: job.id, service, type };
  return submission.outcome === "replaced"
    ? { ...body, replacedJobId: submission.replacedJobId }
    : body;
}
