/**
 * Leaving out what a request does not name.
 */

/** The members that are there. */
export function given<T extends object>(
  members: T,
): { [Name in keyof T]: Exclude<T[Name], undefined> } {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Name in keyof T]: Exclude<T[Name], undefined> };
}
