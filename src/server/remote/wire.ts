/**
 * What goes over the wire between a worker and a remote handler: the subject, the headers, the task as JSON, and what a
 * reply means. It is the request-reply protocol of Choria's asyncjobs, so that handlers written for that serve jobs here.
 */
import { headers, Match, type Msg, type MsgHdrs } from "@nats-io/transport-node";
import type { JobContext } from "../../core/job.js";
import type { Json } from "../../core/json.js";
import { headerText } from "../../engine/nats/entry.js";
import type { ActiveJob } from "../../worker/active-job.js";
import type { BlockerOutcome } from "../../worker/blockers.js";
import { type HandlerOutcome, terminate } from "../../worker/outcome.js";
import { RemoteHandlerFailed } from "./errors.js";

/** What remote handlers need of a job. */
export type RemoteJob = Pick<
  ActiveJob<unknown>,
  | "id"
  | "type"
  | "queue"
  | "payload"
  | "context"
  | "tries"
  | "maxTries"
  | "createdAt"
  | "deadline"
  | "remainingMs"
  | "signal"
  | "loadDependencies"
>;

const contentTypeHeader = "AJ-Content-Type";
const deadlineHeader = "AJ-Handler-Deadline";
const errorHeader = "AJ-Error";
const terminateHeader = "AJ-Terminate";

const taskContentType = "application/x-asyncjobs-task+json";

/** Where handlers for all types listen. */
const catchAll = "catchall";

const secondMs = 1_000;

/** The subject of a type, of the beginning of types, or with `""` of all types. Dots are escaped, so that it is one token. */
export function remoteSubject(prefix: string, type: string): string {
  return `${prefix}.H.T.${type === "" ? catchAll : type.replaceAll(".", "=2E")}`;
}

/** The headers of a request. The deadline is in whole seconds, as the protocol shows it, and never later than given. */
export function taskHeaders(deadline: number, context: JobContext): MsgHdrs {
  const told = headers();
  const wholeSeconds = new Date(Math.floor(deadline / secondMs) * secondMs);
  told.set(contentTypeHeader, taskContentType);
  told.set(deadlineHeader, wholeSeconds.toISOString().replace(".000Z", "Z"));
  told.set("request-id", headerText(context.requestId));
  told.set("traceparent", headerText(context.traceparent));
  if (context.tracestate !== undefined) told.set("tracestate", headerText(context.tracestate));
  return told;
}

/** The body of a request. The payload is its JSON in base64, as the protocol has bytes. */
export function taskBody(
  job: RemoteJob,
  triedAt: number,
  dependencies?: readonly BlockerOutcome[],
): string {
  const { id, type, queue, tries, maxTries, deadline } = job;
  return JSON.stringify({
    id,
    type,
    queue,
    payload: Buffer.from(JSON.stringify(job.payload ?? null)).toString("base64"),
    state: "active",
    created: timeText(job.createdAt),
    tried: timeText(triedAt),
    tries,
    max_tries: maxTries,
    ...(deadline === undefined ? null : { deadline: timeText(deadline) }),
    ...(dependencies?.length && {
      dependencies: dependencies.map((dependency) => dependency.id),
      load_dependencies: true,
      dependency_results: resultsOf(dependencies),
    }),
  });
}

function resultsOf(dependencies: readonly BlockerOutcome[]): Readonly<Record<string, unknown>> {
  const completed = dependencies.filter(({ state }) => state === "completed");
  return Object.fromEntries(completed.map(({ id, result = null }) => [id, { payload: result }]));
}

function timeText(at: number): string {
  return new Date(at).toISOString();
}

/** What a reply means for its job. Throws `RemoteHandlerFailed` for an error that may pass. */
export function replyOutcome(
  { headers: told, data }: Pick<Msg, "headers" | "data">,
  subject: string,
): Json | HandlerOutcome | undefined {
  if (told?.has(terminateHeader, Match.IgnoreCase)) {
    const said = told.get(terminateHeader, Match.IgnoreCase);
    return terminate(said || "The remote handler gave the job up and did not say why.");
  }
  if (told?.has(errorHeader, Match.IgnoreCase)) {
    const said = told.get(errorHeader, Match.IgnoreCase);
    const message = said || "The remote handler failed and did not say why.";
    throw new RemoteHandlerFailed({ code: "remote_error", subject, message });
  }
  return resultOf(data);
}

/** The result is the JSON of the body; else its text; else, for bytes that are no text, their base64 in an object. */
function resultOf(body: Uint8Array): Json | undefined {
  if (body.length === 0) return undefined;
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return { base64: Buffer.from(body).toString("base64") };
  }
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}
