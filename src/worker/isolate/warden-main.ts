/**
 * The warden: a small process beside a worker that outlives it for a moment. It ends the process groups that the worker
 * leaves behind and removes their folders, ends a group that holds more memory than it may, even while the worker is busy,
 * and ends what has left its group and outlives its try.
 */
import { rmSync } from "node:fs";
import { processIds, readOf, standingOf } from "./process-table.js";
import { folderVariable, Lines } from "./protocol.js";
import type { FromWarden, ToWarden } from "./warden-protocol.js";

/** How often processes are looked at while there is a reason to. */
const lookMs = 200;

const bytesPerKb = 1024;

/** Where a process's environment names its folder. */
const variable = new RegExp(`(?:^|\0)${folderVariable}=([^\0]+)`);

interface Group {
  readonly folder: string;
  memoryBytesMax: number;
  /** What it held when it was ended for that. */
  overBytes: number | null;
}

const groups = new Map<number, Group>();

/** The folders of tries that have ended: a process that still has one in its environment has left its group. */
const endedFolders = new Set<string | undefined>();
let looking: NodeJS.Timeout | undefined;

const lines = new Lines((line) => obey(JSON.parse(line) as ToWarden));
process.stdin.setEncoding("utf8");
process.stdin.on("data", (text: string) => lines.take(text));
process.stdin.on("close", endAll);
// The worker may be gone before it has read the last answer.
process.stdout.on("error", () => {});

function obey(message: ToWarden): void {
  const { group } = message;
  switch (message.say) {
    case "watch":
      groups.set(group, {
        folder: message.folder,
        memoryBytesMax: Number.POSITIVE_INFINITY,
        overBytes: null,
      });
      return;
    case "limit": {
      const watched = groups.get(group);
      if (watched !== undefined) watched.memoryBytesMax = message.memoryBytesMax;
      looking ??= setInterval(look, lookMs);
      return;
    }
    case "forget": {
      const answer: FromWarden = { group, overBytes: groups.get(group)?.overBytes ?? null };
      process.stdout.write(`${JSON.stringify(answer)}\n`);
      const watched = groups.get(group);
      if (watched !== undefined) endedFolders.add(watched.folder);
      groups.delete(group);
      looking ??= setInterval(look, lookMs);
      return;
    }
  }
}

/** Ends groups that hold too much, and what has left its group and outlived its try. */
function look(): void {
  const held = limitedGroups();
  if (held.size === 0 && endedFolders.size === 0) {
    clearInterval(looking);
    looking = undefined;
    return;
  }
  for (const pid of processIds()) {
    if (endedFolders.has(folderOf(pid))) end(Number(pid));
    const group = held.size === 0 ? null : (standingOf(pid)?.group ?? null);
    const sum = group === null ? undefined : held.get(group);
    if (group !== null && sum !== undefined) held.set(group, sum + memoryOf(pid));
  }
  endedFolders.clear();
  for (const [group, bytes] of held) {
    const watched = groups.get(group);
    if (watched === undefined || bytes <= watched.memoryBytesMax) continue;
    watched.overBytes = bytes;
    end(-group);
  }
}

/** The groups whose memory counts, each with nothing so far. */
function limitedGroups(): Map<number, number> {
  const held = new Map<number, number>();
  for (const [group, { memoryBytesMax, overBytes }] of groups) {
    if (Number.isFinite(memoryBytesMax) && overBytes === null) held.set(group, 0);
  }
  return held;
}

/** The folder of the try that a process was started for, or nothing. */
function folderOf(pid: string): string | undefined {
  return variable.exec(readOf(`/proc/${pid}/environ`))?.[1];
}

/** What a process holds of its own: programs and libraries, which many share, do not count. */
function memoryOf(pid: string): number {
  const status = readOf(`/proc/${pid}/status`);
  let bytes = 0;
  for (const [, kb] of status.matchAll(/^Rss(?:Anon|Shmem):\s*(\d+) kB$/gm)) {
    bytes += Number(kb) * bytesPerKb;
  }
  return bytes;
}

/** Ends a process or, with a negative number, a group. */
function end(number: number): void {
  try {
    process.kill(number, "SIGKILL");
  } catch {
    // Nothing of it is left.
  }
}

function endAll(): void {
  for (const [group, { folder }] of groups) {
    end(-group);
    endedFolders.add(folder);
  }
  for (const pid of processIds()) if (endedFolders.has(folderOf(pid))) end(Number(pid));
  for (const { folder } of groups.values()) rmSync(folder, { recursive: true, force: true });
  process.exit(0);
}
