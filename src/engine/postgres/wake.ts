/**
 * Wake-ups between processes: a notification that is sent after the commit it tells of, and a connection that listens.
 * Hints may be lost, so that everybody who waits also looks from time to time.
 */
import { createHash, randomBytes } from "node:crypto";
import type { Client } from "pg";
import type { Clock } from "../clock.js";
import type { WakeTopic } from "../engine.js";
import type { Notice } from "./driver.js";
import { endSoon, keepAlive } from "./socket.js";

/** How long to wait before a lost connection is made again, at first and at most. */
const reconnectMinMs = 500;
const reconnectMaxMs = 30_000;

/**
 * How long notifications rest after one. Whoever creates one job after the other so has one of several creates followed by
 * one, and a job that comes meanwhile is told that much later at most.
 */
const restMs = 2;

/**
 * How much longer they rest where creates send them along, if a timer has to end it. The next create of a stream comes within that,
 * and the notification by itself would cost another connection and a turn of its own.
 */
const graceMs = 1;

/**
 * How long they may rest while a create is under way, whose end is told with it. A timer that is about to fire makes each wait for the
 * server dearer, by as much as a notification costs.
 */
const restMaxMs = 20;

/** The longest name of a channel. The server refuses to notify a longer one, and listens to its beginning. */
const channelLengthMax = 63;

/** The channel of those who share a schema. Where the schema's name leaves no room for it, a hash stands for that. */
export function channelOf(
  schema: string,
  prefix: "millrace" | "millrace_outbox" = "millrace",
): string {
  const channel = `${prefix}_${schema}`;
  if (channel.length <= channelLengthMax) return channel;
  return `${prefix}_${createHash("sha256").update(schema).digest("hex").slice(0, 40)}`;
}

const topics: readonly WakeTopic[] = ["ready", "ended", "cancel"];

/** What the wake-ups need. */
export interface WakeOptions {
  readonly clock: Clock;
  readonly channel: string;
  /** Makes a connection that nobody else uses. */
  readonly connect: () => Client;
  /** Sends a notification. */
  readonly notify: (notice: Notice) => Promise<void>;
}

/** What something that was done hints at. */
type Woke = { readonly [Topic in WakeTopic]: boolean };

