/**
 * Wake-ups: hints to this process's own listeners and, over the server, to those of others.
 */
import type { WakeTopic } from "../engine.js";
import { hintText, holds, joined, type News, readHint, type Where } from "./news.js";
import type { Port } from "./port.js";
import type { Subjects } from "./subjects.js";

/** A hint that is to be sent. */
interface Hint {
  readonly topic: WakeTopic;
  readonly service: string;
  readonly where: Where;
}

/** Who is told of the hints on each topic. */
export type WakeNews = { readonly [Topic in WakeTopic]?: readonly Pick<News, "add">[] };

/** The hints of a process. */
export class Wake {
  readonly #port: Port;
  readonly #subjects: Subjects;
  readonly #session: string;
  /** Are told of every hint on a topic. */
  readonly #news: WakeNews;
  /** Whether nobody has to look because of a hint. */
  readonly #isAwaited: (topic: WakeTopic, where: Where) => boolean;
  readonly #listeners = new Map<WakeTopic, Set<() => void>>();
  readonly #stops = new Map<WakeTopic, () => void>();
  /** The hints of this turn, which go out together. */
  readonly #pending = new Map<string, Hint>();

  constructor(options: {
    readonly port: Port;
    readonly subjects: Subjects;
    /** Tells this process from all others. */
    readonly session: string;
    readonly news: WakeNews;
    readonly isAwaited: (topic: WakeTopic, where: Where) => boolean;
  }) {
    this.#port = options.port;
    this.#subjects = options.subjects;
    this.#session = options.session;
    this.#news = options.news;
    this.#isAwaited = options.isAwaited;
  }

  /** Calls back on hints. Gives the way to stop. */
  listen(topic: WakeTopic, on: () => void): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners);
    const listener = () => on();
    listeners.add(listener);
    if (!this.#stops.has(topic)) {
      const heard = (text: string) => {
        const { from, where } = readHint(text);
        if (from !== this.#session) this.#hear(topic, where);
      };
      this.#stops.set(topic, this.#port.onHint(this.#subjects.hintFilter(topic), heard));
    }
    return () => {
      listeners.delete(listener);
      if (listeners.size > 0) return;
      this.#stops.get(topic)?.();
      this.#stops.delete(topic);
    };
  }

  /** Whether anybody listens to hints of a topic. */
  isHeard(topic: WakeTopic): boolean {
    return this.#stops.has(topic);
  }

  /** Gives a hint, and says where to look if that is known. */
  hint(topic: WakeTopic, service: string, where: Where = null): void {
    if (this.#pending.size === 0) queueMicrotask(() => this.#send());
    const name = `${topic}/${service}`;
    const before = this.#pending.get(name);
    if (before !== undefined && holds(before.where, where)) return;
    const all = before === undefined ? where : joined(before.where, where);
    this.#pending.set(name, { topic, service, where: all });
  }

  #send(): void {
    const hints = [...this.#pending.values()];
    this.#pending.clear();
    for (const { topic, service, where } of hints)
      this.#port.hint(this.#subjects.hint(topic, service), hintText(this.#session, where));
    for (const { topic, where } of hints) this.#hear(topic, where);
  }

  #hear(topic: WakeTopic, where: Where): void {
    if (this.#isAwaited(topic, where)) return;
    for (const news of this.#news[topic] ?? []) news.add(where);
    this.ring(topic);
  }

  /** Calls those who listen in this process, without any news. */
  ring(topic: WakeTopic): void {
    for (const listener of [...(this.#listeners.get(topic) ?? [])]) listener();
  }

  /** Hears nothing more. */
  close(): void {
    for (const stop of this.#stops.values()) stop();
    this.#stops.clear();
    this.#listeners.clear();
  }
}
