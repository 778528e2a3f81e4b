/**
 * Starting a server as the settings say.
 */
import { once } from "node:events";
import { InvalidOption } from "../client/errors.js";
import { given as defined } from "../client/reads.js";
import type { Engine } from "../engine/engine.js";
import type { Logger } from "../engine/logger.js";
import { openEngine } from "../engine/open.js";
import { type RunningServer, startServer } from "../server/http/server.js";
import type { ServerOptions } from "../server/http/server-options.js";
import { encryptionKeys } from "./encryption-options.js";
import { Failure } from "./failure.js";
import { loggerOf } from "./logger.js";
import type { Session } from "./session.js";
import { type Given, isOn, numberValue, settingValue } from "./settings.js";
import { signingOptions } from "./signing-options.js";
import { storeFailure } from "./store-failure.js";

/** Serves a store until it is told to stop. */
export async function serveStore(session: Session): Promise<void> {
  const url = session.storeUrl("server");
  const logger = loggerOf(session);
  const engine = await openEngine(url, { logger }).catch((error: unknown) => {
    throw storeFailure(error);
  });
  try {
    const server = await serve(session, { engine, logger });
    session.output.document({ url: server.url, store: engine.url }, () => server.url);
    session.output.note(`Serving ${engine.url}, until Ctrl-C.`);
    if (!session.signal.aborted) await once(session.signal, "abort");
    await server.stop();
  } finally {
    await engine.close();
  }
}

/** Starts a server on an engine. */
export async function serve(
  { given }: Session,
  parts: { readonly engine: Engine; readonly logger: Logger; readonly bind?: string },
): Promise<RunningServer> {
  try {
    return await startServer({ ...serverOptions(given), ...parts });
  } catch (error) {
    throw error instanceof InvalidOption
      ? new Failure("usage", error.message)
      : storeFailure(error);
  }
}

function serverOptions(given: Given): ServerOptions {
  const allowAddresses = settingValue(given, "webhookAddresses")?.split(",");
  return {
    ...(allowAddresses && { webhooks: { allowAddresses } }),
    unsafeBind: isOn(given, "unsafeBind"),
    allowCreateDefault: isOn(given, "allowCreateDefault"),
    ...defined({
      bind: settingValue(given, "bind"),
      auth: authOf(settingValue(given, "auth")),
      tlsCert: settingValue(given, "tlsCert"),
      tlsKey: settingValue(given, "tlsKey"),
      tlsClientCa: settingValue(given, "tlsClientCa"),
      allowedHosts: settingValue(given, "allowHost")?.split(","),
      readTimeoutMs: numberValue(given, "readTimeoutMs"),
      writeTimeoutMs: numberValue(given, "writeTimeoutMs"),
      maxBodyBytes: numberValue(given, "maxBodyBytes"),
      rateLimit: numberValue(given, "rateLimit"),
      maxStreams: numberValue(given, "maxStreams"),
      auditRetentionMs: numberValue(given, "auditRetentionMs"),
      instance: settingValue(given, "instance"),
      signing: signingOptions(given, false),
      encryptionKeys: encryptionKeys(given),
    }),
  };
}

function authOf(mode: string | undefined): "none" | "token" | undefined {
  if (mode === undefined || mode === "none" || mode === "token") return mode;
  throw new Failure("usage", `"${mode}" is no way to ask who comes; there are none and token.`);
}
