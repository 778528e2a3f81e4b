/**
 * Opens the HTTP app on a store, and serves it.
 */
import type { Engine } from "../../engine/engine.js";
import type { Logger } from "../../engine/logger.js";

export interface ServerOptions {
  readonly url?: string;
  readonly engine?: Engine;
  readonly actor?: `admin:${string}`;
  readonly bind?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsClientCa?: string;
  readonly requireTokens?: boolean;
  readonly unsafeBind?: boolean;
  readonly allowCreateDefault?: boolean;
  readonly instance?: string;
  readonly logger?: Logger;
}

export async function openApp(_options: ServerOptions): Promise<{
  fetch(request: Request): Promise<Response>;
  engine: Engine;
  close(): Promise<void>;
}> {
  throw new Error("There is no server yet.");
}

export async function startServer(
  _options: ServerOptions,
): Promise<{ readonly url: string; stop(): Promise<void> }> {
  throw new Error("There is no server yet.");
}
