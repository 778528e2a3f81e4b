/**
 * The server: an engine, the app over it, keepers for the services that it knows, and a listener. `openApp` is the
 * same without a socket, for programs that ask the API in their own process.
 */
import { hostname } from "node:os";
import { createIds, systemIds } from "../../client/ids.js";
import { openTelemetry } from "../../client/open-telemetry/open.js";
import { Signing } from "../../client/signing.js";
import { openTelemetryTrace } from "../../client/trace.js";
import { Vault } from "../../client/vault.js";
import { systemClock } from "../../engine/clock.js";
import type { Engine } from "../../engine/engine.js";
import { silentLogger } from "../../engine/logger.js";
import { defaultUrl, openEngine } from "../../engine/open.js";
import { packageVersion } from "../../service/package-version.js";
import { Metrics } from "../metrics/metrics.js";
import { createApp } from "./app.js";
import { type AuthMode, type Backend, Services } from "./backend.js";
import { FeedHub } from "./feed-hub.js";
import { OriginGuard } from "./guard.js";
import { Keepers } from "./keepers.js";
import { Limits } from "./limits.js";
import { bindingOf, type Listener, listen } from "./listener.js";
import { Readiness } from "./readiness.js";
import {
  type AppOptions,
  type BackendOptions,
  checkAppOptions,
  checkServerOptions,
  type ServerOptions,
} from "./server-options.js";
import { Tokens } from "./tokens.js";
import { WorkPresence } from "./work-presence.js";

/** A server that was started. */
export interface RunningServer {
  /** Where it is reached. */
  readonly url: string;
  readonly port: number;
  readonly auth: AuthMode;
  readonly engine: Engine;
  /** Takes no more requests, ends streams, and lets go of the store. Idempotent. */
  stop(): Promise<void>;
}

/** The API in this process, without a socket. */
export interface OpenApp {
  fetch(request: Request): Promise<Response>;
  readonly engine: Engine;
  close(): Promise<void>;
}

const defaultRateLimit = 1_000;
const defaultStreamsMax = 200;

/** Starts a server. Options that cannot work throw `InvalidOption`, a store that cannot be used its own error. */
export async function startServer(options: ServerOptions = {}): Promise<RunningServer> {
  checkServerOptions(options);
  const binding = bindingOf(options);
  const { auth } = binding;
  const { backend, close } = await openBackend(options, auth);
  const { engine, hub, clock, logger } = backend;
  const follow = (cursor: string | null, signal: AbortSignal) => hub.listen(cursor, signal);
  const metrics = new Metrics({ engine, follow, clock, logger });
  const limits = new Limits({
    requestsPerSecond: options.rateLimit ?? (auth === "token" ? defaultRateLimit : 0),
    streamsMax: options.maxStreams ?? defaultStreamsMax,
  });
  const keepers = options.keeper === false ? null : new Keepers(backend);
  const stopping = new AbortController();
  let listener: Listener;
  try {
    await keepers?.start();
    listener = await listen(binding, options, (port) =>
      createApp({
        backend: { ...backend, metrics: whenAsked(metrics) },
        limits,
        ...guardOf(auth, port, options.allowedHosts),
        stopping: stopping.signal,
        ...(options.maxBodyBytes === undefined ? null : { bodyBytesMax: options.maxBodyBytes }),
        onRequest: (report) => metrics.observeRequest(report),
      }),
    );
  } catch (fault) {
    await Promise.all([keepers?.stop(), metrics.stop()]);
    await close();
    throw fault;
  }
  let stopped: Promise<void> | undefined;
  const stop = async () => {
    // Long polls are answered, and what they have claimed meanwhile is given back.
    stopping.abort();
    await metrics.stop();
    // Streams end first: the listener waits for every answer.
    await backend.hub.stop();
    await Promise.all([listener.stop(), keepers?.stop()]);
    await close();
  };
  return {
    ...{ url: listener.url, port: listener.port, auth, engine: backend.engine },
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
}

/** Metrics follow the feed from when they are first asked for: a server that nobody watches does without. */
function whenAsked(metrics: Metrics): NonNullable<Backend["metrics"]> {
  return {
    contentType: metrics.contentType,
    text: async () => {
      await metrics.start();
      return metrics.text();
    },
  };
}

function guardOf(auth: AuthMode, port: number, hosts: readonly string[] | undefined) {
  switch (auth) {
    case "none":
      return { guard: OriginGuard.ofLoopback(port, hosts) };
    case "mtls":
      return { guard: new OriginGuard(null) };
    case "token":
      return null;
  }
}

/** Opens the API without a socket, for one caller who may do everything. */
export async function openApp(options: AppOptions): Promise<OpenApp> {
  checkAppOptions(options);
  const { backend, close } = await openBackend(options, "none");
  const limits = new Limits({ requestsPerSecond: 0, streamsMax: defaultStreamsMax });
  const { fetch } = createApp({ backend, limits, caller: options.caller });
  return {
    fetch: (request) => fetch(request),
    engine: backend.engine,
    close: async () => {
      await backend.hub.stop();
      await close();
    },
  };
}

interface OpenBackend {
  readonly backend: Backend;
  close(): Promise<void>;
}

async function openBackend(options: BackendOptions, auth: AuthMode): Promise<OpenBackend> {
  const { clock = systemClock, logger = silentLogger, url = defaultUrl } = options;
  const ids = options.ids ?? (clock === systemClock ? systemIds : createIds(() => clock.now()));
  const signing = options.signing && new Signing(options.signing);
  const { encryptionKeys: keys } = options;
  const vault = keys && new Vault({ keys }, "encryptionKeys");
  const engine = options.engine ?? (await openEngine(url, { clock, logger }));
  const close = async () => {
    if (options.engine === undefined) await engine.close();
  };
  try {
    await engine.provision();
    const instance = options.instance ?? `server-${hostPart()}-${process.pid}-${ids.randomHex(3)}`;
    const activeTrace = await openTelemetryTrace();
    const version = packageVersion();
    const telemetry = await openTelemetry({ clock, instance, version });
    const { webhooks, auditRetentionMs } = options;
    const parts = {
      ...{ engine, clock, ids, logger, instance },
      ...(telemetry && { telemetry }),
      ...(webhooks && { webhooks }),
      ...(auditRetentionMs !== undefined && { auditRetentionMs }),
      ...(signing && { signing }),
      ...(vault && { vault }),
    };
    const backend: Backend = {
      ...parts,
      version,
      startedAt: clock.now(),
      auth,
      allowsDefaultQueue: options.allowCreateDefault ?? false,
      services: new Services(parts, activeTrace),
      tokens: new Tokens(engine, clock),
      hub: new FeedHub(engine, clock, logger),
      presence: new WorkPresence({ engine, clock, logger, version }),
      readiness: new Readiness(engine, clock),
    };
    return { backend, close };
  } catch (fault) {
    await close();
    throw fault;
  }
}

function hostPart(): string {
  return (hostname().split(".")[0] ?? "host").replaceAll(/[^A-Za-z0-9-]/g, "-").slice(0, 30);
}
