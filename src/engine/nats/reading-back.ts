/**
 * What became of an event whose answer was lost, or that was refused. A refusal may be the echo of a success, a copy that answers
 * may be behind, and what another service has stored cannot be seen by everybody.
 */
import { StoreBusy, StoreUnavailable } from "../errors.js";
import { eventOf } from "../event-text.js";
import { foldMessages, tellsOf } from "./entry.js";
import { doubt, isRefusedForSure } from "./faults.js";
import type { OwnWrites } from "./own-writes.js";
import type { OutgoingMessage, Port, Publication, StoredMessage } from "./port.js";
import { lateLooksMax, type Rest, restMs } from "./record-lines.js";
import type { Subjects } from "./subjects.js";

/** How often a publish whose reply was lost is looked up and sent again. */
const lostRepliesMax = 5;

/** How often a copy is read again that shows nothing where the server has something, and it is only to be seen what was faster. */
const refusedLooksMax = 10;

const conflict: Publication = { outcome: "conflict" };

/** An event that was sent, and where it is looked for. */
interface Sent {
  readonly jobId: string;
  readonly message: OutgoingMessage;
}

/** What reading back needs of the log. */
export interface ReadingBackContext {
  readonly port: Port;
  readonly subjects: Subjects;
  /** Where the log has copies, what this process has stored; `null` where there is one, which is never behind. */
  readonly own: OwnWrites | null;
  readonly rest: Rest;
  /** All of a job's log. */
  readonly read: (id: string) => Promise<readonly StoredMessage[]>;
}

/** Finds out what became of events. */
export class ReadingBack {
  readonly #context: ReadingBackContext;

  constructor(context: ReadingBackContext) {
    this.#context = context;
  }

  /** Publishes, and looks into the log where it is not known whether that worked: also a refusal may be an echo of its own success. */
  async publishing(
    item: Sent,
    publish: () => Promise<Publication>,
    mayCome = false,
  ): Promise<Publication> {
    const { own } = this.#context;
    const { expect } = item.message;
    let isInDoubt = mayCome;
    for (let lost = 0; ; lost++) {
      let isRefused = false;
      try {
        const publication = await publish();
        if (publication.outcome === "stored" || expect === undefined) return publication;
        isRefused = true;
      } catch (error) {
        const isKnown = isRefusedForSure(error);
        const isAmbiguous = !isKnown && (StoreBusy.is(error) || StoreUnavailable.is(error));
        if (mayCome || lost > 0) doubt(error);
        if (!isAmbiguous || lost >= lostRepliesMax) throw error;
        isInDoubt = true;
      }
      // Where the server has refused it and a copy shows no reason, that copy is behind, unless another service is the reason.
      const isLate = isRefused && own !== null;
      const looksMax = isInDoubt ? lateLooksMax : refusedLooksMax;
      const found = await this.#lookFor(item, isLate ? looksMax : 0);
      if (found) return found;
      if (isLate || lost >= lostRepliesMax) return conflict;
    }
  }

  /**
   * What became of an event by the log; `null` where that shows nothing new, however often it is read again, or can show
   * nothing.
   */
  async #lookFor(item: Sent, looksMax: number): Promise<Publication | null> {
    const { own, rest, read, subjects } = this.#context;
    const { jobId, message } = item;
    const { expect } = message;
    if (expect === undefined) return this.#lookForNote(message);
    const { id } = eventOf(message);
    for (let looks = 0; ; looks++) {
      const messages = await read(jobId);
      const stored = messages.find((each) => tellsOf(each, id));
      if (stored) return { outcome: "stored", seq: stored.seq };
      const { lastSeq } = foldMessages(subjects.prefix, messages);
      if (lastSeq > expect.seq) return conflict;
      // A copy may be behind what was expected, too; without copies that is gone.
      if (own === null && lastSeq < expect.seq) return conflict;
      if (looks >= looksMax) return null;
      // What changes a job compares with events of its service alone.
      const isCreation = looks === 0 && expect.filter === subjects.idFilter(jobId);
      if (isCreation && (await this.#isAnothers(jobId, expect.seq))) return null;
      await rest(restMs(looks));
    }
  }

  /**
   * A note is the newest of its kind, nearly always. Where it is not, it is sent again: the server knows it by its id, and
   * tells where it lies.
   */
  async #lookForNote(message: OutgoingMessage): Promise<Publication | null> {
    const newest = await this.#context.port.last("jobs", message.subject);
    const isStored = newest !== null && tellsOf(newest, eventOf(message).id);
    return isStored ? { outcome: "stored", seq: newest.seq } : null;
  }

  /** Whether another service has an id, whose newest event this process has seen at a position, and may not see more of. */
  async isElsewhere(id: string, seq: number): Promise<boolean> {
    const { own, rest, read, subjects } = this.#context;
    if (subjects.scope === undefined) return false;
    const looksMax = own ? lateLooksMax : 0;
    for (let looks = 0; ; looks++) {
      const { lastSeq } = foldMessages(subjects.prefix, await read(id));
      if (lastSeq > seq || looks >= looksMax) return lastSeq === seq;
      if (looks === 0 && (await this.#isAnothers(id, seq))) return true;
      await rest(restMs(looks));
    }
  }

  /**
   * Whether what is newer than a position under an id is another service's, by the server that stores: it has something newer,
   * and after that nothing newer of this service. What it does not tell is not believed.
   */
  async #isAnothers(id: string, seq: number): Promise<boolean> {
    const { port, subjects } = this.#context;
    const { scope } = subjects;
    if (scope === undefined) return false;
    const question = subjects.question(scope, id);
    const newest = await port.newestSeq(subjects.idFilter(id), question);
    if (newest === null || newest <= seq) return false;
    const own = await port.newestSeq(subjects.jobFilter(scope, id), question);
    return own !== null && own <= seq;
  }
}
