/**
 * The warden: a small process beside a worker that outlives it for a moment. It ends the process groups that the worker
 * leaves behind, removes their folders, and ends a group that holds more memory than it may, even while the worker is busy.
 */
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { Lines } from "./protocol.js";
import type { FromWarden, ToWarden } from "./warden-protocol.js";

/** How often the memory of groups is looked at. */
const lookMs = 200;

const bytesPerKb = 1024;

interface Group {
  readonly folder: string;
  memoryBytesMax: number;
  /** What it held when it was ended for that. */
  overBytes: number | null;
}

const groups = new Map<number, Group>();
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
      groups.delete(group);
      return;
    }
  }
}

/** Adds up what every limited group holds, and ends those that hold too much. */
function look(): void {
  const held = new Map<number, number>();
  for (const [group, { memoryBytesMax, overBytes }] of groups) {
    if (Number.isFinite(memoryBytesMax) && overBytes === null) held.set(group, 0);
  }
  if (held.size === 0) {
    clearInterval(looking);
    looking = undefined;
    return;
  }
  for (const name of readdirSync("/proc")) {
    const group = /^\d/.test(name) ? groupOf(name) : null;
    const sum = group === null ? undefined : held.get(group);
    if (group !== null && sum !== undefined) held.set(group, sum + memoryOf(name));
  }
  for (const [group, bytes] of held) {
    const watched = groups.get(group);
    if (watched === undefined || bytes <= watched.memoryBytesMax) continue;
    watched.overBytes = bytes;
    end(group);
  }
}

/** The process group of a process: the third field after its name, which may hold anything. */
function groupOf(pid: string): number | null {
  const stat = read(`/proc/${pid}/stat`);
  const group = stat.slice(stat.lastIndexOf(")") + 2).split(" ", 3)[2];
  return group === undefined ? null : Number(group);
}

/** What a process holds of its own: programs and libraries, which many share, do not count. */
function memoryOf(pid: string): number {
  const status = read(`/proc/${pid}/status`);
  let bytes = 0;
  for (const [, kb] of status.matchAll(/^Rss(?:Anon|Shmem):\s*(\d+) kB$/gm)) {
    bytes += Number(kb) * bytesPerKb;
  }
  return bytes;
}

/** Processes come and go while they are looked at. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function end(group: number): void {
  try {
    process.kill(-group, "SIGKILL");
  } catch {
    // Nothing of it is left.
  }
}

function endAll(): void {
  for (const group of groups.keys()) end(group);
  for (const { folder } of groups.values()) rmSync(folder, { recursive: true, force: true });
  process.exit(0);
}
