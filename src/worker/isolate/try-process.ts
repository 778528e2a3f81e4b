/**
 * An operating-system process for one try: it leads a process group of its own, lives in a folder of its own, sees only
 * the environment that its type allows, and leaves nothing behind.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex, Readable, Writable } from "node:stream";
import type { IsolateSettings } from "../../contract/isolate.js";
import { type Clock, systemClock } from "../../engine/clock.js";
import type { Logger } from "../../engine/logger.js";
import type { Cause, Ending } from "./ending.js";
import { Output } from "./output.js";
import { isGroupRunning } from "./process-table.js";
import { channelDescriptor, folderVariable } from "./protocol.js";
import type { Warden } from "./warden.js";

/** How long the pipes of a process that has ended may stay open in hands that cannot be reached. */
const pipesOpenMaxMs = 1_000;

/** How long the processes that it has started may take to end once its work is done, and how often that is looked at. */
const lingerMaxMs = 200;
const lookMs = 20;

const bytesPerMb = 1024 * 1024;

/** The variables that every process sees. */
const commonEnvironment = ["PATH", "LANG", "LC_ALL", "TZ"] as const;

/** The system's shell, which sets limits that Node cannot set before it becomes the program. */
const shell = "/bin/sh";

/** What the processes of a worker share. */
export interface ProcessSurroundings {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly warden: Warden;
}

/** What is to run. */
export interface ProcessPlan {
  readonly command: readonly string[];
  readonly folder: string;
  readonly settings: IsolateSettings;
  /** Where the process begins; its own folder by default. */
  readonly startsIn?: string;
  /** `channel`: it speaks with its worker, and all that it prints is output. `pipes`: stdin and stdout are the worker's. */
  readonly speaks: "channel" | "pipes";
}

/** Makes the folder of a try. */
export function makeFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), "millrace-try-"));
}

/** Removes the folder of a try. */
export function removeFolder(folder: string): Promise<void> {
  return rm(folder, { recursive: true, force: true });
}

export class TryProcess {
  /** Resolves when the process and everything that it started and made is gone. */
  readonly ended: Promise<Ending>;
  readonly output: Output;
  readonly #child: ChildProcess;
  readonly #plan: ProcessPlan;
  readonly #surroundings: ProcessSurroundings;
  #cause: Cause | null = null;
  #isOver = false;

