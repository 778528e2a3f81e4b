/**
 * How a worker is connected, as the settings say.
 */
import { given as defined } from "../client/reads.js";
import type { Logger } from "../engine/logger.js";
import type { ConnectOptions } from "../service/connect.js";
import { encryptionKeys } from "./encryption-options.js";
import type { Session } from "./session.js";
import { numberValue, settingValue } from "./settings.js";
import { signingOptions } from "./signing-options.js";

/** The options of `connect`, but for the store. */
export function workerOptions({ given }: Session, logger: Logger): ConnectOptions {
  const keys = encryptionKeys(given);
  return {
    logger,
    ...(keys && { encryption: { keys } }),
    ...defined({
      instance: settingValue(given, "instance"),
      concurrency: numberValue(given, "concurrency"),
      graceMs: numberValue(given, "graceMs"),
      auditRetentionMs: numberValue(given, "auditRetentionMs"),
      acceptMigration: settingValue(given, "acceptMigration"),
      signing: signingOptions(given, true),
    }),
  };
}
