/**
 * Times that come from outside, as RFC 3339 writes them. The platform alone reads them too kindly: it takes the 30th of
 * February for the 2nd of March.
 */

/** What a time looks like. Whether there is such a day is not told by it. */
export const timePattern =
  /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$/;

const dayLength = "2030-01-31".length;
const secondAt = "2030-01-31T12:00:".length;
const daySeconds = 24 * 60 * 60;

/** Whether a text begins with a day of the calendar, such as 2030-01-31. */
export function hasDay(text: string): boolean {
  const day = text.slice(0, dayLength);
  const at = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(at) && new Date(at).toISOString().startsWith(day);
}

/** The time that a text names, in milliseconds since 1970; `null` where it names none. */
export function timeOf(text: string): number | null {
  if (!timePattern.test(text) || !hasDay(text)) return null;
  const second = text.slice(secondAt, secondAt + 2);
  const isLeap = second === "60";
  const hour = text.slice(dayLength + 1, secondAt);
  const rest = text.slice(secondAt + 2).toUpperCase();
  const at = Date.parse(`${text.slice(0, dayLength)}T${hour}${isLeap ? "59" : second}${rest}`);
  if (!isLeap) return at;
  // A second is added to a day at its end, in UTC. Clocks of machines call it the first one of the next day.
  return Math.floor(at / 1_000) % daySeconds === daySeconds - 1 ? at + 1_000 : null;
}
