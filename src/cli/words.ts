/**
 * Jobs and times in words, for people.
 */
import type { JobState } from "../core/job.js";
import type { JobRowAnswer } from "./answers.js";
import type { Colors } from "./colors.js";
import type { Column } from "./table.js";
import { duration, stateColours } from "./view/paint.js";

/** A state in its colour. */
export function paintState(text: string, state: string, colors: Colors): string {
  const name = Object.hasOwn(stateColours, state) ? stateColours[state as JobState] : undefined;
  return name === undefined ? text : colors[name](text);
}

/** How long ago a time was, or how far ahead it is. */
export function ago(time: string | undefined, now = Date.now()): string {
  if (time === undefined) return "";
  const ms = now - Date.parse(time);
  return ms >= 0 ? `${span(ms)} ago` : `in ${span(-ms)}`;
}

/** A span of time in its largest unit. */
function span(ms: number): string {
  if (ms < 60_000) return duration(ms);
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** The columns of a list of jobs. */
export const jobColumns: readonly Column<JobRowAnswer>[] = [
  { title: "id", value: ({ id }) => id },
  { title: "service", value: ({ service }) => service },
  { title: "type", value: ({ type }) => type },
  {
    title: "state",
    value: ({ state, cancelRequested }) => (cancelRequested ? "cancelling" : state),
    paint: (text, { state }, colors) => paintState(text, state, colors),
  },
  { title: "tries", value: ({ tries, maxTries }) => `${tries}/${maxTries}` },
  { title: "created", value: ({ createdAt }) => ago(createdAt) },
  { title: "tags", value: ({ tags }) => tags.join(", "), cuts: true },
  { title: "detail", value: ({ detail }) => detail, cuts: true },
];

/** Names and values, one a line, the values in line. */
export function fields(
  pairs: readonly (readonly [name: string, value: string | number | undefined])[],
  colors: Colors,
): string {
  const told = pairs.filter(([, value]) => value !== undefined && value !== "");
  const width = Math.max(...told.map(([name]) => name.length)) + 2;
  return told.map(([name, value]) => `${colors.bold(name.padEnd(width))}${value}`).join("\n");
}
