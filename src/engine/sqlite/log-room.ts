/**
 * Room in the write-ahead log. A commit that makes the file longer waits for the file system to note its new length,
 * which takes about as long as the commit itself. So the log is made longer ahead of time, many commits at once. What
 * lies behind the last commit is nothing to SQLite, which looks at checksums.
 */
import { closeSync, fdatasync, fstatSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { type Connection, walBytesMax } from "./driver.js";

/** A log that ends at a multiple of this has room, and one that ends elsewhere has outgrown it. */
const roomBytes = 1024 * 1024;

/**
 * After how many commits the length is looked at again. A look makes the next sync slower, as it seems because Linux from 6.13
 * on then notes the time of the next write in full.
 */
const lookEvery = 16;

const nothing = new Uint8Array(roomBytes);

export class LogRoom {
  readonly #path: string;
  #file: number | null = null;
  #commits = 0;
  #hasGivenUp = false;

  /** `path` is that of the store. */
  constructor(path: string) {
    this.#path = `${path}-wal`;
  }

  /**
   * Makes room if there is none, after a commit and outside of transactions. It is for speed alone: whatever stands against
   * it, a full disk or somebody who holds the file for long, is met once.
   */
  keep(connection: Connection): void {
    if (this.#hasGivenUp || this.#commits++ % lookEvery > 0) return;
    try {
      this.#file ??= openSync(this.#path, "r+");
      const file = this.#file;
      if (!needsRoom(file)) return;
      // Nobody else writes to the log meanwhile, nor begins it anew.
      connection.exec("BEGIN IMMEDIATE");
      try {
        fill(file);
      } finally {
        connection.exec("ROLLBACK");
      }
      fdatasync(file, () => {});
    } catch {
      this.#hasGivenUp = true;
    }
  }

  close(): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }
}

function needsRoom(file: number): boolean {
  const { size } = fstatSync(file);
  return size % roomBytes > 0 && size < walBytesMax;
}

function fill(file: number): void {
  const { size } = fstatSync(file);
  const missing = roomBytes - (size % roomBytes);
  try {
    for (let written = 0; written < missing; )
      written += writeSync(file, nothing, 0, missing - written, size + written);
  } catch (error) {
    ftruncateSync(file, size);
    throw error;
  }
}
