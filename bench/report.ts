// Shows what a run found out: one aligned table for people, and one row per number for programs.
import {
  type CellName,
  type EngineName,
  type Row,
  type SystemName,
  systemNames,
  type Target,
} from "./bench.js";
import type { Results } from "./run.js";

/** One number of a run, as `--json` writes it. */
export interface ReportRow {
  readonly engine: EngineName;
  readonly system: SystemName;
  readonly measure: string;
  readonly unit: string;
  readonly value: number;
  /** To the base of the measure, above 1 is better; `null` where there is none. */
  readonly ratio: number | null;
}

const peerNames = systemNames.filter((system) => system !== "millrace" && system !== "bare");
const columnGap = "  ";
const nothing = "–";

/** Every number of a run. */
export function reportRows(results: Results, engine: EngineName): ReportRow[] {
  return results.rows.flatMap((row) =>
    systemNames.flatMap((system) => {
      const cell = { system, row: row.name };
      const value = results.value(cell);
      if (value === undefined) return [];
      const ratio = row.base ? (results.ratio(row, cell, row.base) ?? null) : null;
      return [{ engine, system, measure: row.name, unit: row.unit, value, ratio }];
    }),
  );
}

/** The table, with Millrace's ratio to every other system behind that system's value. */
export function reportTable(results: Results, engine: EngineName): string {
  const others = systemNames.filter(
    (system) => system !== "millrace" && isMeasured(results, system),
  );
  const head = ["measure", "unit", "millrace", ...others.flatMap((system) => [system, "ratio"])];
  const lines = results.rows.map((row) => [
    row.name,
    row.unit,
    format(results.value({ system: "millrace", row: row.name })),
    ...others.flatMap((system) => comparison(results, row, system)),
    (row.targets[engine] ?? []).map((target) => verdict(results, row, target)).join("; "),
    row.shows,
  ]);
  return align([[...head, "target: reached", "shows"], ...lines], head.length);
}

function isMeasured(results: Results, system: SystemName): boolean {
  return results.rows.some((row) => results.value({ system, row: row.name }) !== undefined);
}

function comparison(results: Results, row: Row, system: SystemName): string[] {
  const ours: CellName = { system: "millrace", row: row.name };
  const theirs: CellName = { system, row: row.name };
  return [format(results.value(theirs)), format(results.ratio(row, ours, theirs))];
}

function verdict(results: Results, row: Row, target: Target): string {
  const ours: CellName = { system: "millrace", row: row.name };
  switch (target.kind) {
    case "share": {
      const reached = results.ratio(row, ours, target.of);
      const { system, row: otherRow } = target.of;
      const of =
        system === "millrace" ? otherRow : otherRow === row.name ? system : `${system} ${otherRow}`;
      return judge(`≥ ${target.atLeast} of ${of}`, reached, (value) => value >= target.atLeast);
    }
    case "best-peer": {
      const reached = peerNames
        .map((system) => results.ratio(row, ours, { system, row: row.name }))
        .filter((ratio) => ratio !== undefined);
      const lowest = reached.length > 0 ? Math.min(...reached) : undefined;
      return judge(
        `≥ ${target.atLeast} of the best peer`,
        lowest,
        (value) => value >= target.atLeast,
      );
    }
    case "below": {
      const reached = results.value(ours);
      return judge(`< ${target.limit}`, reached, (value) => value < target.limit);
    }
    case "above": {
      const reached = results.value(ours);
      return judge(`≥ ${target.limit}`, reached, (value) => value >= target.limit);
    }
  }
}

function judge(wish: string, reached: number | undefined, isMet: (value: number) => boolean) {
  if (reached === undefined) return `${wish}: not measured`;
  return `${wish}: ${format(reached)} ${isMet(reached) ? "yes" : "NO"}`;
}

function format(value: number | undefined): string {
  if (value === undefined) return nothing;
  const digits = value >= 1_000 ? 0 : value >= 100 ? 1 : 2;
  return value.toLocaleString("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** Numbers, which follow the first two columns up to `numbersEnd`, stand to the right. */
function align(lines: readonly (readonly string[])[], numbersEnd: number): string {
  const columns = lines[0]?.map((_, column) => column) ?? [];
  const widths = columns.map((column) =>
    Math.max(...lines.map((line) => (line[column] ?? "").length)),
  );
  return lines
    .map((line) =>
      line
        .map((text, column) => {
          const width = widths[column] ?? 0;
          return column >= 2 && column < numbersEnd ? text.padStart(width) : text.padEnd(width);
        })
        .join(columnGap)
        .trimEnd(),
    )
    .join("\n");
}
