/**
 * The app: every request goes through the same steps, whichever route it is for.
 *
 *   name it → guard its origin → find its caller → count it → check what the caller may do → read and check its
 *   input → carry it out → answer, or refuse in one envelope → log and measure
 *
 * It serves sockets and, in one process, the command line alike.
 */
import type { z } from "zod";
import type { ServedRequest } from "../../client/telemetry.js";
import { closing, freshRequestId, headOf, outgoing, refusalAnswer } from "./answers.js";
import type { Backend } from "./backend.js";
import type { Caller } from "./caller.js";
import { callerOf, checkNeed, knownCaller, type OriginGuard } from "./guard.js";
import { type Incoming, incomingOf, type Outgoing, type Peer, responseOf } from "./incoming.js";
import type { Limits } from "./limits.js";
import { jsonSchemaOf, openApiDocument } from "./openapi.js";
import { Refused, refusalOf, refused } from "./refusal.js";
import { bodyBytesMax, bodyJson, checked, type QueryKinds, queryValues } from "./request-body.js";
import type { Answer, Route } from "./route.js";
import { Router } from "./router.js";
import { routes as allRoutes } from "./routes/all.js";

/** What the app is told of a request when it has been answered. */
export interface RequestReport {
  readonly method: string;
  /** The path of the route, so that ids do not become labels; `unmatched` where there is none. */
  readonly route: string;
  readonly status: number;
  readonly durationMs: number;
}

/** What an app is made of. */
export interface AppOptions {
  readonly backend: Backend;
  readonly limits: Limits;
  /** Keeps out what web pages of other origins may have sent. Where callers need tokens, none is needed. */
  readonly guard?: OriginGuard;
  readonly bodyBytesMax?: number;
  readonly onRequest?: (report: RequestReport) => void;
  /** Aborted when the server stops, so that whoever waits for something is answered first. */
  readonly stopping?: AbortSignal;
  /** A caller that is known already, as the command line of the same process is. */
  readonly caller?: Caller;
}

/** An app that is open. */
export interface App {
  /** Answers a request that came over a socket. */
  handle(request: Incoming): Promise<Outgoing>;
  /** Answers a request of this process. */
  fetch(request: Request, peer?: Peer): Promise<Response>;
  /** The answer to what never became a request, logged and counted as one. The connection ends with it. */
  refuse(refusal: Refused): Outgoing;
}

/** A route, ready to be served. */
interface Served {
  readonly route: Route;
  readonly query: z.ZodObject | undefined;
  readonly queryKinds: QueryKinds;
}

/** Makes an app. */
export function createApp(options: AppOptions): App {
  const router = new Router<Served>();
  for (const route of [...allRoutes, documentRoute(options.backend.version)]) {
    const query = route.query?.strict();
    const served = { route, query, queryKinds: queryKindsOf(route.query) };
    router.add(route.method.toUpperCase(), route.path, served);
  }
  const handle = (request: Incoming): Promise<Outgoing> => {
    const { method, path } = request;
    // Who asks for the head alone is answered as by GET; nothing of the body is sent.
    const match = router.match(method === "HEAD" ? "GET" : method, path);
    if (match === undefined) {
      const refusal = unmatched(path, method, router.methods(path));
      return report(options, request, "unmatched", () => Promise.reject(refusal));
    }
    const { found: served, params } = match;
    const route = served.route.path;
    const work = () =>
      report(options, request, route, (requestId) =>
        serve(options, served, { request, params, requestId }),
      );
    const recorder = options.backend.telemetry?.recorder() ?? null;
    if (recorder === null) return work();
    return recorder.serve(servedRequest(request), work, ({ status }) => ({ status, route }));
  };
  return {
    handle,
    fetch: async (request, peer = { address: "local" }) =>
      responseOf(await handle(incomingOf(request, peer))),
    refuse: (refusal) => refuse(options, refusal),
  };
}

/** A request as telemetry is told of it, with the trace that it names. */
function servedRequest(request: Incoming): ServedRequest {
  const { method, path } = request;
  const traceparent = request.header("traceparent");
  const tracestate = request.header("tracestate");
  return {
    ...{ method, path },
    ...(traceparent !== null && { traceparent }),
    ...(tracestate !== null && { tracestate }),
  };
}

/** The route of the description itself, which is made when it is first asked for: a command of one request does without. */
function documentRoute(version: string): Route {
  let text: string | undefined;
  return {
    ...{ method: "get", path: "/v1/openapi.json", operation: "openApi", group: "Meta" },
    ...{ summary: "This document.", needs: "nothing", answers: {} },
    handle: async () => {
      text ??= JSON.stringify(openApiDocument(allRoutes, version));
      return { status: 200, text, contentType: "application/json" };
    },
  };
}

/** A request that has met its route. */
interface Matched {
  readonly request: Incoming;
  readonly params: unknown;
  readonly requestId: string;
}

