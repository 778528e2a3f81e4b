/**
 * The version of this package, for others to see which one a process runs.
 */
import { createRequire } from "node:module";

/** The version that `package.json` names. */
export function packageVersion(): string {
  const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };
  return version;
}
