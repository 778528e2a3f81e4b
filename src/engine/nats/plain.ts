/**
 * Plain changes, which are nearly all: a job without a key, blockers or records is created, or the worker that holds it
 * ends it. Nothing has to be looked up for them, and so each is one message and little else: what a change holds on to
 * while it is under way costs more than the change. Whatever does not go as expected is left to the way of all others.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { ignoredReason } from "../../core/evolve.js";
import { isEnded } from "../../core/job.js";
import type { Change, WakeTopic } from "../engine.js";
import { messageOf } from "./entry.js";
import type { Held } from "./held.js";
import type { Log } from "./log.js";
import type { Port } from "./port.js";
import type { Subjects } from "./subjects.js";

/** What plain changes need of the engine. */
export interface PlainContext {
  readonly port: Port;
  readonly subjects: Subjects;
  readonly log: Log;
  readonly held: Held;
  readonly hint: (topic: WakeTopic, service: string) => void;
}

/** Stores a create that is plain; gives whether that worked, or `null` where it is not plain. */
export function createPlain(
  { log, subjects, hint }: PlainContext,
  { event, expect, records, follow, job }: Change,
): Promise<boolean> | null {
  if (event.name !== "created" || records !== undefined || follow !== undefined) return null;
  if (event.key !== undefined || event.blockers.length > 0) return null;
  if (expect.version !== 0 || job.id !== event.jobId) return null;
  const compare = { filter: subjects.idFilter(event.jobId), seq: 0 };
  const message = messageOf(subjectOf(subjects, event), event, compare);
  return log.append({ jobId: event.jobId, message }).then(({ outcome }) => {
    if (outcome !== "stored") return false;
    hint("ready", event.service);
    return true;
  });
}

/** A job that is due is claimed from its creation. */
function subjectOf(subjects: Subjects, event: EventOf<"created">): string {
  return event.runAt <= event.at ? subjects.ticket(event, event) : subjects.event(event);
}

/** Stores the end of a job by the worker that holds it, if it is plain; gives whether that worked, or else `null`. */
export function endPlain(
  { port, log, subjects, held, hint }: PlainContext,
  { event, expect, records, follow, job: key }: Change,
): Promise<boolean> | null {
  if (!isEnded(event.state) || records !== undefined || follow !== undefined) return null;
  const own = held.get(key.id, expect.token);
  const job = own?.logged.job;
  if (!own || !job || job.key !== undefined || event.name === "deleted") return null;
  const { service, id, token, version } = job;
  if (key.service !== service || key.type !== job.type || key.id !== event.jobId) return null;
  if (version !== expect.version || token !== expect.token) return null;
  if (own.logged.starts.get(token)?.caps.length !== 0 || !isOwnOutcome(event, job)) return null;
  const compare = { filter: subjects.jobFilter(service, id), seq: own.logged.lastSeq };
  const message = messageOf(subjects.event(event), event, compare);
  return log.append({ jobId: id, message }).then(({ outcome }) => {
    if (outcome !== "stored") return false;
    held.take(id, token);
    // Nobody waits for this: a ticket that could not be acknowledged comes again and is dropped.
    port.acknowledge([own.delivery]).catch(() => {});
    hint("ready", service);
    hint("ended", service);
    return true;
  });
}

/** Whether an event is the outcome that a worker may give to a job as it is. */
function isOwnOutcome(event: JobEvent, job: Parameters<typeof ignoredReason>[0]): boolean {
  return event.actor.startsWith("worker:") && ignoredReason(job, event) === null;
}
