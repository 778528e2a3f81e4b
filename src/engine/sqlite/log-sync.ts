/**
 * Syncing the write-ahead log after the commit instead of inside it. A commit that syncs holds the file until the disk has
 * answered, and only then can others see what it wrote. For a single create that nothing else follows it is better the
 * other way round: a worker in another process wakes up and claims the job while the disk still works, and its own commit,
 * which lies behind this one in the log, waits for both.
 */
import { closeSync, fdatasyncSync, openSync } from "node:fs";
import { FaultError } from "./faults.js";

export class LogSync {
  readonly #path: string;
  readonly #file: number;

  /** `path` is that of the store, which is open, so that there is a log. */
  constructor(path: string) {
    this.#path = path;
    this.#file = openSync(`${path}-wal`, "r+");
  }

  /** Returns when everything that was committed is on disk. */
  sync(): void {
    try {
      fdatasyncSync(this.#file);
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      const message = `The disk did not take what was written to ${this.#path}, so that it may be lost. Check the disk, then connect again.`;
      throw new FaultError({ kind: "failed", code, message });
    }
  }

  close(): void {
    closeSync(this.#file);
  }
}
