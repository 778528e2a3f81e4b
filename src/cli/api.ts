/**
 * How commands ask: always the HTTP API, over the network or in this process on a store. So every command exists once.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Exit } from "./failure.js";
import { Failure, interrupted, messageOf } from "./failure.js";

/** What a call may carry. A query value that is undefined is left out, and a list is repeated. */
export interface CallOptions {
  readonly query?: Query;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** The parameters of a query. */
export type Query = Readonly<
  Record<string, string | number | boolean | readonly string[] | undefined>
>;

/** Something that answers the HTTP API. */
export interface Api {
  /** How messages name it. */
  readonly where: string;
  fetch(request: Request): Promise<Response>;
  close(): Promise<void>;
}

/** How long an answer may take to begin, and the sum of it where it is not a stream. */
const answerTimeoutMs = 60_000;

/** How often a server that is busy is asked, and the longest wait that it may ask for in between. */
const attemptsMax = 3;
const retryAfterMaxMs = 5_000;

/** Asks, and gives the answer if it is a good one; otherwise throws a `Failure` that says what was wrong. */
export async function call(
  api: Api,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<Response> {
  for (let attempt = 1; ; attempt++) {
    const response = await send(api, method, path, options);
    if (response.ok) return response;
    const failure = await failureOf(response);
    const waitMs = Number(response.headers.get("retry-after") ?? Number.NaN) * 1_000;
    const mayRepeat = method === "GET" && attempt < attemptsMax && waitMs <= retryAfterMaxMs;
    if (failure.exit !== "unavailable" || !mayRepeat) throw failure;
    await delay(waitMs, undefined, options.signal ? { signal: options.signal } : {}).catch(
      () => {},
    );
  }
}

async function send(
  api: Api,
  method: string,
  path: string,
  { query = {}, body, headers, signal }: CallOptions,
): Promise<Response> {
  const base = api.where.startsWith("http") ? api.where : "http://localhost";
  const isStream = headers?.accept === "text/event-stream" || query.stream !== undefined;
  const stop = new AbortController();
  const onAbort = () => stop.abort(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  const late = isStream ? undefined : setTimeout(() => stop.abort(tooLate()), answerTimeoutMs);
  late?.unref();
  const request = new Request(`${base}${path}${queryText(query)}`, {
    method,
    headers: {
      accept: "application/json",
      ...(body !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    signal: stop.signal,
  });
  try {
    // The platform forgets the signal of a request that nobody refers to any more.
    return await Promise.race([api.fetch(request), rejectedBy(stop.signal)]);
  } catch (error) {
    if (signal?.aborted) throw interrupted();
    if (error instanceof Failure) throw error;
    const cause = error instanceof Error && error.cause ? error.cause : error;
    throw new Failure("unavailable", `${api.where} does not answer: ${messageOf(cause)}`);
  }
}

function tooLate(): Error {
  return new Error(`it took longer than ${answerTimeoutMs / 1_000} s`);
}

/** Rejects when a signal aborts. */
function rejectedBy(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

function queryText(query: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const part of Array.isArray(value) ? value : [value])
      parameters.append(name, String(part));
  }
  return parameters.size === 0 ? "" : `?${parameters}`;
}

/** What each code of the API means for the one who asked. */
const exitOfCode: Readonly<Record<string, Exit>> = {
  invalid_argument: "usage",
  payload_too_large: "usage",
  unauthenticated: "notPermitted",
  permission_denied: "notPermitted",
  not_found: "notFound",
  conflict: "conflict",
  duplicate: "conflict",
  signature_required: "conflict",
  signature_invalid: "conflict",
  encryption_required: "conflict",
  dependency_failed: "conflict",
  rate_limited: "unavailable",
  unavailable: "unavailable",
};

/** The error of an answer, as the API tells it. */
export interface ErrorAnswer {
  readonly code: string;
  readonly message: string;
  readonly details?: { readonly reason?: string; readonly field?: string };
}

async function failureOf(response: Response): Promise<Failure> {
  const text = await response.text().catch(() => "");
  const error = errorIn(text);
  if (error !== null) return answeredFailure(error);
  const message = `The server answered ${response.status} without an explanation; is it a Millrace server?`;
  return new Failure(response.status === 404 ? "notFound" : "failure", message);
}

/** The failure that an error of the API stands for. */
export function answeredFailure({ code, message, details }: ErrorAnswer): Failure {
  return new Failure(exitOfCode[code] ?? "failure", message, {
    code,
    ...(details && { details }),
  });
}

function errorIn(text: string): ErrorAnswer | null {
  try {
    const { error } = JSON.parse(text) as { error?: ErrorAnswer };
    return typeof error?.code === "string" && typeof error.message === "string" ? error : null;
  } catch {
    return null;
  }
}

/** Asks and reads the answer as JSON. */
export async function ask<Answer>(
  api: Api,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<Answer> {
  const response = await call(api, method, path, options);
  const text = await response.text();
  return (text === "" ? null : JSON.parse(text)) as Answer;
}

/** A path of the API with names in it that a user gave. */
export function path(parts: TemplateStringsArray, ...names: readonly string[]): string {
  return String.raw({ raw: parts }, ...names.map(encodeURIComponent));
}
