/**
 * One event in words, for lists, views and timelines.
 */
import type { JobEvent } from "../core/event.js";
import { duration } from "./view/paint.js";

/** What an event says beyond its name. */
export function detailOf(event: JobEvent): string {
  switch (event.name) {
    case "created":
      return event.runAt > event.at ? `due in ${duration(event.runAt - event.at)}` : "";
    case "started":
      return `try ${event.tries}`;
    case "retry":
      return `${event.error.message} Next try in ${duration(event.runAt - event.at)}.`;
    case "dead":
    case "failed":
      return event.error.message;
    case "progress":
      return [event.progress.step, counted(event.progress)].filter(Boolean).join(", ");
    case "logged":
      return event.entries.map(({ message }) => message).join(" ");
    case "released":
      return event.reason ?? event.cause;
    case "cancelRequested":
    case "cancelled":
      return event.reason ?? "";
    case "skipped":
      return event.reason;
    case "expired":
      return "Its deadline has come.";
    case "completed":
      return event.result === undefined ? "" : JSON.stringify(event.result);
    default:
      return "";
  }
}

function counted({
  current,
  total,
}: {
  readonly current?: number;
  readonly total?: number;
}): string {
  return current === undefined || total === undefined ? "" : `${current} of ${total}`;
}
