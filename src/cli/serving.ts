/**
 * Starting a server as the settings say.
 */
import { once } from "node:events";
import type { Engine } from "../engine/engine.js";
import type { Logger } from "../engine/logger.js";
import { openEngine } from "../engine/open.js";
import { startServer } from "../server/http/server.js";
import { Failure, messageOf } from "./failure.js";
import { loggerOf } from "./logger.js";
import type { Session } from "./session.js";
import { isOn, settings, settingValue } from "./settings.js";
import { storeFailure } from "./store-failure.js";

/** A server that runs. */
export type RunningServer = Awaited<ReturnType<typeof startServer>>;

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
  const text = (name: Parameters<typeof settingValue>[1]) => settingValue(given, name);
  const bind = parts.bind ?? text("bind") ?? settings.bind.default;
  const tlsCert = text("tlsCert");
  const tlsKey = text("tlsKey");
  const tlsClientCa = text("tlsClientCa");
  const instance = text("instance");
  try {
    return await startServer({
      engine: parts.engine,
      logger: parts.logger,
      bind,
      requireTokens: isOn(given, "requireTokens"),
      unsafeBind: isOn(given, "unsafeBind"),
      allowCreateDefault: isOn(given, "allowCreateDefault"),
      ...(tlsCert !== undefined && { tlsCert }),
      ...(tlsKey !== undefined && { tlsKey }),
      ...(tlsClientCa !== undefined && { tlsClientCa }),
      ...(instance !== undefined && { instance }),
    });
  } catch (error) {
    if ((error as { code?: string }).code === "EADDRINUSE")
      throw new Failure("unavailable", `${bind} is in use; choose another address with --bind.`);
    throw isStore(error) ? storeFailure(error) : new Failure("usage", messageOf(error));
  }
}

function isStore(error: unknown): boolean {
  return error instanceof Error && "_tag" in error;
}
