/**
 * What follows from a contract for the types of those who use it: payloads, results, versions,
 * and what a job may continue with.
 */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { BlockerInput } from "../client/blockers.js";
import type { ChainRef } from "../client/chain-ref.js";
import type { Continuation, ContinuationOptions } from "../client/continuation.js";
import type { CreateOptions, OptionsArgument } from "../client/create-options.js";
import type { JobRef } from "../client/job-ref.js";
import type {
  JobDefinition,
  JobEntries,
  JobEntry,
  JobVersions,
  Schema,
} from "../contract/definition.js";
import type { Stored } from "../contract/stored.js";
import type { Json } from "../core/json.js";
import type { ActiveJob, AnyComplete, Complete, Prepare } from "../worker/active-job.js";
import type { BlockerOutcome } from "../worker/blockers.js";
import type { IsolatedJob } from "../worker/isolate/isolated-job.js";
import type { ModuleParts, OutsideSteps, ProgramParts } from "../worker/isolate/outside-handler.js";
import type { Completed, HandlerOutcome } from "../worker/outcome.js";

/** What `create` takes for a definition. */
export type InputOf<Definition extends JobDefinition> = StandardSchemaV1.InferInput<
  Definition["payload"]
>;

/** The payload that a definition's handler gets. */
export type PayloadOf<Definition extends JobDefinition> = StandardSchemaV1.InferOutput<
  Definition["payload"]
>;

/** The result that a definition's jobs end with; any JSON where it names no schema, none where they were continued. */
export type ValueOf<Definition extends JobDefinition> =
  | (Definition["result"] extends Schema
      ? Stored<StandardSchemaV1.InferOutput<Definition["result"]>>
      : Json | undefined)
  | (IsContinued<Definition> extends true ? undefined : never);

/** The names of the job types that a definition may continue with. */
export type ContinuationsOf<Definition extends JobDefinition> =
  Definition["settings"]["continuations"][number];

/** Whether a definition names continuations. */
type IsContinued<Definition extends JobDefinition> = [ContinuationsOf<Definition>] extends [never]
  ? false
  : true;

/**
 * Whether a definition names continuations and no result, so that its jobs end with a continuation only. One whose type does not
 * tell is judged when its handler is registered.
 */
type AlwaysContinues<Definition extends JobDefinition> = Definition["result"] extends undefined
  ? string extends ContinuationsOf<Definition>
    ? false
    : IsContinued<Definition>
  : false;

/** What a handler of a definition may complete its job with, besides a continuation. */
export type OwnValueOf<Definition extends JobDefinition> = Definition["result"] extends Schema
  ? StandardSchemaV1.InferInput<Definition["result"]>
  : IsContinued<Definition> extends true
    ? never
    : unknown;

/** Asks for the next job of a chain: of a type that the definition names, with a payload that fits that type. */
export type ContinueWith<
  Definition extends JobDefinition,
  Entries extends JobEntries,
> = ContinueWithNamed<ContinuationsOf<Definition>, Entries>;

/** Asks for the next job of a chain, of a type that is among some names. */
export type ContinueWithNamed<Names, Entries extends JobEntries> = <
  const Type extends Names & keyof Entries & string,
>(
  type: Type,
  payload: InputOf<CurrentOf<Entries[Type]>>,
  ...options: CreateArgument<CurrentOf<Entries[Type]>, Entries, "continuation">
) => Continuation<Type>;

/** The options of a create of a definition, or of one of several, as the last argument of a call. */
export type CreateArgument<
  Definition extends JobDefinition,
  Entries extends JobEntries,
  Call extends "create" | "continuation",
> = Definition extends JobDefinition
  ? OptionsArgument<
      Call extends "create"
        ? CreateOptions<BlockerInputsOf<Definition, Entries>>
        : ContinuationOptions<BlockerInputsOf<Definition, Entries>>,
      BlockerInputsOf<Definition, Entries>
    >
  : never;

/** The blockers that a definition names, each with its type. */
type BlockersOf<Definition extends JobDefinition> = NonNullable<Definition["settings"]["blockers"]>;

/** What a create of a definition takes as blockers: those that it names, or a list. */
export type BlockerInputsOf<Definition extends JobDefinition, Entries extends JobEntries> = [
  BlockersOf<Definition>,
] extends [never]
  ? readonly BlockerInput[]
  : {
      readonly [Name in keyof BlockersOf<Definition> & string]: BlockerInputOf<
        Entries,
        BlockersOf<Definition>[Name]
      >;
    };

type BlockerInputOf<Entries extends JobEntries, Type extends string> = Type extends keyof Entries
  ? BlockerInput<
      JobRef<Stored<PayloadOf<CurrentOf<Entries[Type]>>>, ValueOf<CurrentOf<Entries[Type]>>>,
      ChainRef<Type>
    >
  : never;

