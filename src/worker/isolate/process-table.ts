/**
 * The processes of this machine, as far as the system tells of them: Linux does, in `/proc`.
 */
import { readdirSync, readFileSync } from "node:fs";

/** Every process of the machine; none where the system does not tell. */
export function processIds(): readonly string[] {
  try {
    return readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  } catch {
    return [];
  }
}

/** The process group of a process, and whether it still runs: one that has ended may wait for its parent to notice. */
export function standingOf(
  pid: string,
): { readonly group: number; readonly hasEnded: boolean } | null {
  const stat = readOf(`/proc/${pid}/stat`);
  // State, parent and group come after the name, which may hold anything.
  const [state, , group] = stat.slice(stat.lastIndexOf(")") + 2).split(" ", 3);
  if (group === undefined) return null;
  return { group: Number(group), hasEnded: state === "Z" || state === "X" };
}

/** What stands in a file of the table. Processes come and go while they are looked at. */
export function readOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** Whether a process of a group still runs. Where the system does not tell, one that has only not been noticed counts, too. */
export function isGroupRunning(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch {
    return false;
  }
  const ids = processIds();
  return (
    ids.length === 0 ||
    ids.some((pid) => {
      const standing = standingOf(pid);
      return standing?.group === group && !standing.hasEnded;
    })
  );
}
