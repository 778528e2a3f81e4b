// A SQLite file of its own, gone after the test.
import { stores } from "./stores.js";

const [, sqlite] = stores;

/** The URL of a file that nobody has used. */
export async function freshUrl(): Promise<string> {
  if (sqlite === undefined) throw new Error("There is no store in a file.");
  return sqlite.freshUrl();
}
