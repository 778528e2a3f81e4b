/**
 * The log of the long-running commands.
 */
import { createLog, type LogLevel, logLevels } from "../server/log.js";
import { Failure } from "./failure.js";
import type { Session } from "./session.js";
import { settingValue } from "./settings.js";

/** The log at the level that the settings name. */
export function loggerOf(session: Session, levelDefault: LogLevel = "info") {
  const level = settingValue(session.given, "logLevel") ?? levelDefault;
  const known = logLevels.find((name) => name === level);
  if (known !== undefined) return createLog({ level: known });
  throw new Failure("usage", `"${level}" is no log level; there are ${logLevels.join(", ")}.`);
}
