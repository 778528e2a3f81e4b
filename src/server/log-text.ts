/**
 * A line of the log for people who look at a terminal: time, level, message, then the fields.
 */
import type colours from "picocolors";

/** How lines are coloured, or left as they are. */
export type Colours = ReturnType<typeof colours.createColors>;

/** The parts of a line that have a place of their own. */
interface LogLine {
  readonly time?: string;
  readonly level?: string;
  readonly message?: string;
}

/** Where the time of day begins and ends in an ISO time. */
const timeOfDay = [11, 23] as const;

const levelWidth = 5;

/** One line of JSON as text, with a stack below it if it has one. */
export function lineText(json: string, paint: Colours): string {
  const {
    time = "",
    level = "info",
    message = "",
    ...fields
  } = JSON.parse(json) as LogLine & Record<string, unknown>;
  const stacks: string[] = [];
  const shown = Object.entries(fields).map(([name, value]) => {
    const { text, stack } = fieldText(value);
    if (stack !== null) stacks.push(stack);
    return `${paint.dim(`${name}=`)}${text}`;
  });
  const head = [
    paint.dim(time.slice(...timeOfDay)),
    levelColour(level, paint)(level.toUpperCase().padEnd(levelWidth)),
    printable(message),
    ...shown,
  ];
  return [head.join(" "), ...stacks.map((stack) => paint.dim(stack))].join("\n");
}

function levelColour(level: string, paint: Colours): (text: string) => string {
  if (level === "error" || level === "fatal") return paint.red;
  if (level === "debug") return paint.dim;
  return level === "warn" ? paint.yellow : paint.cyan;
}

/** A field's value; of an error its message, and its stack apart. */
function fieldText(value: unknown): { readonly text: string; readonly stack: string | null } {
  if (typeof value === "object" && value !== null && "stack" in value && "message" in value) {
    const { message, stack } = value;
    return { text: quoted(String(message)), stack: indented(String(stack)) };
  }
  return { text: quoted(typeof value === "string" ? value : JSON.stringify(value)), stack: null };
}

/** A text that is plainly one word stays as it is. */
function quoted(text: string): string {
  return /^[\w.:/@+-]+$/.test(text) ? text : JSON.stringify(printable(text));
}

function indented(stack: string): string {
  return stack
    .split("\n")
    .map((line) => `    ${printable(line)}`)
    .join("\n");
}

/** What comes from outside must not steer the terminal. */
function printable(text: string): string {
  return text.replaceAll(/\p{Cc}/gu, " ");
}
