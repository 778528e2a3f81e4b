// The temporary folder of a run, and everything that must be undone when the run ends or is stopped.
import { mkdtempSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Undoes one thing. May be called when that thing has ended by itself already. */
export type Undo = () => void | Promise<void>;

const memoryFileSystem = 0x01021994;

/** Owns a run's temporary files and long-lived things. */
export class Workspace {
  readonly folder = mkdtempSync(join(tmpdir(), "millrace-bench-"));
  readonly #undos = new Set<Undo>();
  #closing: Promise<void> | undefined;

  constructor() {
    // The last resort when the process ends without `close`, such as on an uncaught error.
    process.once("exit", () => this.#removeFolder());
  }

  /** Whether the folder lies in memory, where an fsync costs nothing and comparisons mislead. */
  get isInMemory(): boolean {
    return statfsSync(this.folder).type === memoryFileSystem;
  }

  /** Remembers to undo something at the latest when the run ends. Gives the way to do it earlier. */
  undoAtEnd(undo: Undo): () => Promise<void> {
    this.#undos.add(undo);
    return async () => {
      if (this.#undos.delete(undo)) await undo();
    };
  }

  /** Makes a fresh folder that stays until the run ends. */
  keptFolder(): string {
    return mkdtempSync(join(this.folder, "part-"));
  }

  /** Does something in a fresh folder and removes the folder afterwards. */
  async inFreshFolder<Value>(work: (folder: string) => Promise<Value>): Promise<Value> {
    const folder = this.keptFolder();
    try {
      return await work(folder);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** Undoes everything, newest first, and removes the folder. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#undoAll().finally(() => this.#removeFolder());
    return this.#closing;
  }

  async #undoAll(): Promise<void> {
    for (const undo of [...this.#undos].reverse()) await undo();
    this.#undos.clear();
  }

  #removeFolder(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
