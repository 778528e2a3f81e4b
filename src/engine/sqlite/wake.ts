/**
 * Wake-ups between processes on one file: a commit touches a small file beside the store, which others watch.
 * Hints may be lost, so that everybody who waits also looks from time to time.
 */
import { type FSWatcher, watch, writeFileSync } from "node:fs";
import type { WakeTopic } from "../engine.js";
import type { Woke } from "./protocol.js";

/** The file that is touched for a topic. A request to stop rings the bell that every worker hears. */
export function wakePath(path: string, topic: WakeTopic): string {
  return `${path}-wake-${topic === "ended" ? "ended" : "ready"}`;
}

/** Touches the files of what was done. A bell that cannot be rung is a hint lost, no more. */
export function ringBells(path: string, woke: Woke): void {
  try {
    if (woke.ready || woke.cancel) writeFileSync(wakePath(path, "ready"), "!");
    if (woke.ended) writeFileSync(wakePath(path, "ended"), "!");
  } catch {
    return;
  }
}

/** Listens for hints on a store, from this process and from others. */
export class WakeListeners {
  readonly #path: string;
  readonly #listeners: { readonly [Topic in WakeTopic]: Set<() => void> } = {
    ready: new Set(),
    ended: new Set(),
    cancel: new Set(),
  };
  readonly #watchers = new Map<string, FSWatcher>();

  constructor(path: string) {
    this.#path = path;
  }

  /** Calls back on hints of a topic; gives the way to stop. */
  listen(topic: WakeTopic, on: () => void): () => void {
    const call = () => on();
    this.#listeners[topic].add(call);
    this.#watch(topic);
    return () => {
      this.#listeners[topic].delete(call);
    };
  }

  /** Passes on what this process has done itself. */
  hint(topic: WakeTopic): void {
    for (const call of this.#listeners[topic]) call();
  }

  close(): void {
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }

  /** Starts to watch a topic's file. Where the platform cannot, polling alone remains. */
  #watch(topic: WakeTopic): void {
    const file = wakePath(this.#path, topic);
    if (this.#watchers.has(file)) return;
    const topics: readonly WakeTopic[] = topic === "ended" ? ["ended"] : ["ready", "cancel"];
    try {
      const watcher = watch(file, { persistent: false }, () => {
        for (const each of topics) this.hint(each);
      });
      watcher.on("error", () => {
        watcher.close();
        this.#watchers.delete(file);
      });
      this.#watchers.set(file, watcher);
    } catch {
      return;
    }
  }
}
