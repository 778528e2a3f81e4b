/**
 * A job that was announced in a record and never came: its creation, or its coming back, is made impossible before the
 * record is touched, so that it cannot come later.
 */
import type { EventOf } from "../../core/event.js";
import type { Job } from "../../core/job.js";
import { messageOf } from "./entry.js";
import type { Log } from "./log.js";
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
  return isTakenUnseen({ log, subjects }, id, lastSeq);
}

/**
 * Whether a creation was refused though nothing new can be seen under its id: another service has it, and this process
 * may see one service only.
 */
export async function isTakenUnseen(
  { log, subjects }: Pick<RefusalContext, "log" | "subjects">,
  id: string,
  lastSeq: number,
): Promise<boolean> {
  return subjects.scope !== undefined && (await log.load(id)).lastSeq === lastSeq;
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
  return (await log.append({ jobId: id, message })).outcome === "stored";
}
