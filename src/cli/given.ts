/**
 * Options that were given, without those that were not.
 */

/** The members that are there; `undefined` is not. */
type Defined<Members> = { [Name in keyof Members]?: Exclude<Members[Name], undefined> };

/** Leaves out what is undefined, because an option that is undefined is not the same as none. */
export function given<Members extends object>(members: Members): Defined<Members> {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as Defined<Members>;
}
