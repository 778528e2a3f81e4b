/**
 * What a conformance case is: data with a name, the capabilities it needs, and what to do with an engine.
 */
import type { Capabilities } from "../engine/capabilities.js";
import type { Clock } from "../engine/clock.js";
import type { Engine } from "../engine/engine.js";
import type { Environment } from "./environment.js";

/** One promise of the engine contract and the proof of it. `run` throws when the promise is broken. */
export interface ConformanceCase {
  readonly name: string;
  /** An engine that lacks one of these is let off, with the capability named as the reason. */
  readonly needs: readonly (keyof Capabilities)[];
  /** The case closes its engine, so that nothing can be checked after it. */
  readonly closes?: true;
  run(env: Environment): Promise<void>;
}

/** A fresh, empty store for one case. */
export interface ConformanceStore {
  readonly engine: Engine;
  /** Another engine on the same store, as a second process would open it. Needed where `shared` or `durable` is declared. */
  readonly open?: () => Promise<Engine>;
  /** Removes whatever the store left behind. The engines are closed by then. */
  readonly remove?: () => Promise<void>;
}

/** How the suite gets at the engine under test. Its time must come from the clock alone. */
export interface ConformanceTarget {
  readonly name: string;
  readonly open: (clock: Clock) => Promise<ConformanceStore>;
}

/** Names the cases of one concern. */
export function concern(
  name: string,
  cases: readonly (Omit<ConformanceCase, "needs"> & Partial<Pick<ConformanceCase, "needs">>)[],
): readonly ConformanceCase[] {
  return cases.map((entry) => ({ needs: [], ...entry, name: `${name}: ${entry.name}` }));
}
