/**
 * Routes: handlers for types that no contract names. A type goes to the route of its own name, else to the one with the
 * longest prefix of it, else to the one for everything.
 */
import { TaggedError } from "better-result";
import type { UnnamedLane } from "../client/unnamed-lanes.js";
import type { BoundJob, Schema } from "../contract/definition.js";
import { type JobOptions, type RetentionOptions, resolveSettings } from "../contract/settings.js";
import { checkJobOptions } from "../contract/validate.js";
import type { Handler, WorkerJob } from "./lane.js";
import { chain, type Middleware } from "./middleware.js";

/** What may be said of a route. Everything but `use` holds for each type that the route serves. */
export interface RouteOptions
  extends Pick<
    JobOptions,
    "concurrency" | "timeoutMs" | "leaseMs" | "retry" | "progress" | "logs"
  > {
  /** Middleware of this route alone, inside of the service's own; the first is outermost. */
  readonly use?: readonly Middleware[];
}

/** A try for which its process has no handler. It is tried again like any other that failed. */
export class NoHandler extends TaggedError("NoHandler")<{
  readonly message: string;
  readonly type: string;
}> {}

interface Route {
  readonly prefix: string;
  readonly handler: Handler;
  readonly options: JobOptions;
  readonly use: Middleware | undefined;
}

/** The routes of a process. */
export class Router {
  readonly #routes = new Map<string, Route>();
  readonly #retention: RetentionOptions;

  /** `retention` is what the service says of jobs that have ended. */
  constructor(retention: RetentionOptions = {}) {
    this.#retention = retention;
  }

  get isEmpty(): boolean {
    return this.#routes.size === 0;
  }

  /** Whether there is a route of exactly this prefix. */
  has(prefix: string): boolean {
    return this.#routes.has(prefix);
  }

  /** Adds a route. Throws `InvalidDefinition` or `InvalidMiddleware` for options that cannot work. */
  add(prefix: string, handler: Handler, { use = [], ...options }: RouteOptions): void {
    checkJobOptions({ ...options, payload: anyJson });
    const own = use.length === 0 ? undefined : chain(...use);
    const kept = { ...options, retention: this.#retention };
    this.#routes.set(prefix, { prefix, handler, options: kept, use: own });
  }

  /** How often leases of routes are renewed at most. */
  get renewMs(): number {
    const renewals = [...this.#routes.values()].map(({ options }) => resolveSettings(options));
    return Math.min(...renewals.map(({ renewMs }) => renewMs));
  }

  /** How a lane is carried out, or `null` where no route fits it. */
  jobOf(service: string, lane: UnnamedLane): WorkerJob | null {
    const route = this.#find(lane.type);
    if (route === undefined) return null;
    const { handler, options, use } = route;
    const job = { bound: boundLane(service, lane, options), handler };
    return use === undefined ? job : { ...job, use };
  }

  /** How a lane is carried out that no route fits. */
  unrouted(service: string, lane: UnnamedLane): WorkerJob {
    const { type } = lane;
    const handler = () => {
      const known = [...this.#routes.keys()].map((prefix) => `"${prefix}"`).join(", ");
      const message = `There is no handler for ${type} in this process; its routes are ${known}.`;
      throw new NoHandler({ type, message });
    };
    return {
      bound: boundLane(service, lane, { retention: this.#retention }),
      handler,
      isUnrouted: true,
    };
  }

  /** A longer prefix is nearer, and a type's own name is the longest of its prefixes. */
  #find(type: string): Route | undefined {
    let found: Route | undefined;
    for (const route of this.#routes.values()) {
      const isNearer = found === undefined || route.prefix.length > found.prefix.length;
      if (isNearer && type.startsWith(route.prefix)) found = route;
    }
    return found;
  }
}

/** Takes any JSON, because no contract says more. */
const anyJson: Schema = {
  "~standard": { version: 1, vendor: "millrace", validate: (value) => ({ value }) },
};

function boundLane(
  service: string,
  { queue, type, version }: UnnamedLane,
  options: JobOptions,
): BoundJob {
  const settings = resolveSettings({ ...options, version, queue: { name: queue } });
  return {
    service,
    type,
    queue,
    definition: { kind: "job", payload: anyJson, result: undefined, settings },
  };
}
