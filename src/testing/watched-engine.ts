/**
 * An engine whose calls under way can be seen, so that a test's clock waits for a store that does real I/O, and
 * whose hints a test can give itself, because what a store does to notice others' commits waits for a clock, too.
 */
import type { Engine } from "../engine/engine.js";
import { turns } from "./fake-clock.js";

/** How long a clock waits in real time for calls that are under way; one that takes longer waits for the clock itself. */
const restsMax = 1_000;
const restMs = 1;

/** An engine, and the means to watch it. */
export interface WatchedEngine {
  readonly engine: Engine;
  /** Whether a call is under way. */
  isBusy(): boolean;
  /** Lets what is under way come to its end, and what follows from it begin. */
  rest(): Promise<void>;
  /** Hints to everybody who waits that something may have changed. */
  hint(): void;
}

/** Watches an engine. */
export function watchEngine(target: Engine): WatchedEngine {
  let underWay = 0;
  const listeners = new Set<() => void>();
  const done = () => {
    underWay -= 1;
  };
  const wake: Engine["wake"] = (topic, on) => {
    const call = () => on();
    listeners.add(call);
    const stop = target.wake(topic, call);
    return () => {
      listeners.delete(call);
      stop();
    };
  };
  const engine = new Proxy(target, {
    get: (_, name) => {
      if (name === "wake") return wake;
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...values: unknown[]) => {
        const answer: unknown = Reflect.apply(member, target, values);
        if (answer instanceof Promise) {
          underWay += 1;
          answer.then(done, done);
        }
        return answer;
      };
    },
  });
  const isBusy = () => underWay > 0;
  return {
    engine,
    isBusy,
    rest: async () => {
      await turns();
      for (let rests = 0; rests < restsMax && isBusy(); rests++) {
        await pause(restMs);
        await turns();
      }
    },
    hint: () => {
      for (const call of listeners) call();
    },
  };
}

/** Handlers and stores may wait for files or sockets, which no fake clock moves. */
export function pause(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}
