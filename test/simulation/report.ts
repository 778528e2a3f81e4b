// How a failed simulation is told: what was broken, and how to see it again.
import type { SimulationOutcome } from "./simulate.js";

const violationsShownMax = 10;

export function failureText({ seed, engine, violations }: SimulationOutcome): string {
  const shown = violations.slice(0, violationsShownMax).map((violation) => `  - ${violation}`);
  const more = violations.length - shown.length;
  return [
    `Seed ${seed} broke ${violations.length} rules:`,
    ...shown,
    ...(more > 0 ? [`  … and ${more} more`] : []),
    `See it again: npm run simulate -- --engine ${engine} --seeds 1 --seed ${seed} --verbose`,
  ].join("\n");
}
