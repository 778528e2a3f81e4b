/**
 * Wake-ups: hints to this process's own listeners and, over the server, to those of others.
 */
import type { WakeTopic } from "../engine.js";
import type { Port } from "./port.js";
import type { Subjects } from "./subjects.js";

/** The hints of a process. */
export class Wake {
  readonly #port: Port;
  readonly #subjects: Subjects;
  readonly #session: string;
  readonly #listeners = new Map<WakeTopic, Set<() => void>>();
  readonly #stops = new Map<WakeTopic, () => void>();
  /** The hints of this turn, which go out together. */
  readonly #pending = new Map<string, { readonly topic: WakeTopic; readonly service: string }>();

  constructor(port: Port, subjects: Subjects, session: string) {
    this.#port = port;
    this.#subjects = subjects;
    this.#session = session;
  }

  /** Calls back on hints. Gives the way to stop. */
  listen(topic: WakeTopic, on: () => void): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners);
    const listener = () => on();
    listeners.add(listener);
    if (!this.#stops.has(topic)) {
      const heard = (from: string) => from !== this.#session && this.#ring(topic);
      this.#stops.set(topic, this.#port.onHint(this.#subjects.hintFilter(topic), heard));
    }
    return () => {
      listeners.delete(listener);
      if (listeners.size > 0) return;
      this.#stops.get(topic)?.();
      this.#stops.delete(topic);
    };
  }

  /** Gives a hint. */
  hint(topic: WakeTopic, service: string): void {
    if (this.#pending.size === 0) queueMicrotask(() => this.#send());
    this.#pending.set(`${topic}/${service}`, { topic, service });
  }

  #send(): void {
    const hints = [...this.#pending.values()];
    this.#pending.clear();
    for (const { topic, service } of hints)
      this.#port.hint(this.#subjects.hint(topic, service), this.#session);
    for (const topic of new Set(hints.map((hint) => hint.topic))) this.#ring(topic);
  }

  #ring(topic: WakeTopic): void {
    for (const listener of [...(this.#listeners.get(topic) ?? [])]) listener();
  }

  /** Hears nothing more. */
  close(): void {
    for (const stop of this.#stops.values()) stop();
    this.#stops.clear();
    this.#listeners.clear();
  }
}
