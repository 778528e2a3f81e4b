/**
 * The admin calls for those who make them: typed, over a NATS connection, with failures as `Result` values.
 */
import { headers, type NatsConnection, PermissionViolationError } from "@nats-io/transport-node";
import { Result } from "better-result";
import { AsyncResult } from "../client/async-result.js";
import type {
  DeadFilterInput,
  FilterInput,
  JobsCallName,
  JobsCalls,
  KeyInput,
  PageInput,
} from "./calls.js";
import { type AdminError, type ErrorWire, UnavailableError, wiredError } from "./errors.js";
import { actorHeader, callSubject } from "./jobs-server.js";

/** How the calls are made. */
export interface JobsClientOptions {
  /** What the subjects begin with; `millrace` by default. */
  readonly prefix?: string;
  /** How long an answer is waited for; 10 s by default. */
  readonly timeoutMs?: number;
  /** Who gives commands, for the history of the jobs. */
  readonly actor?: string;
}

const timeoutMsDefault = 10_000;

type Answer<Name extends JobsCallName> = AsyncResult<JobsCalls[Name]["output"], AdminError>;

/**
 * Makes the admin calls. The connection stays its owner's. Its inboxes have to lie where its user may listen, which for
 * observers and operators is at `inboxPrefix(prefix, { kind })`.
 *
 * @example
 * const inbox = inboxPrefix("millrace", { kind: "operator" });
 * const connection = await connect({ servers, user, pass, inboxPrefix: inbox });
 * const jobs = new JobsClient(connection, { actor: "anna" });
 * const dead = await jobs.listDLQ({ limit: 10 });
 * if (dead.isOk()) for (const { id } of dead.value.entries) await jobs.replayDLQ(id);
 */
export class JobsClient {
  readonly #connection: NatsConnection;
  readonly #prefix: string;
  readonly #timeoutMs: number;
  readonly #actor: string | undefined;

  constructor(connection: NatsConnection, options: JobsClientOptions = {}) {
    this.#connection = connection;
    this.#prefix = options.prefix ?? "millrace";
    this.#timeoutMs = options.timeoutMs ?? timeoutMsDefault;
    this.#actor = options.actor;
  }

  /** How the admin runtime is. */
  health(): Answer<"Health"> {
    return this.#call("Health", {});
  }

  /** Services with their live workers and how many jobs they have. */
  listServices(page: PageInput): Answer<"ListServices"> {
    return this.#call("ListServices", page);
  }

  /** Jobs of all services, newest first. */
  list(ask: FilterInput & PageInput): Answer<"List"> {
    return this.#call("List", ask);
  }

  /** One job, with its newest log lines. */
  get(id: string): Answer<"Get"> {
    return this.#call("Get", { id });
  }

  /** What goes on under a concurrency key. */
  getKey(key: KeyInput): Answer<"GetKey"> {
    return this.#call("GetKey", key);
  }

  /** Runs an ended job again, as a new run. */
  retry(id: string): Answer<"Retry"> {
    return this.#call("Retry", { id });
  }

  /** Ends a waiting job, or asks a running one to stop. */
  cancel(id: string): Answer<"Cancel"> {
    return this.#call("Cancel", { id });
  }

  /** Dead jobs that nobody has dismissed. */
  listDLQ(ask: DeadFilterInput & PageInput): Answer<"ListDLQ"> {
    return this.#call("ListDLQ", ask);
  }

  /** Runs a dead job again. */
  replayDLQ(id: string): Answer<"ReplayDLQ"> {
    return this.#call("ReplayDLQ", { id });
  }

  /** Marks a dead job as seen. */
  dismissDLQ(id: string): Answer<"DismissDLQ"> {
    return this.#call("DismissDLQ", { id });
  }

  #call<Name extends JobsCallName>(name: Name, input: JobsCalls[Name]["input"]): Answer<Name> {
    return new AsyncResult(this.#request(name, input));
  }

  async #request<Name extends JobsCallName>(
    name: Name,
    input: JobsCalls[Name]["input"],
  ): Promise<Result<JobsCalls[Name]["output"], AdminError>> {
    const told = headers();
    if (this.#actor !== undefined) told.set(actorHeader, this.#actor);
    try {
      const subject = callSubject(this.#prefix, name);
      const options = { timeout: this.#timeoutMs, headers: told };
      const answer = await this.#connection.request(subject, JSON.stringify(input), options);
      if (answer.headers?.has("Nats-Service-Error-Code"))
        return Result.err(wiredError(answer.json<ErrorWire>()));
      return Result.ok(answer.json<JobsCalls[Name]["output"]>());
    } catch (error) {
      return Result.err(unreached(this.#prefix, name, error));
    }
  }
}

function unreached(prefix: string, name: JobsCallName, error: unknown): UnavailableError {
  const said = error instanceof Error ? error.message : String(error);
  return new UnavailableError({
    message: `Jobs.${name} was not answered (${said}). ${remedyOf(prefix, error)} Whether it was carried out is not known.`,
  });
}

/** A connection that names no prefix for its inboxes listens where observers and operators may not. */
function remedyOf(prefix: string, error: unknown): string {
  const remedy = `connect with the inboxPrefix of the user's role, for instance inboxPrefix("${prefix}", { kind: "operator" }).`;
  const cause = error instanceof Error ? error.cause : undefined;
  if (cause instanceof PermissionViolationError && cause.operation === "subscription")
    return `This user may not listen at the inboxes of its connection: ${remedy}`;
  return `Check that an admin runtime serves it, that this user may call it, and that it may listen at the inboxes of its connection; if not, ${remedy}`;
}
