/**
 * What a running command has at hand: its output, its settings, the way to the API, and the wish to stop.
 */
import type { Api } from "./api.js";
import { readContexts } from "./contexts.js";
import { Failure, interrupted } from "./failure.js";
import { openApi } from "./open.js";
import { type Format, Output } from "./output.js";
import { type Given, gather } from "./settings.js";
import { type Target, targetOf } from "./target.js";

/** Options that every command has, beside its settings. */
export interface CommonOptions {
  readonly json?: boolean;
  readonly ndjson?: boolean;
  readonly yes?: boolean;
}

export class Session {
  readonly output: Output;
  readonly given: Given;
  /** Aborts when the process is told to stop. */
  readonly signal: AbortSignal;
  readonly #options: CommonOptions;
  #api: Promise<Api> | null = null;

  constructor(options: CommonOptions & Readonly<Record<string, unknown>>, signal: AbortSignal) {
    this.#options = options;
    this.signal = signal;
    this.output = outputOf(options);
    this.given = gather(options, process.env);
  }

  /** Where this command goes. */
  target(): Target {
    return targetOf(this.given, readContexts);
  }

  /** The store that a command needs to work on directly. */
  storeUrl(purpose: string): string {
    const target = this.target();
    if (target.kind === "store") return target.url;
    throw new Failure("usage", `${purpose} works on a store itself; name it with --url.`);
  }

  /** The API of the server or store. */
  api(): Promise<Api> {
    this.#api ??= openApi(this.target(), this.given);
    return this.#api;
  }

  /** Lets go of what was opened. */
  async close(): Promise<void> {
    const api = await this.#api?.catch(() => null);
    await api?.close();
  }

  /** Asks before something is destroyed. Without a terminal the answer has to be given before, by `--yes`. */
  async confirm(question: string): Promise<void> {
    if (this.#options.yes) return;
    if (!process.stdin.isTTY || !process.stderr.isTTY)
      throw new Failure("usage", `${question} Say so with --yes; there is no terminal to ask on.`);
    const { confirm, isCancel } = await import("@clack/prompts");
    const answer = await confirm({
      message: question,
      initialValue: false,
      output: process.stderr,
      signal: this.signal,
    });
    if (isCancel(answer)) throw interrupted();
    if (!answer) throw new Failure("failure", "Nothing was done.");
  }
}

/** How a command prints; `--ndjson` includes `--json`. */
export function outputOf(options: CommonOptions & { readonly color?: unknown }): Output {
  const format: Format = options.ndjson ? "ndjson" : options.json ? "json" : "text";
  const color = options.color !== false && !process.env.NO_COLOR;
  return new Output({ stdout: process.stdout, stderr: process.stderr, format, color });
}
