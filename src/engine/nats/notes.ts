/**
 * Notes of a job: progress, logs, emitted events, heartbeats. They lie beside what changes the job, and disturb no compare. An
 * outcome that came too late is one, too: with it a worker lets go of a job that was ended from outside.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { transitions } from "../../core/transitions.js";
import type { WakeTopic } from "../engine.js";
import { messageOf } from "./entry.js";
import type { Held } from "./held.js";
import { type HeldDeleted, heldRecordId } from "./held-deleted.js";
import type { EngineParts } from "./parts.js";

/** What notes need of the engine. */
export interface NotesContext
  extends Pick<EngineParts, "log" | "records" | "caps" | "keys" | "port" | "subjects"> {
  readonly held: Held;
  readonly hint: (topic: WakeTopic, service: string) => void;
}

/** The notes of a process. */
export class Notes {
  readonly #context: NotesContext;

  constructor(context: NotesContext) {
    this.#context = context;
  }

  /** Appends a note, unless the fold would ignore it. */
  async append(note: JobEvent): Promise<boolean> {
    const { log, subjects, held } = this.#context;
    if (transitions[note.name]?.kind === "change") return false;
    if (note.name === "staleCompletionIgnored") await this.#confirmEnd(note);
    const token = "token" in note ? note.token : undefined;
    const logged = await log.current(note.service, note.jobId, held.get(note.jobId, token));
    if (logged.job === null || evolve(logged.job, note).ignored !== null) return false;
    const message = messageOf(subjects.note(note), note);
    // Notes of a job may go in one batch.
    const jobId = `${note.jobId}/${note.id}`;
    const publication = await log.append({ jobId, message, isNote: true });
    return publication.outcome === "stored";
  }

  /** The worker of a job that was ended from outside has let go of it: its places are free. */
  async #confirmEnd({ jobId, service, token }: EventOf<"staleCompletionIgnored">): Promise<void> {
    const { log, caps, keys, records, held, port, hint } = this.#context;
    const delivery = held.take(jobId, token);
    if (delivery) await port.acknowledge([delivery]);
    const { job, starts } = await log.load(jobId);
    const isHeld = job?.state === "active" && job.token === token;
    if (job && !isHeld) {
      await caps.free(starts.get(token)?.caps ?? [], jobId, token);
      if (job.key) await keys.free(job, token);
    }
    const id = heldRecordId(service, jobId);
    const gone = await records.get(id);
    const body = gone.record?.body as unknown as HeldDeleted | undefined;
    if (body?.token === token) {
      await caps.free(body.caps, jobId, token);
      const { type, key } = body;
      if (key) await keys.free({ id: jobId, service, type, key }, token);
      await records.put(id, gone, null);
    }
    hint("ready", service);
  }
}
