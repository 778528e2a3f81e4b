/**
 * Tables without lines, sized to the terminal. What does not fit is cut; ids and numbers never are.
 */
import Table from "cli-table3";
import type { Colors } from "./colors.js";

/** One column of a table. */
export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string | number | undefined;
  /** Its text may be cut where the terminal is narrow. */
  readonly cuts?: true;
  readonly paint?: (text: string, row: Row, colors: Colors) => string;
}

const gap = 2;
const cutWidthMin = 6;

const noLines = Object.fromEntries(
  [
    ...["top", "top-mid", "top-left", "top-right", "bottom", "bottom-mid", "bottom-left"],
    ...["bottom-right", "left", "left-mid", "mid", "mid-mid", "right", "right-mid", "middle"],
  ].map((name) => [name, ""]),
);

/** Draws a table. Columns in which no row has anything are left out. */
export function tableText<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  { width, colors }: { readonly width: number; readonly colors: Colors },
): string {
  const shown = columns
    .map((column) => ({ column, texts: rows.map((row) => oneLine(column.value(row))) }))
    .filter(({ texts }) => texts.some((text) => text !== ""));
  const widths = fittingWidths(
    shown.map(({ column, texts }) => ({
      needed: Math.max(column.title.length, ...texts.map((text) => text.length)) + gap,
      cuts: column.cuts === true,
    })),
    width,
  );
  const table = new Table({
    head: shown.map(({ column }) => colors.bold(column.title.toUpperCase())),
    chars: noLines,
    colWidths: widths,
    style: { "padding-left": 0, "padding-right": gap, head: [], border: [], compact: true },
  });
  for (const [index, row] of rows.entries()) {
    table.push(
      shown.map(({ column, texts }) => {
        const text = texts[index] ?? "";
        return column.paint ? column.paint(text, row, colors) : text;
      }),
    );
  }
  return table
    .toString()
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n");
}

/** Takes away from the columns that may be cut, the widest first, until the line fits. */
function fittingWidths(
  columns: readonly { readonly needed: number; readonly cuts: boolean }[],
  width: number,
): number[] {
  const widths = columns.map(({ needed }) => needed);
  const sum = () => widths.reduce((total, one) => total + one, 0) - gap;
  const cuttable = columns.flatMap(({ cuts }, index) => (cuts ? [index] : []));
  while (sum() > width) {
    const widest = cuttable.reduce<number | undefined>((best, index) => {
      const own = widths[index] ?? 0;
      if (own <= cutWidthMin + gap) return best;
      return best === undefined || own > (widths[best] ?? 0) ? index : best;
    }, undefined);
    if (widest === undefined) break;
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
  return widths;
}

/** Text of others may hold line breaks and control characters, which would draw over the table. */
function oneLine(value: string | number | undefined): string {
  return value === undefined ? "" : withoutControls(String(value)).trim();
}

/** The same for text of several lines, whose breaks and tabs stay. */
export function withoutEscapes(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out.
  return text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]+/g, " ");
}

/** Text without the characters that move a terminal's cursor or change its colours. */
export function withoutControls(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out.
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
}
