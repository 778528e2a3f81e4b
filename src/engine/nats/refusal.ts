/**
 * A job that was announced in a record and never came: its creation, or its coming back, is made impossible before the
 * record is touched, so that it cannot come later.
 */
import type { EventOf } from "../../core/event.js";
import type { Job } from "../../core/job.js";
import { type LoggedJob, messageOf } from "./entry.js";
import { type HeldDeleted, heldRecordId } from "./held-deleted.js";
import type { Log } from "./log.js";
import type { Records } from "./records.js";
import type { Subjects } from "./subjects.js";

/** What refusing needs of the engine. */
export interface RefusalContext {
  readonly log: Log;
  readonly subjects: Subjects;
  readonly now: () => number;
  readonly newEventId: () => string;
  /** The name under which this process writes what follows from what others did. */
  readonly actor: EventOf<"deleted" | "ready">["actor"];
}

/**
 * Moves a job on whose place is ahead of the log, so that the place may be taken away. Gives whether it may. One that was
 * deleted while its worker runs keeps its place until that worker lets go.
 */
export async function giveUp(
  context: RefusalContext & { readonly records: Records },
  service: string,
  id: string,
  { job, lastSeq }: LoggedJob,
): Promise<boolean> {
  if (job !== null) return moveOn(context, job, lastSeq);
  const { record } = await context.records.get(heldRecordId(service, id));
  const held = record?.body as unknown as HeldDeleted | undefined;
  if ((held?.until ?? 0) > context.now()) return false;
  return refuseCreation(context, service, id, lastSeq);
}

/** Whoever is about to create the job has to look again. Gives whether nobody of its service was faster. */
export async function refuseCreation(
  { log, subjects, now, newEventId, actor }: RefusalContext,
  service: string,
  id: string,
  lastSeq: number,
): Promise<boolean> {
  const event: EventOf<"deleted"> = {
    name: "deleted",
    id: newEventId(),
    jobId: id,
    service,
    type: "_",
    version: 0,
    run: 0,
    tries: 0,
    state: "cancelled",
    previousState: null,
    at: now(),
    actor,
    context: { requestId: "", traceId: "", traceparent: "" },
    reason: "its creation was never completed",
  };
  const expect = { filter: subjects.idFilter(id), seq: lastSeq };
  const message = messageOf(subjects.event(event), event, expect);
  if ((await log.append({ jobId: id, message })).outcome === "stored") return true;
  return log.isElsewhere(id, lastSeq);
}

/** A job that has not started, or that has ended: whoever was about to change it has to look again. */
export async function moveOn(
  { log, subjects, now, newEventId, actor }: RefusalContext,
  job: Job,
  lastSeq: number,
): Promise<boolean> {
  const { id, service, type, version, run, tries, state, context } = job;
  const event: EventOf<"ready"> = {
    name: "ready",
    id: newEventId(),
    jobId: id,
    ...{ service, type, version, run, tries, state, context, actor },
    previousState: state,
    at: now(),
    cause: "swept",
  };
  const waits = (state === "pending" || state === "retry") && job.runAt <= now();
  const subject = waits ? subjects.ticket(event, job) : subjects.event(event);
  const expect = { filter: subjects.jobFilter(service, id), seq: lastSeq };
  const message = messageOf(subject, event, expect);
  const item = { jobId: id, message, ...(waits && { consumer: subjects.consumerOf(job) }) };
  return (await log.append(item)).outcome === "stored";
}