export class Wake {
  /** Who sends, so that nobody is woken by a notification of its own. */
  readonly #sender = randomBytes(6).toString("hex");
  readonly #options: WakeOptions;
  readonly #listeners: { readonly [Topic in WakeTopic]: Set<() => void> } = {
    ready: new Set(),
    ended: new Set(),
    cancel: new Set(),
  };
  /** What others have not been told, each with the number of its newest hint. */
  readonly #pending = new Map<WakeTopic, number>();
  #hints = 0;
  /** Monotonic, and of this process: others are as real as the server, whatever clock the store was given. */
  #restsUntil = Number.NEGATIVE_INFINITY;
  #endRest: (() => void) | null = null;
  #timer: NodeJS.Timeout | undefined;
  /** Whether the timer waits for a create that is under way. */
  #isPatient = false;
  /** How many creates are under way. */
  #creates = 0;
  /** Whether the last one was to go along with a create. */
  #wentAlong = false;
  #sending: Promise<void> | null = null;
  #client: Client | null = null;
  #isListening = false;
  #reconnectMs = reconnectMinMs;
  #isClosed = false;
  #callOff: (() => void) | undefined;

  constructor(options: WakeOptions) {
    this.#options = options;
  }

  /** Calls back on hints of a topic; gives the way to stop. */
  listen(topic: WakeTopic, on: () => void): () => void {
    const call = () => on();
    this.#listeners[topic].add(call);
    if (!this.#isListening) {
      this.#isListening = true;
      void this.#connect();
    }
    return () => {
      this.#listeners[topic].delete(call);
    };
  }

  /** Tells this process at once, and others with the next notification: one is under way at a time, and then they rest. */
  hint(woke: Woke): void {
    this.hintHere(woke);
    for (const topic of topics) if (woke[topic]) this.#pending.set(topic, ++this.#hints);
    if (this.#pending.size > 0) this.#sending ??= this.#send();
  }

  /** Tells this process alone, because others have been told. */
  hintHere(woke: Woke): void {
    for (const topic of topics) if (woke[topic]) this.#call(topic);
  }

  /**
   * The notification of a topic, for whoever sends it right behind the commit that it tells of. While they rest there is none.
   * It takes along what others have not been told. That stays to be told until the sender says that it has been sent: it may
   * fail, or take long.
   */
  notice(topic: WakeTopic): Notice | null {
    if (performance.now() < this.#restsUntil) return null;
    this.#wentAlong = true;
    return this.#noticeOf(new Set([...this.#pending.keys(), topic]));
  }

  /** A create is under way, and most likely the next one follows it. */
  creating(): void {
    this.#creates += 1;
  }

  /** A create has been answered. Whoever waited for it has made the next one before this turn ends, or makes none soon. */
  created(): void {
    this.#creates -= 1;
    if (this.#endRest !== null) process.nextTick(this.#setTimer);
  }

  /** A notification was sent: what it took along is told, but for what was hinted at since. */
  told(notice: Notice): void {
    for (const [topic, hint] of this.#pending)
      if (hint <= notice.hints) this.#pending.delete(topic);
  }

  /** Tells others what they have not been told, and listens no more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#callOff?.();
    this.#endRest?.();
    await this.#sending;
    const client = this.#client;
    this.#client = null;
    if (client === null) return;
    await endSoon(client);
  }

  #call(topic: WakeTopic): void {
    for (const call of this.#listeners[topic]) call();
  }

  async #send(): Promise<void> {
    while (this.#pending.size > 0) {
      if (!this.#isClosed && performance.now() < this.#restsUntil) await this.#rest();
      // A notification that cannot be sent is a hint lost, no more.
      else {
        const notice = this.#noticeOf(this.#pending.keys());
        this.#wentAlong = false;
        this.#pending.clear();
        await this.#options.notify(notice).catch(() => {});
      }
    }
    this.#sending = null;
  }

  /** A notification, after which they rest. */
  #noticeOf(woke: Iterable<WakeTopic>): Notice {
    this.#restsUntil = performance.now() + restMs;
    const payload = [this.#sender, ...woke].join(" ");
    return { channel: this.#options.channel, payload, hints: this.#hints };
  }

  async #rest(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#endRest = resolve;
      process.nextTick(this.#setTimer);
    });
    clearTimeout(this.#timer);
    this.#endRest = null;
    this.#isPatient = false;
  }

  /** Sees to it that a rest ends, soon unless a create is under way. */
  readonly #setTimer = () => {
    const isPatient = this.#creates > 0;
    if (this.#endRest === null || (isPatient && this.#isPatient)) return;
    const restsMs = this.#restsUntil - performance.now() + (this.#wentAlong ? graceMs : 0);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#endRest, isPatient ? restMaxMs : restsMs);
    this.#isPatient = isPatient;
  };

  async #connect(): Promise<void> {
    if (this.#isClosed) return;
    const client = this.#options.connect();
    this.#client = client;
    client.on("notification", ({ payload = "" }) => this.#heard(payload));
    client.on("error", () => this.#lost(client));
    client.on("end", () => this.#lost(client));
    try {
      await client.connect();
      await client.query(`LISTEN "${this.#options.channel}"`);
      // A server that may not be written tells of nothing. The address leads to another one soon.
      const { rows } = await client.query("SHOW transaction_read_only");
      if (rows[0]?.transaction_read_only === "on") return this.#lost(client);
      // The connection waits for others, and keeps no process alive.
      keepAlive(client, false);
      if (this.#isClosed) return await client.end();
      this.#reconnectMs = reconnectMinMs;
      // Something may have happened while nobody listened.
      for (const topic of topics) this.#call(topic);
    } catch {
      this.#lost(client);
    }
  }

  #heard(payload: string): void {
    const [sender, ...woke] = payload.split(" ");
    if (sender === this.#sender) return;
    for (const topic of topics) if (woke.includes(topic)) this.#call(topic);
  }

  #lost(client: Client): void {
    if (this.#client !== client || this.#isClosed) return;
    this.#client = null;
    void client.end().catch(() => {});
    this.#callOff = this.#options.clock.after(this.#reconnectMs, () => void this.#connect());
    this.#reconnectMs = Math.min(this.#reconnectMs * 2, reconnectMaxMs);
  }
}
