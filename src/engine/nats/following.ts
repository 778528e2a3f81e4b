/**
 * Following a stream: what lies there after a position and then what comes, in order and without gaps, by a consumer that
 * pushes. A reader that loses its place begins anew where it was.
 */
import type { EventName } from "../../core/event.js";
import { appliedMax, type PackedEvents, Packer } from "../projection/packed.js";
import { leaseHeader } from "./entry.js";
import type { Incoming } from "./incoming.js";
import type { StoredMessage } from "./port.js";
import { firstHeader, HeaderName, statusOf } from "./raw-headers.js";
import { isAnswer, placeOf, storedMessage } from "./read-message.js";
import { consumerOf, type ReadingFrom } from "./reading.js";
import type { Listening } from "./receiving.js";

/** How often a server says that it is there while nothing comes, and how many of these signs may be missed. */
const heartbeatMs = 2_000;
const missedMax = 3;

/** The most messages that are handed over at once. */
const chunkMax = appliedMax;

/** From so many messages on that nobody has taken yet, the server is not asked for more. */
const waitingMax = 2 * appliedMax;

const noMessage = 100;

/** Takes messages as they come, and gives them on, many at once. */
interface Gathering<Batch> {
  /** How many wait. */
  readonly count: number;
  /** Takes a message, and how many the server has behind it. */
  add(message: Incoming, seq: number, pending: number): void;
  /** Takes the oldest; `null` when there are none. */
  take(): { readonly batch: Batch; readonly last: number } | null;
}

/** Gathers messages as the engine sees them. */
export class Messages implements Gathering<readonly StoredMessage[]> {
  readonly #waiting: StoredMessage[] = [];

  get count(): number {
    return this.#waiting.length;
  }

  add(message: Incoming, seq: number): void {
    this.#waiting.push(storedMessage(message, seq));
  }

  take() {
    const batch = this.#waiting.splice(0, chunkMax);
    const last = batch.at(-1)?.seq;
    return last === undefined ? null : { batch, last };
  }
}

/** Gathers events as the bytes that they are, for whoever applies them elsewhere. */
export class Packs implements Gathering<PackedEvents> {
  readonly #packer = new Packer();
  #pending = 0;

  get count(): number {
    return this.#packer.count;
  }

  add(message: Incoming, seq: number, pending: number): void {
    const { subject } = message;
    this.#pending = pending;
    const isStart = subject.endsWith(startedEnding);
    const leaseUntil = isStart ? Number(firstHeader(message, leaseName) ?? 0) : undefined;
    this.#packer.add(seq, subject, isAnswer(message) ? noBytes : message.data, leaseUntil);
  }

  take() {
    const batch = this.#packer.take();
    if (batch === null) return null;
    const behind = this.#packer.count + this.#pending;
    return { batch: { ...batch, behind }, last: batch.last };
  }
}

const noBytes = new Uint8Array();
const leaseName = new HeaderName(leaseHeader);
const startedEnding = ".started" satisfies `.${EventName}`;

/** Messages under a filter after a position, then live. A reader that loses its place begins anew where it was. */
export async function* follow<Batch>(
  from: ReadingFrom,
  filter: string,
  after: number,
  signal: AbortSignal,
  gather: () => Gathering<Batch>,
): AsyncIterable<Batch> {
  let last = after;
  while (!signal.aborted) {
    const run = new Run(from, signal, gather());
    try {
      await run.start(filter, last + 1);
      for (let taken = await run.next(); taken !== null; taken = await run.next()) {
        last = taken.last;
        yield taken.batch;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (from.connection.isClosed()) throw error;
      await pause(signal);
    } finally {
      run.stop();
    }
  }
}

/** How long a reader waits before it begins anew after a fault. */
const againMs = 250;

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, againMs);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

/** One consumer that pushes, from a position until it is lost or no longer wanted. */
class Run<Batch> {
  readonly #from: ReadingFrom;
  readonly #signal: AbortSignal;
  readonly #gathering: Gathering<Batch>;
  #wake: (() => void) | null = null;
  #expected = 1;
  #isOver = false;
  /** Where the server wants to hear that it may send more. */
  readonly #asked = new Set<string>();
  #subscription: Listening | null = null;
  #timer: NodeJS.Timeout | undefined;
  /** How many looks in a row have found that nothing came, not even a sign of life. */
  #missed = 0;

  constructor(from: ReadingFrom, signal: AbortSignal, gathering: Gathering<Batch>) {
    this.#from = from;
    this.#gathering = gathering;
    this.#signal = signal;
    signal.addEventListener("abort", this.#end);
  }

  async start(filter: string, seq: number): Promise<void> {
    const inbox = this.#from.newInbox();
    const heard = (message: Incoming) => this.#take(message);
    this.#subscription = this.#from.receiver.subscribe(inbox, heard, this.#end);
    // A timer that begins anew with each message would cost more than the message.
    this.#timer = setInterval(() => this.#look(), heartbeatMs);
    this.#timer.unref();
    await consumerOf(this.#from, filter, inbox, {
      deliver_policy: "by_start_sequence",
      opt_start_seq: seq,
      flow_control: true,
      idle_heartbeat: heartbeatMs * 1e6,
    });
  }

  /** The next messages in order, or `null` when this consumer gives no more. */
  async next(): Promise<ReturnType<Gathering<Batch>["take"]>> {
    while (this.#gathering.count === 0) {
      if (this.#isOver) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const taken = this.#gathering.take();
    if (this.#gathering.count < waitingMax) this.#goOn();
    return taken;
  }

  stop(): void {
    this.#end();
    clearInterval(this.#timer);
    this.#signal.removeEventListener("abort", this.#end);
    this.#subscription?.unsubscribe();
  }

  readonly #end = () => {
    this.#isOver = true;
    this.#tell();
  };

  /** Wakes whoever waits, once: what was resolved already costs more to resolve again than a message. */
  #tell(): void {
    const wake = this.#wake;
    if (wake === null) return;
    this.#wake = null;
    wake();
  }

  #look(): void {
    this.#missed += 1;
    if (this.#missed > missedMax) this.#end();
  }

  #take(message: Incoming): void {
    if (this.#isOver) return;
    this.#missed = 0;
    // Events have bodies, and what the server itself says has none; reading headers is dear.
    if (!message.hasData && statusOf(message) === noMessage) {
      this.#control(message);
      return;
    }
    const { seq, consumerSeq, pending } = placeOf(message);
    // A gap: the server sent what never came. Whatever came before it counts.
    if (consumerSeq !== this.#expected) {
      this.#end();
      return;
    }
    this.#expected += 1;
    this.#gathering.add(message, seq, pending);
    this.#tell();
  }

  /** A sign of life, which tells how much was sent, or a question whether the reader keeps up. */
  #control(message: Incoming): void {
    if (message.hasReply) this.#asked.add(message.reply);
    const sent = firstHeader(message, sentHeader);
    if (sent && Number(sent) >= this.#expected) this.#end();
    const stalled = firstHeader(message, stalledHeader);
    if (stalled) this.#asked.add(stalled);
    if (this.#gathering.count < waitingMax) this.#goOn();
  }

  /** Lets the server send more. */
  #goOn(): void {
    for (const subject of this.#asked) this.#from.connection.publish(subject);
    this.#asked.clear();
  }
}

/** Where a sign of life tells how much was sent, and where to say that more may come. */
const sentHeader = new HeaderName("Nats-Last-Consumer");
const stalledHeader = new HeaderName("Nats-Consumer-Stalled");
