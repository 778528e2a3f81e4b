/**
 * The app: every request goes through the same steps, whichever route it is for.
 *
 *   name it → guard its origin → find its caller → count it → check what the caller may do → read and check its
 *   input → carry it out → answer, or refuse in one envelope → log and measure
 *
 * It takes a `Request` and gives a `Response`, so that it serves sockets and, in one process, the command line alike.
 */
import { Hono } from "hono";
import type { z } from "zod";
import { type Backend, freshRequestId } from "./backend.js";
import type { Caller } from "./caller.js";
import { callerOf, checkNeed, type OriginGuard, type Peer } from "./guard.js";
import type { Limits } from "./limits.js";
import { jsonSchemaOf, openApiDocument } from "./openapi.js";
import { errorBody, Refused, refusalOf, refused } from "./refusal.js";
import { bodyBytesMax, bodyJson, checked, type QueryKinds, queryValues } from "./request-body.js";
import type { Answer, Route } from "./route.js";
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
  /** Refuses what web pages of other origins may have sent; where every caller has to say who they are, none is needed. */
  readonly guard?: OriginGuard;
  readonly bodyBytesMax?: number;
  readonly onRequest?: (report: RequestReport) => void;
  /** A caller that is known already, as the command line of the same process is. */
  readonly caller?: Caller;
}

/** An app that is open. */
export interface App {
  fetch(request: Request, peer?: Peer): Promise<Response>;
}

/** Headers that every answer carries: nothing of it is for a page of another origin, and nothing is to be guessed. */
const securityHeaders = {
  "Cache-Control": "no-store",
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
} as const;

interface Served {
  readonly route: Route;
  readonly queryKinds: QueryKinds;
}

/** Makes an app. */
export function createApp(options: AppOptions): App {
  const router = new Hono<{ Bindings: { readonly peer: Peer } }>();
  // Made when it is first asked for: the command line opens an app for each command, and hardly ever asks.
  let document: string | undefined;
  for (const route of allRoutes) {
    const served = { route, queryKinds: queryKindsOf(route.query) };
    const path = route.path.replaceAll(/\{(\w+)\}/g, ":$1");
    router.on(route.method.toUpperCase(), path, (context) =>
      serve(options, served, context.req.raw, context.req.param(), context.env.peer),
    );
  }
  router.get("/v1/openapi.json", (context) =>
    report(options, context.req.raw, "/v1/openapi.json", async () => {
      options.guard?.check(context.req.raw, "nothing");
      document ??= JSON.stringify(openApiDocument(allRoutes, options.backend.version));
      return { status: 200, text: document, contentType: "application/json" };
    }),
  );
  router.notFound((context) =>
    report(options, context.req.raw, "unmatched", async () => {
      throw unmatched(new URL(context.req.url).pathname, context.req.method);
    }),
  );
  return {
    fetch: async (request, peer = { address: "local" }) => router.fetch(request, { peer }),
  };
}

/** Carries out one request of a route. */
function serve(
  options: AppOptions,
  { route, queryKinds }: Served,
  request: Request,
  params: unknown,
  peer: Peer,
): Promise<Response> {
  const { backend, limits, guard } = options;
  return report(options, request, route.path, async (requestId) => {
    guard?.check(request, isStream(request) ? "admin.stream" : route.needs);
    const caller = options.caller ?? (await findCaller(options, route, request, peer));
    if (route.needs !== "nothing") await limits.request(caller);
    checkNeed(caller, route.needs);
    const url = new URL(request.url);
    const query = queryValues(url.searchParams, queryKinds);
    const input = {
      params: route.params && checked(route.params, params, "path"),
      query: route.query ? checked(route.query.strict(), query, "query") : undefined,
      body: route.body && checked(route.body, await readBody(options, route, request), "body"),
    };
    const { headers, signal } = request;
    return route.handle({ backend, caller, ...input, headers, url, requestId, signal, limits });
  });
}

/** Whether a request asks for an answer that goes on, which a page of another origin must not be able to read. */
function isStream({ headers, url }: Request): boolean {
  return (headers.get("accept") ?? "").includes("text/event-stream") || url.includes("stream=");
}

