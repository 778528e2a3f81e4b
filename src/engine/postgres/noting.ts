/**
 * Notes of one process. One whose job another transaction is about to change waits and looks again; later notes of that job
 * wait behind it, so that they stay in their order, and those of other jobs go past.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Batcher } from "../batching.js";
import { batchMax, type Change } from "../engine.js";
import {
  isOfHolder,
  type NoteAnswer,
  type PatientNote,
  storeHeldNotes,
  storeOtherNote,
} from "./note.js";
import type { SharedLeases } from "./shared-leases.js";
import type { Transactions } from "./transactions.js";

/** For how long a note waits for a transaction that is about to change its job, and how often it looks. */
const waitMaxMs = 5_000;
const againMs = 10;

/** A note, and whether it is the first in line of its job. */
interface LinedNote extends PatientNote {
  readonly isFirst: boolean;
}

export class Noting {
  readonly #transactions: Transactions;
  readonly #sharedLeases: SharedLeases;
  /** One batch at a time: whoever waits for notes of a job is not to wait for one after the other. */
  readonly #batches: Batcher<LinedNote, NoteAnswer>;
  /** The last note of each job that has one waiting, and which jobs have one or are about to. */
  readonly #lines = new Map<string, Promise<unknown>>();
  readonly #lined = new Set<string>();

  constructor(transactions: Transactions, sharedLeases: SharedLeases) {
    this.#transactions = transactions;
    this.#sharedLeases = sharedLeases;
    this.#batches = new Batcher((notes) => this.#storeBatch(notes), {
      weightMax: batchMax,
      weigh: () => 1,
      inFlightMax: 1,
    });
  }

  /** How many notes wait for the batch under way. */
  get waiting(): number {
    return this.#batches.waiting;
  }

  /** Stores a note; gives whether the fold takes it. */
  async note(note: Change): Promise<boolean> {
    const { id } = note.job;
    const isInLine = this.#lines.has(id);
    const answer = isInLine ? "locked" : await this.#send({ note, isLate: false, isFirst: false });
    if (answer !== "locked") return answer === "stored";
    const waiting = this.#wait(note, this.#lines.get(id));
    this.#lines.set(id, waiting);
    try {
      return await waiting;
    } finally {
      if (this.#lines.get(id) === waiting) {
        this.#lines.delete(id);
        this.#lined.delete(id);
      }
    }
  }

  /** Looks again and again. Who takes too long to change the job is not waited for any more. */
  async #wait(note: Change, before: Promise<unknown> | undefined): Promise<boolean> {
    const since = performance.now();
    await before?.catch(() => {});
    for (;;) {
      await sleep(againMs);
      const isLate = performance.now() - since > waitMaxMs;
      const answer = await this.#send({ note, isLate, isFirst: true });
      if (answer !== "locked") return answer === "stored";
    }
  }

  /** A note that not only who holds the job may write is rare, and shares another row. It goes alone. */
  #send(note: LinedNote): Promise<NoteAnswer> {
    return isOfHolder(note.note) ? this.#batches.call(note) : this.#storeOther(note);
  }

  /** Stores notes, but for those whose job has an earlier one waiting. */
  async #storeBatch(batch: readonly LinedNote[]) {
    const isTurn = ({ note, isFirst }: LinedNote) => isFirst || !this.#lined.has(note.job.id);
    const notes = batch.filter(isTurn);
    const answers = new Map<LinedNote, NoteAnswer>();
    const stored = notes.length === 0 ? [] : await this.#storeHeld(notes);
    for (const [index, answer] of stored.entries()) {
      const note = notes[index] as LinedNote;
      answers.set(note, answer);
      if (answer === "locked") this.#lined.add(note.note.job.id);
    }
    return batch.map((note) => ({ answer: answers.get(note) ?? ("locked" as const) }));
  }

  #storeHeld(notes: readonly PatientNote[]): Promise<readonly NoteAnswer[]> {
    return this.#sharedLeases.on<PatientNote, NoteAnswer>({
      items: notes,
      idOf: idOfNote,
      isDoubtful: (_, answer) => answer === "ignored",
      perform: (some) => this.#transactions.again((tx) => storeHeldNotes(tx, some)),
    });
  }

  async #storeOther(note: PatientNote): Promise<NoteAnswer> {
    const [answer = "ignored"] = await this.#sharedLeases.on<PatientNote, NoteAnswer>({
      items: [note],
      idOf: idOfNote,
      isDoubtful: (_, answer) => answer === "locked",
      perform: async ([one = note]) => [
        await this.#transactions.again((tx) => storeOtherNote(tx, one)),
      ],
    });
    return answer;
  }
}

const idOfNote = ({ note }: PatientNote) => note.job.id;
