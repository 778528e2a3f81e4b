// Runs measures: contenders take turns round by round, and what failed is kept apart from the numbers.
import type { Bench, CellName, Contender, Measure, Row } from "./bench.js";
import { median } from "./statistics.js";

/** Something that went wrong on the way: a failed verification, or a system that broke. */
export interface Failure {
  readonly measure: string;
  readonly system: string;
  readonly error: Error;
}

/** Everything that a run found out. */
export class Results {
  readonly rows: Row[] = [];
  readonly failures: Failure[] = [];
  readonly #readings = new Map<string, number[]>();

  /** Adds the value of one round. */
  add(cell: CellName, value: number): void {
    const values = this.#readings.get(keyOf(cell)) ?? [];
    this.#readings.set(keyOf(cell), [...values, value]);
  }

  /** Forgets the values of a system in some rows, because they could not be trusted. */
  forget(system: Contender["system"], rows: readonly Row[]): void {
    for (const row of rows) this.#readings.delete(keyOf({ system, row: row.name }));
  }

  /** The median over all rounds, if the cell was measured. */
  value(cell: CellName): number | undefined {
    const values = this.#readings.get(keyOf(cell));
    return values && median(values);
  }

  /** How a cell compares with another: above 1 is better, whichever way the row counts. */
  ratio(row: Row, cell: CellName, other: CellName): number | undefined {
    const [value, reference] = [this.value(cell), this.value(other)];
    if (value === undefined || reference === undefined) return undefined;
    return row.better === "higher" ? value / reference : reference / value;
  }
}

/** Runs measures one after the other. */
export async function runMeasures(measures: readonly Measure[], bench: Bench): Promise<Results> {
  const results = new Results();
  for (const measure of measures) {
    results.rows.push(...measure.rows);
    await runRounds(measure, bench, results);
  }
  return results;
}

async function runRounds(measure: Measure, bench: Bench, results: Results): Promise<void> {
  const contenders = new Set(measure.contenders);
  for (let round = 1; round <= measure.rounds; round += 1) {
    for (const contender of contenders) {
      bench.progress(`${measure.name}, round ${round} of ${measure.rounds}: ${contender.system}`);
      try {
        const readings = await contender.run(bench);
        for (const [row, value] of Object.entries(readings)) {
          results.add({ system: contender.system, row }, value);
        }
      } catch (cause) {
        const error = cause instanceof Error ? cause : new Error(String(cause));
        results.failures.push({ measure: measure.name, system: contender.system, error });
        results.forget(contender.system, measure.rows);
        contenders.delete(contender);
        bench.progress(`${measure.name}: ${contender.system} failed: ${error.message}`);
      }
    }
  }
}

function keyOf({ system, row }: CellName): string {
  return `${system}/${row}`;
}