/** Carries out one request of a route. */
async function serve(
  options: AppOptions,
  { route, query, queryKinds }: Served,
  { request, params, requestId }: Matched,
): Promise<Answer> {
  const { backend, limits, guard } = options;
  guard?.check(request, isStream(request) ? "admin.stream" : route.needs);
  // Where nobody has to be waited for, a request does not wait.
  const found = options.caller ?? findCaller(options, route, request);
  const caller = found instanceof Promise ? await found : found;
  const counted = route.needs === "nothing" ? null : limits.request(caller);
  if (counted !== null) await counted;
  checkNeed(caller, route.needs);
  return await route.handle({
    backend,
    caller,
    limits,
    requestId,
    params: route.params && checked(route.params, params, "path"),
    query: query && checked(query, queryValues(request.search, queryKinds), "query"),
    body: route.body && checked(route.body, await readBody(options, route, request), "body"),
    header: (name) => request.header(name),
    path: request.path,
    search: request.search,
    signal: () =>
      options.stopping ? AbortSignal.any([request.signal, options.stopping]) : request.signal,
  });
}

/** Whether a request asks for an answer that goes on, which a page of another origin must not be able to read. */
function isStream(request: Incoming): boolean {
  const accept = request.header("accept") ?? "";
  if (accept.includes("text/event-stream")) return true;
  return request.search !== "" && new URLSearchParams(request.search).has("stream");
}

function findCaller(
  options: AppOptions,
  route: Route,
  request: Incoming,
): Caller | Promise<Caller> {
  if (route.needs === "nothing") return anonymous;
  return knownCaller(request, options.backend.auth) ?? provenCaller(options, request);
}

async function provenCaller({ backend, limits }: AppOptions, request: Incoming): Promise<Caller> {
  const { auth, tokens } = backend;
  try {
    return await callerOf(request, auth, tokens);
  } catch (error) {
    if (error instanceof Refused && error.code === "unauthenticated")
      await limits.failure(request.peer.address);
    throw error;
  }
}

/** Whoever asks for what everybody may know. */
const anonymous: Caller = { id: "anonymous", actor: "admin:anonymous", capabilities: [] };

function readBody(options: AppOptions, route: Route, request: Incoming): Promise<unknown> {
  const bytesMax = route.bodyBytesMax ?? options.bodyBytesMax ?? bodyBytesMax;
  return bodyJson(request, bytesMax);
}

const requestIdPattern = /^[\x21-\x7e]{1,128}$/;

/** Runs a request, and turns whatever comes of it into a response, a log line and a measurement. */
async function report(
  { backend, onRequest }: AppOptions,
  request: Incoming,
  route: string,
  run: (requestId: string) => Promise<Answer>,
): Promise<Outgoing> {
  const { clock, logger } = backend;
  const startedAt = clock.monotonic();
  const given = request.header("x-request-id");
  const requestId = given !== null && requestIdPattern.test(given) ? given : freshRequestId();
  let response: Outgoing;
  let refusal: Refused | undefined;
  try {
    response = outgoing(await run(requestId), requestId);
  } catch (error) {
    refusal = refusalOf(error) ?? internal(error, backend, requestId);
    response = refusalAnswer(refusal, request.header("accept"), requestId);
  }
  if (request.method === "HEAD") response = headOf(response);
  const { status } = response;
  const durationMs = clock.monotonic() - startedAt;
  const { method } = request;
  onRequest?.({ method, route, status, durationMs });
  // Most requests succeed, and most servers log none of those.
  if (refusal === undefined && logger.debug === undefined) return response;
  const fields = { requestId, method, route, status, durationMs: Math.round(durationMs) };
  const message = "Request.";
  if (refusal === undefined) logger.debug?.(fields, message);
  else if (status >= 500) logger.error({ ...fields, reason: refusal.reason }, message);
  else logger.info({ ...fields, reason: refusal.reason }, message);
  return response;
}

function refuse({ backend, onRequest }: AppOptions, refusal: Refused): Outgoing {
  const requestId = freshRequestId();
  const { status, reason } = refusal;
  const seen = { method: "unreadable", route: "unmatched", status };
  onRequest?.({ ...seen, durationMs: 0 });
  backend.logger.info({ requestId, ...seen, reason }, "Request.");
  return closing(refusalAnswer(refusal, null, requestId));
}

/** Something is wrong with the server. What it is goes to the log, and not to the caller. */
function internal(error: unknown, { logger }: Backend, requestId: string): Refused {
  logger.error({ error, requestId }, "A request failed for a reason of the server's own.");
  const message = `Something went wrong in the server; its log has more under ${requestId}.`;
  return refused("internal", { reason: "internal", message });
}

/** The refusal of a path that no route has, or that none has with this method. */
function unmatched(path: string, method: string, methods: readonly string[]): Refused {
  if (methods.length === 0) {
    const message = `There is no ${path}; see /v1/openapi.json.`;
    return refused("not_found", { reason: "route_not_found", message });
  }
  const allow = methods.join(", ");
  const message = `${path} cannot be asked with ${method}; use ${allow}.`;
  const parts = { status: 405, reason: "method_not_allowed", message, details: { allow } };
  return refused("invalid_argument", parts);
}

/** How the words of a query become values, read from the schema that checks them. */
function queryKindsOf(query: z.ZodObject | undefined): QueryKinds {
  if (query === undefined) return new Map();
  const { properties = {} } = jsonSchemaOf(query, "input") as {
    properties?: { [name: string]: { readonly type?: string } };
  };
  return new Map(
    Object.entries(properties).map(([name, { type }]) => {
      if (type === "integer" || type === "boolean") return [name, type];
      return [name, type === "array" ? "list" : "text"];
    }),
  );
}
