/**
 * How answers and refusals look when they are sent: the headers that all of them carry, the one envelope of errors, and
 * the id under which the log has more.
 */
import { randomBytes } from "node:crypto";
import type { HeaderList, Outgoing } from "./incoming.js";
import { errorBody, type Refused } from "./refusal.js";
import type { Answer } from "./route.js";

/** Headers that every answer carries: nothing of it is for a page of another origin, and nothing is to be guessed. */
const securityHeaders: HeaderList = [
  ...["Cache-Control", "no-store"],
  ...["Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"],
  ...["Cross-Origin-Resource-Policy", "same-origin"],
  ...["Referrer-Policy", "no-referrer"],
  ...["X-Content-Type-Options", "nosniff"],
  ...["X-Frame-Options", "DENY"],
];

/** What makes the request ids of this process its own, and how many it has given. */
const requestPrefix = `req-${randomBytes(6).toString("base64url")}`;
let requestCount = 0;

/** An id for a request that came without one. */
export function freshRequestId(): string {
  requestCount++;
  return `${requestPrefix}-${requestCount.toString(36)}`;
}

/** An answer as it is sent. */
export function outgoing(answer: Answer, requestId: string): Outgoing {
  const { status, body, text, stream, contentType = "application/json", headers } = answer;
  const content = stream ?? text ?? (body === undefined ? null : JSON.stringify(body));
  const list = [...securityHeaders, "X-Request-Id", requestId];
  if (content !== null) list.push("Content-Type", contentType);
  for (const name in headers) list.push(name, headers[name] ?? "");
  return { status, content, headers: list };
}

/** The same answer, with which the connection ends. */
export function closing(answer: Outgoing): Outgoing {
  return { ...answer, headers: [...answer.headers, "Connection", "close"] };
}

/** The head of an answer. The head of a stream is one, too, and the stream itself goes to nobody. */
export function headOf({ status, headers, content }: Outgoing): Outgoing {
  if (content instanceof ReadableStream) void content.cancel();
  return { status, headers, content: null };
}

/** A refusal as it is sent, in the form that the `Accept` header asks for. */
export function refusalAnswer(
  refusal: Refused,
  accept: string | null,
  requestId: string,
): Outgoing {
  const { status, retryAfterMs } = refusal;
  const wantsProblem = accept?.includes("application/problem+json") ?? false;
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
  return outgoing(answer, requestId);
}

function problem(refusal: Refused, requestId: string): unknown {
  const { status, code, message, reason, field, details } = refusal;
  const shown = { code, reason, ...(field === undefined ? null : { field }), ...details };
  return { type: "about:blank", title: code, status, detail: message, ...shown, requestId };
}