async function findCaller(
  { backend, limits }: AppOptions,
  route: Route,
  request: Request,
  peer: Peer,
): Promise<Caller> {
  const { auth, tokens } = backend;
  if (route.needs === "nothing")
    return { id: `address:${peer.address}`, actor: "admin:anonymous", capabilities: [] };
  try {
    return await callerOf(request, { auth, tokens, peer });
  } catch (error) {
    if (error instanceof Refused && error.code === "unauthenticated")
      await limits.failure(peer.address);
    throw error;
  }
}

function readBody(options: AppOptions, route: Route, request: Request): Promise<unknown> {
  const bytesMax = route.bodyBytesMax ?? options.bodyBytesMax ?? bodyBytesMax;
  return bodyJson(request, bytesMax);
}

const requestIdPattern = /^[\x21-\x7e]{1,128}$/;

/** Runs a request, and turns whatever comes of it into a response, a log line and a measurement. */
async function report(
  { backend, onRequest }: AppOptions,
  request: Request,
  route: string,
  run: (requestId: string) => Promise<Answer>,
): Promise<Response> {
  const { clock, logger } = backend;
  const startedAt = clock.monotonic();
  const given = request.headers.get("x-request-id");
  const requestId = given !== null && requestIdPattern.test(given) ? given : freshRequestId();
  let response: Response;
  let refusal: Refused | undefined;
  try {
    response = responseOf(await run(requestId), requestId);
  } catch (error) {
    refusal = refusalOf(error) ?? internal(error, backend, requestId);
    response = refusalResponse(refusal, request, requestId);
  }
  const { status } = response;
  const durationMs = clock.monotonic() - startedAt;
  const { method } = request;
  onRequest?.({ method, route, status, durationMs });
  const fields = { requestId, method, route, status, durationMs: Math.round(durationMs) };
  const message = "Request.";
  if (refusal === undefined) logger.debug?.(fields, message);
  else if (status >= 500) logger.error({ ...fields, reason: refusal.reason }, message);
  else logger.info({ ...fields, reason: refusal.reason }, message);
  return response;
}

function responseOf(answer: Answer, requestId: string): Response {
  const { status, body, text, stream, contentType = "application/json", headers } = answer;
  const content = stream ?? text ?? (body === undefined ? null : JSON.stringify(body));
  return new Response(content, {
    status,
    headers: {
      ...securityHeaders,
      "X-Request-Id": requestId,
      ...(content === null ? null : { "Content-Type": contentType }),
      ...headers,
    },
  });
}

function refusalResponse(refusal: Refused, request: Request, requestId: string): Response {
  const { status, retryAfterMs } = refusal;
  const wantsProblem = request.headers.get("accept")?.includes("application/problem+json") ?? false;
  const body = errorBody(refusal);
  const answer: Answer = {
    status,
    body: wantsProblem ? problem(refusal, requestId) : { error: { ...body, requestId } },
    contentType: wantsProblem ? "application/problem+json" : "application/json",
    headers: {
      ...(retryAfterMs !== undefined && { "Retry-After": String(Math.ceil(retryAfterMs / 1_000)) }),
      ...(status === 401 && { "WWW-Authenticate": 'Bearer realm="millrace"' }),
      ...(typeof refusal.details?.allow === "string" && { Allow: refusal.details.allow }),
    },
  };
  return responseOf(answer, requestId);
}

function problem(refusal: Refused, requestId: string): unknown {
  const { status, code, message, reason, field, details } = refusal;
  const shown = { code, reason, ...(field === undefined ? null : { field }), ...details };
  return { type: "about:blank", title: code, status, detail: message, ...shown, requestId };
}

/** Something is wrong with the server. What it is goes to the log, and not to the caller. */
function internal(error: unknown, { logger }: Backend, requestId: string): Refused {
  logger.error({ error, requestId }, "A request failed for a reason of the server's own.");
  const message = `Something went wrong in the server; its log has more under ${requestId}.`;
  return refused("internal", { reason: "internal", message });
}

/** The refusal of a path that no route has, or that none has with this method. */
function unmatched(path: string, method: string): Refused {
  const segments = path.split("/");
  const allowed = allRoutes.filter((route) => {
    const own = route.path.split("/");
    return (
      own.length === segments.length &&
      own.every((part, index) => part.startsWith("{") || part === segments[index])
    );
  });
  if (allowed.length === 0) {
    const message = `There is no ${path}; see /v1/openapi.json.`;
    return refused("not_found", { reason: "route_not_found", message });
  }
  const allow = [...new Set(allowed.map((route) => route.method.toUpperCase()))].join(", ");
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
