/**
 * Ids of events that the store writes itself: a random start, and then they count.
 */
import { randomBytes } from "node:crypto";

/** Makes a source of ids that no other source gives. */
export function createEventIds(): () => string {
  const start = randomBytes(9)
    .toString("base64url")
    .replaceAll(/[^A-Za-z0-9]/g, "0");
  let count = 0;
  return () => `${start}${(count++).toString(36)}`;
}