/** What a handler of a definition finds under the names of its blockers: the outcome of a job, or of a chain. */
type BlockerOutcomesOf<Definition extends JobDefinition, Entries extends JobEntries> = {
  readonly [Name in BlockerNamesOf<Definition>]: BlockersOf<Definition>[Name] extends infer Type extends
    keyof Entries
    ? BlockerOutcome<ValueOf<CurrentOf<Entries[Type]>> | ChainOutputOf<Entries, Type>>
    : never;
};

/** The names of a definition's blockers; none where it names none, of which `keyof never` would be every name. */
type BlockerNamesOf<Definition extends JobDefinition> = [BlockersOf<Definition>] extends [never]
  ? never
  : keyof BlockersOf<Definition>;

/** What a handler of a definition gets. */
type ActiveJobOf<Definition extends JobDefinition, Entries extends JobEntries, Tx> = ActiveJob<
  PayloadOf<Definition>,
  Complete<OwnValueOf<Definition> | Continuation, ContinueWith<Definition, Entries>, Tx>,
  Prepare<Tx>,
  BlockerOutcomesOf<Definition, Entries>
>;

/** What a handler of a definition may return. */
type ReturnOf<Definition extends JobDefinition> =
  | OwnValueOf<Definition>
  | HandlerOutcome
  | Completed;

/**
 * Carries out jobs of a definition. A value completes the job, a thrown error is tried again.
 * `Tx` is the client of the handler's transactions, as `connect` was given it.
 */
export type HandlerOf<
  Definition extends JobDefinition,
  Entries extends JobEntries = JobEntries,
  Tx = undefined,
> = (
  job: ActiveJobOf<Definition, Entries, Tx>,
) => ReturnOf<Definition> | Promise<ReturnOf<Definition>>;

/** What a handler outside gives: the result, or anything where the definition has none. */
type OutsideValueOf<Definition extends JobDefinition> = Definition["result"] extends Schema
  ? StandardSchemaV1.InferInput<Definition["result"]>
  : unknown;

/**
 * A handler that runs in a process of its own: a module, or a program. With `complete`, which runs in the worker,
 * what it gives is not the result yet; a definition whose jobs always continue needs it.
 */
export type OutsideHandlerOf<
  Definition extends JobDefinition,
  Entries extends JobEntries = JobEntries,
  Tx = undefined,
> = StepsOf<Definition, Entries, Tx> &
  (AlwaysContinues<Definition> extends true
    ? Required<Pick<StepsOf<Definition, Entries, Tx>, "complete">>
    : unknown) &
  (ModuleParts | ProgramParts<PayloadOf<Definition>>);

type StepsOf<Definition extends JobDefinition, Entries extends JobEntries, Tx> = OutsideSteps<
  PayloadOf<Definition>,
  Stored<OutsideValueOf<Definition>>,
  OwnValueOf<Definition> | Continuation,
  ContinueWith<Definition, Entries>,
  Tx
>;

/**
 * The handler that the module of an isolated type has as its default export. What it gets and gives went, or goes,
 * through JSON. `Version` names another version than the current one.
 *
 * @example
 * const transcode: IsolatedHandler<typeof video.jobs.transcode> = async (job) => ({ frames: 100 });
 * export default transcode;
 */
export type IsolatedHandler<
  Entry extends JobEntry,
  Version extends VersionOf<Entry> = CurrentOf<Entry>["settings"]["version"],
> = (
  job: IsolatedJob<Stored<PayloadOf<DefinitionAt<Entry, Version>>>>,
) => IsolatedReturnOf<DefinitionAt<Entry, Version>>;

type IsolatedReturnOf<Definition extends JobDefinition> =
  | OutsideValueOf<Definition>
  | HandlerOutcome
  | Promise<OutsideValueOf<Definition> | HandlerOutcome>;

/** Carries out jobs of types that no contract names, whose payload may be any JSON. */
export type RouteHandler<Tx = undefined> = (
  job: ActiveJob<Json, AnyComplete, Prepare<Tx>>,
) => unknown;

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

/** The job types that those of some names continue with. */
type NextOf<Entries extends JobEntries, Names> = Names extends keyof Entries
  ? ContinuationsOf<CurrentOf<Entries[Names]>>
  : never;

/** The job types that a chain can come to: the first ones and what continues them, until nothing new is added. */
export type ReachedFrom<Entries extends JobEntries, Names> = [NextOf<Entries, Names>] extends [
  Names,
]
  ? Names
  : ReachedFrom<Entries, Names | NextOf<Entries, Names>>;

/** What a chain that starts with a type ends with: the results of all types at which it can end. */
export type ChainOutputOf<Entries extends JobEntries, Type> = EndingsOf<
  Entries,
  ReachedFrom<Entries, Type>
>;

type EndingsOf<Entries extends JobEntries, Names> = Names extends keyof Entries
  ? EndingOf<CurrentOf<Entries[Names]>>
  : never;

/** The result of a definition where a chain ends with it; one that always continues has none. */
type EndingOf<Definition extends JobDefinition> = Definition["result"] extends Schema
  ? Stored<StandardSchemaV1.InferOutput<Definition["result"]>>
  : IsContinued<Definition> extends true
    ? never
    : Json | undefined;
