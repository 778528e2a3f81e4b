/**
 * Sends what handlers say while they run (progress, log lines, events, heartbeats) to the store.
 * What a job says in one turn goes in one call, so that no job waits for another's; its log lines become one event.
 */
import type { Runtime } from "../client/runtime.js";
import type { Command, Origin } from "../core/command.js";
import { decide } from "../core/decide.js";
import type { JobEvent } from "../core/event.js";
import type { LogEntry } from "../core/job.js";
import { batchMax } from "../engine/engine.js";
import { jobAborted } from "./abort.js";
import type { Hold } from "./hold.js";
import type { Holds } from "./holds.js";

/** How many notes of one job may be on their way to the store. */
const notesUnderWayMax = 10_000;

/** How many log lines one event holds. */
const entriesMax = 100;

/** What a note's command needs besides what it says. */
export type NoteOrigin = Origin & { readonly token: number };

interface Note {
  readonly hold: Hold;
  readonly event: JobEvent;
  readonly stored: () => void;
  readonly failed: (error: unknown) => void;
}

export class Notes {
  readonly #runtime: Runtime;
  readonly #holds: Holds;
  #queue = new Map<Hold, Note[]>();
  #entries = new Map<Hold, { readonly entries: LogEntry[]; readonly done: Promise<void> }>();

  constructor(runtime: Runtime, holds: Holds) {
    this.#runtime = runtime;
    this.#holds = holds;
  }

  /**
   * Stores a note. The promise rejects with `JobAborted` when the job is no longer this worker's,
   * and with the store's fault when there is one. Nobody has to wait for it.
   */
  add(hold: Hold, make: (origin: NoteOrigin) => Command): Promise<void> {
    const { ids, instance, engine } = this.#runtime;
    if (hold.phase !== "running") return refused(hold, "It has its outcome already.");
    if (hold.notesUnderWay >= notesUnderWayMax) {
      return refused(hold, `More than ${notesUnderWayMax} notes are on their way; await them.`);
    }
    const command = make({
      eventId: ids.eventId(),
      actor: `worker:${instance}`,
      token: hold.job.token,
    });
    const decision = decide(hold.job, command, engine.now());
    if (!decision.ok) return refused(hold, decision.rejection.message);
    return this.#send(hold, decision.event);
  }

  /** Stores a log line together with the others that the job logs in this turn. */
  log(hold: Hold, entry: LogEntry): Promise<void> {
    const open = this.#entries.get(hold);
    if (open && open.entries.length < entriesMax) {
      open.entries.push(entry);
      return open.done;
    }
    const entries = [entry];
    const done = this.add(hold, (origin) => ({ command: "log", entries, ...origin }));
    this.#entries.set(hold, { entries, done });
    return done;
  }

  /** Waits until nothing that the handler said is on its way any more. */
  quiet(hold: Hold): Promise<void> {
    return new Promise((resolve) => {
      hold.whenQuiet = resolve;
      if (hold.notesUnderWay === 0) resolve();
    });
  }

  #send(hold: Hold, event: JobEvent): Promise<void> {
    hold.notesUnderWay++;
    const sent = new Promise<void>((stored, failed) => {
      if (this.#queue.size === 0) queueMicrotask(() => this.#flush());
      const said = this.#queue.get(hold) ?? [];
      this.#queue.set(hold, said);
      said.push({ hold, event, stored, failed });
    });
    return ignorable(
      sent.finally(() => {
        hold.notesUnderWay--;
        if (hold.notesUnderWay === 0) hold.whenQuiet?.();
      }),
    );
  }

  #flush(): void {
    const queue = this.#queue;
    this.#queue = new Map();
    this.#entries = new Map();
    for (const notes of queue.values()) {
      for (let start = 0; start < notes.length; start += batchMax)
        void this.#store(notes.slice(start, start + batchMax));
    }
  }

  async #store(notes: readonly Note[]): Promise<void> {
    try {
      const stored = await this.#runtime.engine.note(notes.map((note) => note.event));
      for (const [index, note] of notes.entries()) {
        if (stored[index]) note.stored();
        else this.#refuse(note);
      }
    } catch (error) {
      for (const note of notes) note.failed(error);
    }
  }

  /** A note that the fold ignores comes from an attempt that is not current any more. */
  #refuse(note: Note): void {
    const { hold } = note;
    hold.isLost = true;
    this.#holds.abort(hold, "taken_by_another_worker");
    note.failed(hold.aborted ?? jobAborted(hold.job.id, "taken_by_another_worker"));
  }
}

function refused(hold: Hold, message: string): Promise<never> {
  return ignorable(Promise.reject(new Error(`Job ${hold.job.id}: ${message}`)));
}

/** A handler may leave what it says unawaited; a failure must not end the process then. */
export function ignorable<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
