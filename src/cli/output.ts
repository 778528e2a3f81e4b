/**
 * What a command prints. Data goes to stdout, everything else to stderr, so that a pipe gets data and nothing else.
 */
import type { WriteStream } from "node:tty";
import { type Colors, colorsIf } from "./colors.js";
import { type Column, tableText, withoutEscapes } from "./table.js";

/** In which form data is printed. */
export type Format = "text" | "json" | "ndjson";

/** How a command prints. */
export interface OutputOptions {
  readonly stdout: WriteStream;
  readonly stderr: WriteStream;
  readonly format: Format;
  /** Whether colours are wanted at all; without a terminal there are none. */
  readonly color: boolean;
}

/** How wide a terminal is that does not say. */
const columnsDefault = 80;

export class Output {
  readonly format: Format;
  /** Whether a person reads stdout, and whether one reads stderr. */
  readonly isTerminal: boolean;
  readonly isWatched: boolean;
  /** Colours for stdout. */
  readonly colors: Colors;
  readonly #stdout: WriteStream;
  readonly #stderr: WriteStream;
  readonly #errorColors: Colors;
  #hasProgress = false;

  constructor({ stdout, stderr, format, color }: OutputOptions) {
    const isDumb = process.env.TERM === "dumb";
    this.#stdout = stdout;
    this.#stderr = stderr;
    this.format = format;
    this.isTerminal = stdout.isTTY === true;
    this.isWatched = stderr.isTTY === true && !isDumb;
    this.colors = colorsIf(color && this.isTerminal && !isDumb);
    this.#errorColors = colorsIf(color && this.isWatched);
  }

  /** How many characters fit into a line; no limit where no person reads. */
  get columns(): number {
    return this.isTerminal ? (this.#stdout.columns ?? columnsDefault) : Number.POSITIVE_INFINITY;
  }

  /** One piece of data: JSON when that was asked for, otherwise what `text` gives. */
  document(value: unknown, text: () => string): void {
    if (this.format === "text") this.line(text());
    else this.line(JSON.stringify(value, null, this.format === "json" ? 2 : undefined));
  }

  /** One entry of a stream: a line of JSON unless text was asked for. */
  entry(value: unknown, text: () => string): void {
    this.line(this.format === "text" ? text() : JSON.stringify(value));
  }

  /** A list: one document, a line of JSON for each entry, or a table. */
  list<Row>(document: { readonly entries: readonly Row[] }, columns: readonly Column<Row>[]): void {
    if (this.format === "ndjson") {
      for (const row of document.entries) this.line(JSON.stringify(row));
    } else if (this.format === "json") {
      this.line(JSON.stringify(document, null, 2));
    } else if (document.entries.length === 0) {
      this.note("There are none.");
    } else {
      this.line(this.table(document.entries, columns));
    }
  }

  /** Rows as a table that fits the terminal. */
  table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
    return tableText(rows, columns, { width: this.columns, colors: this.colors });
  }

  line(text: string): void {
    this.#clearProgress();
    this.#stdout.write(`${text}\n`);
  }

  /** Something for the person at the terminal. */
  note(text: string): void {
    this.#clearProgress();
    this.#stderr.write(`${text}\n`);
  }

  /** What went wrong, as a sentence or, where JSON was asked for, as the API's error. */
  problem(message: string, told: { readonly code: string; readonly details?: object }): void {
    if (this.format !== "text") this.note(JSON.stringify({ error: { ...told, message } }));
    else this.note(`${this.#errorColors.red("error:")} ${withoutEscapes(message)}`);
  }

  /** How far long work has come: a line that is drawn over, on a terminal only. */
  progress(text: string): void {
    if (!this.isWatched || this.format !== "text") return;
    const width = Math.max((this.#stderr.columns ?? columnsDefault) - 1, 1);
    this.#stderr.write(`\r\u001b[2K${text.slice(0, width)}`);
    this.#hasProgress = true;
  }

  #clearProgress(): void {
    if (this.#hasProgress) this.#stderr.write("\r\u001b[2K");
    this.#hasProgress = false;
  }
}
