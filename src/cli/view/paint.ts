/**
 * Colours and shapes for the terminal.
 */
import type { JobState } from "../../core/job.js";
import type { Colors } from "../colors.js";

/** The colours that are used. */
export type Colour = "bold" | "dim" | "red" | "green" | "yellow" | "blue" | "magenta" | "cyan";

/** Paints text. */
export type Paint = (colour: Colour, text: string) => string;

/** Paints with the colours that an output allows. */
export function paintWith(colors: Colors): Paint {
  return (colour, text) => colors[colour](text);
}

/** The colour of each state. */
export const stateColours: { readonly [State in JobState]: Colour } = {
  pending: "blue",
  blocked: "blue",
  active: "cyan",
  retry: "yellow",
  completed: "green",
  failed: "red",
  cancelled: "magenta",
  expired: "magenta",
  skipped: "dim",
  stale: "red",
  dead: "red",
  dismissed: "dim",
  unreachable: "red",
};

const eighths = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/** A bar that fills a share of a width, exact to an eighth of a character. */
export function bar(share: number, width: number): string {
  const filled = Math.round(Math.min(Math.max(share, 0), 1) * width * 8);
  const text = "█".repeat(Math.floor(filled / 8)) + (eighths[filled % 8] ?? "");
  return text === "" && share > 0 ? "▏" : text;
}

/** A number with separators, as people read it. */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** A duration in the unit that fits it. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  return `${(ms / 1_000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}
