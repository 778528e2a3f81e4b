/**
 * The log of the long-running commands: lines on stderr.
 */
import { pino } from "pino";
import { Failure } from "./failure.js";
import type { Session } from "./session.js";
import { settings, settingValue } from "./settings.js";

const logLevels = ["debug", "info", "warn", "error", "silent"] as const;

/** The log at the level that the settings name. */
export function loggerOf(session: Session, levelDefault: string = settings.logLevel.default) {
  const level = settingValue(session.given, "logLevel") ?? levelDefault;
  if (!(logLevels as readonly string[]).includes(level))
    throw new Failure("usage", `"${level}" is no log level; there are ${logLevels.join(", ")}.`);
  const destination = pino.destination({ fd: process.stderr.fd, sync: true });
  return pino({ level, base: null, serializers: { error: pino.stdSerializers.err } }, destination);
}
