/**
 * What a process prints: its lines go into the job's log, up to a limit, and the end of what it said on stderr is kept for
 * the error. More than the limit of the type ends the try.
 */
import type { Readable } from "node:stream";
import type { LogEntry } from "../../core/job.js";

/** How much of what a process prints goes into the job's log. */
const loggedLengthMax = 64 * 1024;

/** The longest line; what is longer becomes several. */
const lineLengthMax = 8_192;

/** How much of the end of stderr is kept. */
const tailLengthMax = 1_000;

/** What V8 says on stderr before it gives up. */
const heapIsFull = "heap out of memory";

/** Takes a line into a log. */
export type LogLine = (message: string, level: LogEntry["level"]) => unknown;

export class Output {
  readonly #bytesMax: number;
  readonly #onFlood: () => void;
  #bytes = 0;
  #loggedLength = 0;
  #tail = "";
  #isHeapFull = false;
  /** Lines that were printed before somebody took them: those of a process that waits for its job. */
  #early: Parameters<LogLine>[] = [];
  #log: LogLine = (...line) => this.#early.push(line);

  /** `onFlood` is called once more than `bytesMax` was printed. */
  constructor(bytesMax: number, onFlood: () => void) {
    this.#bytesMax = bytesMax;
    this.#onFlood = onFlood;
  }

  /** The end of what was said on stderr, or nothing. */
  get tail(): string {
    return this.#tail.trim();
  }

  /** Whether JavaScript's engine has said that its heap is full. */
  get isHeapFull(): boolean {
    return this.#isHeapFull;
  }

  /** Reads a stream to its end, line by line. */
  read(stream: Readable, level: LogEntry["level"]): void {
    let rest = "";
    stream.setEncoding("utf8");
    stream.on("data", (text: string) => {
      if (!this.#admits(text, level)) return;
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#line(line, level);
      for (; rest.length > lineLengthMax; rest = rest.slice(lineLengthMax))
        this.#line(rest.slice(0, lineLengthMax), level);
    });
    stream.on("close", () => {
      if (rest !== "") this.#line(rest, level);
    });
    stream.on("error", () => {});
  }

  /** Hands over the lines from now on, and those that have come before. */
  attach(log: LogLine): void {
    this.#log = log;
    for (const line of this.#early) log(...line);
    this.#early = [];
  }

  /** Counts what was printed. Nothing is admitted any more after a flood. */
  #admits(text: string, level: LogEntry["level"]): boolean {
    const isFlooded = this.#bytes > this.#bytesMax;
    this.#bytes += Buffer.byteLength(text);
    if (level !== "info") {
      this.#tail = (this.#tail + text).slice(-tailLengthMax);
      this.#isHeapFull ||= text.includes(heapIsFull);
    }
    if (!isFlooded && this.#bytes > this.#bytesMax) this.#onFlood();
    return !isFlooded;
  }

  #line(line: string, level: LogEntry["level"]): void {
    if (this.#loggedLength > loggedLengthMax) return;
    this.#loggedLength += line.length;
    if (this.#loggedLength > loggedLengthMax) {
      this.#log(`What it printed beyond ${loggedLengthMax} characters is left out.`, "warn");
    } else if (line !== "") this.#log(line, level);
  }
}
