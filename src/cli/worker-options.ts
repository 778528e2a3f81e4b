/**
 * How a worker is connected, as the settings say.
 */
import type { Logger } from "../engine/logger.js";
import type { ConnectOptions } from "../service/connect.js";
import { Failure, messageOf } from "./failure.js";
import type { Session } from "./session.js";
import { settingValue } from "./settings.js";
import { durationMs, wholeNumber } from "./values.js";

const concurrencyMax = 10_000;

/** The options of `connect`, but for the store. */
export function workerOptions({ given }: Session, logger: Logger): ConnectOptions {
  const instance = settingValue(given, "instance");
  const concurrency = parsed(
    "concurrency",
    settingValue(given, "concurrency"),
    wholeNumber(1, concurrencyMax),
  );
  const graceMs = parsed("grace", settingValue(given, "graceMs"), durationMs);
  const acceptMigration = settingValue(given, "acceptMigration");
  return {
    logger,
    ...(instance !== undefined && { instance }),
    ...(concurrency !== undefined && { concurrency }),
    ...(graceMs !== undefined && { graceMs }),
    ...(acceptMigration !== undefined && { acceptMigration }),
  };
}

function parsed(
  name: string,
  text: string | undefined,
  parse: (text: string) => number,
): number | undefined {
  if (text === undefined) return undefined;
  try {
    return parse(text);
  } catch (error) {
    throw new Failure("usage", `${name} is ${text}. ${messageOf(error)}`);
  }
}
