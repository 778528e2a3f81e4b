/**
 * A job that was announced in a record and never came: its creation is made impossible before the record is touched,
 * so that it cannot come later.
 */
import type { EventOf } from "../../core/event.js";
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
  readonly actor: EventOf<"deleted">["actor"];
}

/** Whoever is about to create the job has to look again. Gives whether nobody was faster. */
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
  const expect = { filter: subjects.jobFilter(service, id), seq: lastSeq };
  const message = messageOf(subjects.event(event), event, expect);
  return (await log.append({ jobId: id, message })).outcome === "stored";
}
