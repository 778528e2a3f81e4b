/**
 * The typed face of one job type: creating its jobs and handling them, with types that follow from the contract.
 */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Client } from "../client/client.js";
import { JobCreator } from "../client/job-creator.js";
import type { Stored } from "../client/stored.js";
import type {
  BoundJob,
  JobDefinition,
  JobEntry,
  JobVersions,
  Schema,
} from "../contract/definition.js";
import type { Json } from "../core/json.js";
import type { ActiveJob } from "../worker/active-job.js";
import type { HandlerOutcome } from "../worker/outcome.js";
import type { Handler } from "../worker/worker.js";

/** What `create` takes for a definition. */
export type InputOf<Definition extends JobDefinition> = StandardSchemaV1.InferInput<
  Definition["payload"]
>;

/** The payload that a definition's handler gets. */
export type PayloadOf<Definition extends JobDefinition> = StandardSchemaV1.InferOutput<
  Definition["payload"]
>;

/** The result that a definition's jobs end with; any JSON where it names no schema. */
export type ValueOf<Definition extends JobDefinition> = Definition["result"] extends Schema
  ? Stored<StandardSchemaV1.InferOutput<Definition["result"]>>
  : Json | undefined;

/** What a handler of a definition may return. */
type ReturnOf<Definition extends JobDefinition> = Definition["result"] extends Schema
  ? StandardSchemaV1.InferInput<Definition["result"]> | HandlerOutcome
  : unknown;

/** Carries out jobs of a definition. A value completes the job, a thrown error is tried again. */
export type HandlerOf<Definition extends JobDefinition> = (
  job: ActiveJob<PayloadOf<Definition>>,
) => ReturnOf<Definition> | Promise<ReturnOf<Definition>>;

/** The definitions of an entry. */
type DefinitionsOf<Entry extends JobEntry> =
  Entry extends JobVersions<infer Definitions>
    ? Definitions[number]
    : Extract<Entry, JobDefinition>;

/** The current definition of an entry: the last of its versions. */
export type CurrentOf<Entry extends JobEntry> =
  Entry extends JobVersions<readonly [...JobDefinition[], infer Last extends JobDefinition]>
    ? Last
    : DefinitionsOf<Entry>;

/** The versions of an entry. */
export type VersionOf<Entry extends JobEntry> = DefinitionsOf<Entry>["settings"]["version"];

/** The definition of an entry at a version. */
export type DefinitionAt<Entry extends JobEntry, Version extends number> = Extract<
  DefinitionsOf<Entry>,
  { readonly settings: { readonly version: Version } }
>;

/** Takes a handler for one version of a type. */
export type Register = (bound: BoundJob, handler: Handler) => void;

/** One version of a job type: makes its jobs and handles them. */
export class JobVersionFace<Definition extends JobDefinition> extends JobCreator<
  InputOf<Definition>,
  Stored<PayloadOf<Definition>>,
  ValueOf<Definition>
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
   * Registers the handler of this version. Throws `InvalidHandler` when it has one already
   * or the service has started.
   */
  handle(handler: HandlerOf<Definition>): void {
    // The worker checks the payload against the schema that the handler's type comes from.
    this.#register(this.#bound, handler as Handler);
  }
}

/** A job type: its current version, and through `version` the others. */
export class JobFace<Entry extends JobEntry> extends JobVersionFace<CurrentOf<Entry>> {
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
  ): JobVersionFace<DefinitionAt<Entry, Version>> {
    const face = this.#versions.get(version);
    if (face === undefined) {
      const known = [...this.#versions.keys()].join(", ");
      throw new RangeError(`${this.type} has no version ${version}; the contract names ${known}.`);
    }
    return face as unknown as JobVersionFace<DefinitionAt<Entry, Version>>;
  }
}
