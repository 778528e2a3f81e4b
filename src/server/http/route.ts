/**
 * A route as data: what it is called, who may call it, what it takes, what it answers, and how. The app serves
 * routes, and the OpenAPI document is written from the very same schemas that check requests.
 */
import type { z } from "zod";
import type { Backend } from "./backend.js";
import type { Caller } from "./caller.js";
import type { Limits } from "./limits.js";

/** What a route needs of its caller. `work` is decided by the handler, which knows the service. */
export type Need = "nothing" | "admin.read" | "admin.mutate" | "admin.stream" | "work";

/** A request that has passed every check. */
export interface RouteRequest<Params = unknown, Query = unknown, Body = unknown> {
  readonly backend: Backend;
  readonly caller: Caller;
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  /** A header by its name; `null` where there is none. */
  readonly header: (name: string) => string | null;
  readonly path: string;
  /** The query as it came. */
  readonly search: string;
  readonly requestId: string;
  readonly limits: Limits;
  /** Makes a signal that is aborted when the caller has gone or the server stops. Most requests need none. */
  readonly signal: () => AbortSignal;
}

/** What a route answers. Only one of `body`, `text` and `stream` is there; none for an empty answer. */
export interface Answer {
  readonly status: number;
  readonly body?: unknown;
  readonly text?: string;
  readonly stream?: ReadableStream<Uint8Array>;
  readonly contentType?: string;
  readonly headers?: { readonly [name: string]: string };
}

/** One documented answer of a route. */
export interface AnswerSpec {
  readonly description: string;
  readonly body?: z.ZodType;
  /** Further media types that the route gives when it is asked for them, with what they hold. */
  readonly others?: { readonly [contentType: string]: string };
  readonly headers?: { readonly [name: string]: string };
}

/** A route. */
export interface Route {
  readonly method: "get" | "post" | "patch" | "delete";
  /** With parameters in braces, as OpenAPI has it. */
  readonly path: string;
  /** The name of the operation in the OpenAPI document. */
  readonly operation: string;
  readonly group: string;
  readonly summary: string;
  readonly description?: string;
  readonly needs: Need;
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  /** Headers that the route reads, each with what it is for. */
  readonly headers?: { readonly [name: string]: string };
  readonly body?: z.ZodType;
  /** How large the body may be; the server's own limit by default. */
  readonly bodyBytesMax?: number;
  /** The answers that are particular to the route; what every route may answer is added to them. */
  readonly answers: { readonly [status: number]: AnswerSpec };
  readonly handle: (request: RouteRequest) => Promise<Answer>;
}

type OutputOf<S> = S extends z.ZodType ? z.output<S> : undefined;

/** Defines a route whose handler gets what its schemas give. */
export function route<
  Params extends z.ZodObject | undefined = undefined,
  Query extends z.ZodObject | undefined = undefined,
  Body extends z.ZodType | undefined = undefined,
>(
  spec: Omit<Route, "params" | "query" | "body" | "handle"> & {
    readonly params?: Params;
    readonly query?: Query;
    readonly body?: Body;
    readonly handle: (
      request: RouteRequest<OutputOf<Params>, OutputOf<Query>, OutputOf<Body>>,
    ) => Promise<Answer>;
  },
): Route {
  return spec as Route;
}

/** An answer with a body. */
export function ok(body: unknown, headers?: Answer["headers"]): Answer {
  return headers === undefined ? { status: 200, body } : { status: 200, body, headers };
}
