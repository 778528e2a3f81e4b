// A measure beside another one of the same kind. The two take turns, because a machine that others use may be a third faster
// half an hour later.
import type { Bench, EngineName, Measure, Row } from "../bench.js";
import { shortRounds } from "../sizes.js";
import { ofMillrace } from "./contenders.js";

/** Something that is measured, and what it is compared with. */
export interface Beside {
  readonly name: string;
  readonly engines: readonly EngineName[];
  readonly scale: Pick<Row, "unit" | "better">;
  readonly shows: string;
  /** The share of the other that must be reached, on the engines `aimedAt`, which are all of them where nothing is said. */
  readonly atLeast: number;
  readonly aimedAt?: readonly EngineName[];
  /** What the row of the other ends with, and what it shows. */
  readonly other: { readonly suffix: string; readonly shows: string };
  measured(bench: Bench): Promise<number>;
  otherMeasured(bench: Bench): Promise<number>;
}

/** Measures something beside something else. */
export function besideMeasure(beside: Beside): Measure {
  const { name, engines, aimedAt = engines, scale, shows, other } = beside;
  const otherName = `${name}-${other.suffix}`;
  const base = { system: "millrace", row: otherName } as const;
  const targets = [ofMillrace(otherName, beside.atLeast)];
  return {
    name,
    engines,
    rounds: shortRounds,
    rows: [
      {
        ...scale,
        name,
        shows,
        base,
        targets: Object.fromEntries(aimedAt.map((engine) => [engine, targets])),
      },
      { ...scale, name: otherName, shows: other.shows, targets: {} },
    ],
    contenders: [
      {
        system: "millrace",
        run: async (bench) => ({
          [name]: await beside.measured(bench),
          [otherName]: await beside.otherMeasured(bench),
        }),
      },
    ],
  };
}
