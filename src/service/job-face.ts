/**
 * The typed face of one job type: creating its jobs and handling them, with types that follow from the contract.
 */
import type { Client } from "../client/client.js";
import { JobCreator } from "../client/job-creator.js";
import type { BoundJob, JobDefinition, JobEntries, JobEntry } from "../contract/definition.js";
import type { Stored } from "../contract/stored.js";
import type { OutsideHandler } from "../worker/isolate/outside-handler.js";
import type { Middleware } from "../worker/middleware.js";
import type { Handler } from "../worker/worker.js";
import type {
  BlockerInputsOf,
  CurrentOf,
  DefinitionAt,
  HandlerOf,
  InputOf,
  OutsideHandlerOf,
  OwnValueOf,
  PayloadOf,
  ValueOf,
  VersionOf,
} from "./inferred.js";

/** What may be said of a handler. */
export interface HandleOptions {
  /** Middleware of this handler alone, inside of the service's own; the first is outermost. */
  readonly use?: readonly Middleware[];
}

/** Takes a handler for one version of a type. */
export type Register = (
  bound: BoundJob,
  handler: Handler | OutsideHandler,
  options: HandleOptions,
) => void;

/** One version of a job type: makes its jobs and handles them. */
export class JobVersionFace<
  Definition extends JobDefinition,
  Entries extends JobEntries = JobEntries,
  Tx = undefined,
> extends JobCreator<
  InputOf<Definition>,
  Stored<PayloadOf<Definition>>,
  ValueOf<Definition>,
  BlockerInputsOf<Definition, Entries>,
  OwnValueOf<Definition>
> {
  readonly #bound: BoundJob;
  readonly #register: Register;

  constructor(client: Client, bound: BoundJob, register: Register) {
    const { service, type, queue, definition } = bound;
    super(client, {
      service,
      type,
      queue,
      schema: definition.payload,
      settings: definition.settings,
    });
    this.#bound = bound;
    this.#register = register;
  }

  /**
   * Registers the handler of this version: a function, or for an isolated type a module or a program. Throws
   * `InvalidHandler` when it has one already or the service has started, and `InvalidMiddleware` for middleware that
   * is none.
   *
   * @example
   * service.jobs.transcode.handle({ module: new URL("./transcode.js", import.meta.url) });
   */
  handle(
    handler: HandlerOf<Definition, Entries, Tx> | OutsideHandlerOf<Definition, Entries, Tx>,
    options: HandleOptions = {},
  ): void {
    // The worker checks the payload against the schema that the handler's type comes from.
    this.#register(this.#bound, handler as Handler | OutsideHandler, options);
  }
}

/** A job type: its current version, and through `version` the others. */
export class JobFace<
  Entry extends JobEntry,
  Entries extends JobEntries = JobEntries,
  Tx = undefined,
> extends JobVersionFace<CurrentOf<Entry>, Entries, Tx> {
  readonly #versions: ReadonlyMap<number, JobVersionFace<JobDefinition>>;

  /** `bound` are the versions of the type, lowest first. */
  constructor(client: Client, bound: readonly [BoundJob, ...BoundJob[]], register: Register) {
    super(client, bound.at(-1) ?? bound[0], register);
    this.#versions = new Map(
      bound.map((job) => [
        job.definition.settings.version,
        new JobVersionFace(client, job, register),
      ]),
    );
  }

  /** The type at one of its versions. */
  version<Version extends VersionOf<Entry>>(
    version: Version,
  ): JobVersionFace<DefinitionAt<Entry, Version>, Entries, Tx> {
    const face = this.#versions.get(version);
    if (face === undefined) {
      const known = [...this.#versions.keys()].join(", ");
      throw new RangeError(`${this.type} has no version ${version}; the contract names ${known}.`);
    }
    return face as unknown as JobVersionFace<DefinitionAt<Entry, Version>, Entries, Tx>;
  }
}