  constructor(plan: ProcessPlan, surroundings: ProcessSurroundings) {
    const { folder, settings, speaks } = plan;
    const bytesMax = settings.outputBytesMax;
    this.#plan = plan;
    this.#surroundings = surroundings;
    this.output = new Output(bytesMax, () => this.kill({ kind: "output", bytesMax }));
    const isChannel = speaks === "channel";
    this.#child = spawn(shell, ["-c", limitScript(settings), shell, ...plan.command], {
      cwd: plan.startsIn ?? folder,
      env: environment(settings, folder),
      detached: true,
      stdio: isChannel ? ["ignore", "pipe", "pipe", "pipe"] : ["pipe", "pipe", "pipe"],
    });
    if (this.#child.stderr) this.output.read(this.#child.stderr, "warn");
    if (isChannel && this.#child.stdout) this.output.read(this.#child.stdout, "info");
    if (this.#child.pid !== undefined) surroundings.warden.watch(this.#child.pid, folder);
    // A process that waits for a job must not keep the worker's own alive; whoever runs a job sees to that.
    for (const part of [this.#child, ...this.#child.stdio] as readonly (Referable | null)[])
      part?.unref?.();
    this.ended = this.#end();
  }

  get stdin(): Writable {
    return stream(this.#child.stdin);
  }

  get stdout(): Readable {
    return stream(this.#child.stdout);
  }

  get channel(): Duplex {
    return stream(this.#child.stdio[channelDescriptor]) as Duplex;
  }

  /** Limits the memory of the whole group from now on. */
  limitMemory(): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    this.#surroundings.warden.limit(pid, this.#plan.settings.memoryMb * bytesPerMb);
  }

  /** Asks every process of the group to stop. */
  interrupt(): void {
    this.#signal("SIGTERM");
  }

  /** Ends every process of the group. Only the first cause counts. */
  kill(cause: Cause): void {
    this.#cause ??= cause;
    this.#signal("SIGKILL");
  }

  /** Ends it, because nobody needs it any more. */
  discard(): void {
    this.kill({ kind: "done" });
  }

  /** Ends the process alone, whose work is done, so that it shows whether it has left others behind. */
  finish(): void {
    this.#cause ??= { kind: "done" };
    this.#child.kill("SIGKILL");
  }

  /** Whether there was anybody to hear it. */
  #signal(signal: "SIGTERM" | "SIGKILL"): boolean {
    const { pid } = this.#child;
    if (pid === undefined || this.#isOver) return false;
    try {
      return process.kill(-pid, signal);
    } catch {
      return false;
    }
  }

  async #end(): Promise<Ending> {
    const { warden } = this.#surroundings;
    const { pid } = this.#child;
    const closed = new Promise<void>((resolve) => this.#child.once("close", () => resolve()));
    const [code, signal] = await this.#exit();
    const leftOthers = await this.#leavesOthers();
    this.#signal("SIGKILL");
    // From now on the number of the group may be another's.
    this.#isOver = true;
    if (pid !== undefined) await this.#closedInTime(closed);
    await this.#removeFolder();
    const forgetting = pid === undefined ? null : warden.forget(pid);
    if (signal === "SIGKILL" && this.#cause === null) {
      const bytes = await forgetting;
      if (bytes !== null) this.#cause = { kind: "memory", bytes };
    }
    const { settings: limits } = this.#plan;
    const { tail, isHeapFull } = this.output;
    return { code, signal, leftOthers, limits, cause: this.#cause, tail, isHeapFull };
  }

  /**
   * Whether processes of the group still run although the work is done. What was asked to stop has a moment for that, and of
   * a group that was killed nobody wants to know.
   */
  async #leavesOthers(): Promise<boolean> {
    const { pid } = this.#child;
    const cause = this.#cause?.kind;
    if (pid === undefined || (cause !== undefined && cause !== "done")) return false;
    for (let waitedMs = 0; isGroupRunning(pid); waitedMs += lookMs) {
      if (waitedMs >= lingerMaxMs) return true;
      // Processes end in real time, whatever the clock of the service says.
      await new Promise<void>((resolve) => void systemClock.after(lookMs, resolve));
    }
    return false;
  }

  /** Something in the folder may be out of reach; the try has its outcome all the same. */
  async #removeFolder(): Promise<void> {
    const { folder } = this.#plan;
    try {
      await removeFolder(folder);
    } catch (error) {
      const fields = { folder, error };
      this.#surroundings.logger.warn(fields, "The folder of an isolated try cannot be removed.");
    }
  }

  #exit(): Promise<[number | null, NodeJS.Signals | null]> {
    const child = this.#child;
    return new Promise((resolve) => {
      child.once("exit", (code, signal) => resolve([code, signal]));
      child.on("error", ({ message }) => {
        if (child.pid !== undefined) return;
        this.#cause = { kind: "start", message };
        resolve([null, null]);
      });
    });
  }

  /** A process that has left the group may still hold the pipes, and nothing more is taken from it. */
  async #closedInTime(closed: Promise<void>): Promise<void> {
    const callOff = this.#surroundings.clock.after(pipesOpenMaxMs, () => {
      for (const pipe of this.#child.stdio) pipe?.destroy();
    });
    await closed;
    callOff();
  }
}

type Referable = { readonly unref?: () => void };

/** Every stream is there that the plan asked for, unless the system could not make it. */
function stream<Kind>(part: Kind | null | undefined): Kind {
  if (part === null || part === undefined)
    throw new Error("A process could not be started, because too many files are open.");
  return part;
}

/** Soft limits come first, so that the signal says which limit it was; nobody can ignore the hard one. */
function limitScript({ cpuSeconds }: IsolateSettings): string {
  const cpu =
    cpuSeconds === undefined
      ? ""
      : `ulimit -H -t ${cpuSeconds + 1} 2>/dev/null; ulimit -S -t ${cpuSeconds}; `;
  return `ulimit -c 0; ${cpu}exec "$@"`;
}

function environment(settings: IsolateSettings, folder: string): Record<string, string> {
  const seen: Record<string, string> = { HOME: folder, TMPDIR: folder };
  seen[folderVariable] = folder;
  for (const name of [...commonEnvironment, ...settings.environment]) {
    const value = process.env[name];
    if (value !== undefined) seen[name] = value;
  }
  return seen;
}
