/**
 * The log of a server or a command: lines of JSON on the standard error, or text where somebody looks at a terminal.
 * Everything passes `redact.ts` on its way.
 */
import colours from "picocolors";
import { type DestinationStream, pino, stdTimeFunctions } from "pino";
import type { Logger } from "../engine/logger.js";
import { lineText } from "./log-text.js";
import { redactFields, redactText } from "./redact.js";

/** From which level on lines are written. */
export const logLevels = ["debug", "info", "warn", "error", "silent"] as const;

export type LogLevel = (typeof logLevels)[number];

/** Where lines go: the standard error, unless a test or an embedding process says otherwise. */
export interface LogDestination {
  write(line: string): unknown;
  readonly isTTY?: boolean;
}

/** How a log is made. */
export interface LogOptions {
  /** `info` by default. */
  readonly level?: LogLevel;
  /** Text on a terminal and JSON elsewhere by default. */
  readonly format?: "json" | "text";
  readonly destination?: LogDestination;
  /** What every line says, such as the instance. */
  readonly fields?: object;
}

/**
 * Makes a log.
 *
 * @example
 * const logger = createLog({ level: "warn" });
 * logger.info({ port: 8080 }, "The server listens.");
 */
export function createLog(options: LogOptions = {}): Required<Logger> {
  const { level = "info", destination = process.stderr, fields = {} } = options;
  const format = options.format ?? (destination.isTTY ? "text" : "json");
  const log = pino(
    {
      level,
      base: redactFields(fields),
      messageKey: "message",
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    format === "text" ? textTo(destination) : { write: (line) => void destination.write(line) },
  );
  const writer =
    (name: "debug" | "info" | "warn" | "error") => (given: object, message: string) => {
      if (log.isLevelEnabled(name)) log[name](redactFields(given), redactText(message));
    };
  return {
    debug: writer("debug"),
    info: writer("info"),
    warn: writer("warn"),
    error: writer("error"),
  };
}

function textTo(destination: LogDestination): DestinationStream {
  const paint = colours.createColors(destination.isTTY === true && colours.isColorSupported);
  return { write: (line) => void destination.write(`${lineText(line, paint)}\n`) };
}
