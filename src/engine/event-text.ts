/**
 * Events as the text that a stream holds: which names a subject may carry, and which event a text is.
 */
import type { JobEvent } from "../core/event.js";

/** An event as text, under the subject that it was published to. */
export interface EventText {
  readonly subject: string;
  readonly body: string;
}

const plain = /^[A-Za-z0-9_:-]+$/;

/** A name as one token of a subject. Whatever a subject cannot hold is written as `=` and two digits. */
export function tokenOf(name: string): string {
  if (plain.test(name)) return name;
  if (name === "") return "=";
  let token = "";
  for (const byte of new TextEncoder().encode(name)) {
    const character = String.fromCharCode(byte);
    token += plain.test(character)
      ? character
      : `=${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return token;
}

/** The name under which a message goes that holds no event. No fold knows it. */
export const unreadable = "unreadable";

/**
 * The event that a message holds. Users may only publish under their own names, so that an event counts only where
 * its subject names it; whatever else lies in the log is given as an event that no fold knows.
 */
export function eventOf({ subject, body }: EventText): JobEvent {
  const event = parsedEvent(body);
  if (event !== null && names(subject, event)) return event;
  const [, , service, type, jobId] = subject.split(".");
  return { name: unreadable, service, type, jobId } as unknown as JobEvent;
}

function parsedEvent(body: string): JobEvent | null {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null ? (value as JobEvent) : null;
  } catch {
    return null;
  }
}

/** Whether a subject is that of an event, or of a ticket that the event is. */
function names(subject: string, { service, type, jobId, name }: JobEvent): boolean {
  if (typeof service !== "string" || typeof type !== "string" || typeof jobId !== "string")
    return false;
  if (typeof name !== "string") return false;
  let at = subject.indexOf(".", subject.indexOf(".") + 1);
  at = after(subject, at, tokenOf(service));
  at = after(subject, at, tokenOf(type));
  at = after(subject, at, tokenOf(jobId));
  return after(subject, at, name) >= 0;
}

/** Where a subject goes on after a text that stands between two dots, or behind the last; -1 if it does not. */
function after(subject: string, at: number, text: string): number {
  const end = at + 1 + text.length;
  if (at < 0 || subject[at] !== "." || !subject.startsWith(text, at + 1)) return -1;
  return end === subject.length || subject[end] === "." ? end : -1;
}
