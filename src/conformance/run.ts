/**
 * Runs cases against an engine, for whatever test runner there is.
 */
import type { Engine } from "../engine/engine.js";
import type { ConformanceCase, ConformanceTarget } from "./case.js";
import { conformanceCases } from "./cases/index.js";
import { Environment } from "./environment.js";
import { MovableClock } from "./movable-clock.js";
import { verifyStore } from "./verify.js";

/** How a case went. One that fails throws. */
export type CaseOutcome =
  | { readonly outcome: "passed" }
  | { readonly outcome: "skipped"; readonly reason: string };

/**
 * Registers every case with a test runner.
 *
 * @example
 * runConformance(target, (name, run) => test(name, async (context) => {
 *   const result = await run();
 *   if (result.outcome === "skipped") context.skip(result.reason);
 * }));
 */
export function runConformance(
  target: ConformanceTarget,
  register: (name: string, run: () => Promise<CaseOutcome>) => void,
): void {
  for (const entry of conformanceCases) register(entry.name, () => runCase(target, entry));
}

/** Runs one case on a fresh store, and afterwards checks everything that the store holds. */
export async function runCase(
  target: ConformanceTarget,
  entry: ConformanceCase,
): Promise<CaseOutcome> {
  const clock = new MovableClock();
  const store = await target.open(clock);
  const engines: Engine[] = [store.engine];
  const open = async () => {
    if (!store.open) throw new Error(`${target.name} cannot open its store a second time.`);
    const engine = await store.open();
    engines.push(engine);
    return engine;
  };
  try {
    const missing = entry.needs.find((name) => !store.engine.capabilities[name]);
    if (missing)
      return { outcome: "skipped", reason: `${target.name} does not declare ${missing}` };
    await store.engine.provision();
    const env = new Environment(store.engine, clock, open);
    await entry.run(env);
    if (!entry.closes) await verifyStore(env);
    return { outcome: "passed" };
  } finally {
    for (const engine of engines) await engine.close();
    await store.remove?.();
  }
}
