/**
 * Millrace: durable jobs for TypeScript. Define a service and its jobs, connect it to a store,
 * create jobs, handle them.
 *
 * @packageDocumentation
 */

// Define: job types, services, and what their options may be.

export type { AcceptedContract, ContractStanding } from "./contract/acceptance.js";
export {
  defineJob,
  defineService,
  type JobSpec,
  type ServiceOptions,
  versions,
} from "./contract/define.js";
export type {
  JobDefinition,
  JobEntries,
  JobEntry,
  JobVersions,
  ScheduleDefinition,
  Schema,
  ServiceContract,
} from "./contract/definition.js";
export {
  type ChangeKind,
  type ContractChange,
  type ContractDiff,
  contractDiff,
} from "./contract/diff.js";
export { InvalidDefinition } from "./contract/errors.js";
export type { Hook, HookJob, JobHooks } from "./contract/hooks.js";
export type { IsolateOptions, IsolateSettings } from "./contract/isolate.js";
export { type JobManifest, type Manifest, manifest } from "./contract/manifest.js";
export {
  type ScheduleInput,
  type ScheduleOptions,
  type ScheduleSpec,
  scheduleFields,
  schedulesMax,
} from "./contract/schedules.js";
export type { SchemaIssue } from "./contract/schema.js";
export type {
  JobOptions,
  JobSettings,
  KeyConcurrencyOptions,
  QueueOptions,
  RetentionOptions,
  RetryOptions,
} from "./contract/settings.js";
export type { Backoff, BackoffName, ExponentialBackoff } from "./core/retry.js";

// Connect: from a contract and a URL to a service.

export type { ContractState } from "./client/contract.js";
export type { KeeperTimings } from "./keeper/keeper.js";
export type {
  ChainOf,
  Chains,
  CompleteStepOf,
  CompletionOf,
  JobOfTypes,
  SyncCompleteStepOf,
  SyncCompletionOf,
} from "./service/chains.js";
export { type ConnectOptions, connect } from "./service/connect.js";
export { InvalidHandler, ServiceStopped } from "./service/errors.js";
export type {
  ChainOutputOf,
  ContinueWith,
  HandlerOf,
  IsolatedHandler,
  OutsideHandlerOf,
  RouteHandler,
} from "./service/inferred.js";
export type { HandleOptions, JobFace, JobVersionFace } from "./service/job-face.js";
export type { AnyService, Handlers, Service, ServiceJobs } from "./service/service.js";

// Create, wait and command. Expected failures are `Result` values with tagged errors.

export { Result } from "better-result";
export type { AsyncResult } from "./client/async-result.js";
export type { BlockerInput, BlockerInputs } from "./client/blockers.js";
export { ChainRef } from "./client/chain-ref.js";
export type {
  ChainSnapshot,
  ChainsFilter,
  DeleteChainOptions,
} from "./client/chains.js";
export type { CompleteOptions, SyncCompleteOptions } from "./client/completion.js";
export type { CompleteFailure } from "./client/completion-steps.js";
export type { Continuation, ContinuationOptions } from "./client/continuation.js";
export type { InsideFailure } from "./client/create-inside.js";
export type {
  CreateOptions,
  IdempotencyOptions,
  NewJob,
  SyncCreateOptions,
} from "./client/create-options.js";
export { createManyMax } from "./client/create-refusals.js";
export {
  CommandRefused,
  DeliveryNotFound,
  EncryptionRequired,
  IdempotencyConflict,
  InvalidBlocker,
  InvalidOption,
  InvalidPayload,
  InvalidResult,
  JobAlreadyCompleted,
  JobEnded,
  JobExists,
  JobNotEnqueued,
  JobNotFound,
  MigrationNotAccepted,
  QueueExists,
  ScheduleDeclared,
  ScheduleExists,
  ScheduleNotFound,
  SignatureInvalid,
  SignatureRequired,
  WaitAborted,
  WaitTimeout,
  WebhookNotFound,
} from "./client/errors.js";
export type {
  CreateFailure,
  JobCreator,
  Submission,
  SubmitFailure,
} from "./client/job-creator.js";
export type { CancelOutcome, CommandFailure, JobRef, JobSnapshot } from "./client/job-ref.js";
export { type SigningOptions, signJob } from "./client/signing.js";
export { generateSigningKeys, type SigningKeys } from "./client/signing-keys.js";
export type { SyncUntypedOptions, UntypedJobs, UntypedOptions } from "./client/untyped.js";
export {
  DecryptionFailed,
  type EncryptionKey,
  type EncryptionOptions,
  generateEncryptionKey,
} from "./client/vault.js";
export type { WaitFailure, WaitOptions } from "./client/wait.js";
export type { Stored } from "./contract/stored.js";

// Transactions of the caller's own database client.

export {
  type BetterSqliteClient,
  betterSqliteTransactions,
} from "./client/transactions/better-sqlite.js";
export {
  type DrizzleSql,
  drizzleTransactions,
  fromDrizzle,
} from "./client/transactions/drizzle.js";
export { knexTransactions } from "./client/transactions/knex.js";
export { kyselyTransactions } from "./client/transactions/kysely.js";
export { type PgClient, pgTransactions } from "./client/transactions/node-postgres.js";
export { postgresJsTransactions } from "./client/transactions/postgres-js.js";
export { prismaTransactions } from "./client/transactions/prisma.js";
export type {
  AsyncTransactionSource,
  SyncTransactionSource,
  TransactionSource,
} from "./client/transactions/source.js";
export type { SqlExecutor, TransactionClient } from "./client/transactions/transaction-client.js";
export { typeOrmTransactions } from "./client/transactions/typeorm.js";
export type { CallerTransaction } from "./engine/transaction.js";

// Handle: what a handler gets, and what it may say besides a result.

export {
  type AbortReason,
  type ActiveJob,
  type AnyComplete,
  type AnyPrepare,
  type Complete,
  type CompleteStep,
  JobAborted,
  type KeyHold,
  type Prepare,
  type PrepareMode,
} from "./worker/active-job.js";
export type { BlockerOutcome } from "./worker/blockers.js";
export { HandlerNotLoaded } from "./worker/isolate/errors.js";
export type { IsolatedJob } from "./worker/isolate/isolated-job.js";
export type {
  ModuleParts,
  OutsideJob,
  OutsideSteps,
  ProgramParts,
} from "./worker/isolate/outside-handler.js";
export {
  chain,
  InvalidMiddleware,
  type Middleware,
  type MiddlewareContext,
  type Next,
} from "./worker/middleware.js";
export { logging, type TryOutcome, type TryTiming, timing } from "./worker/observe.js";
export { type Completed, type HandlerOutcome, skip, snooze, terminate } from "./worker/outcome.js";
export { type RateLimitOptions, rateLimit } from "./worker/rate-limit.js";
export { NoHandler, type RouteOptions } from "./worker/route.js";
export { limitByTag, type TagLimits } from "./worker/tag-limit.js";

// Read and operate.

export type { AuditAction, AuditAsk, AuditEvent, AuditPage } from "./client/audit.js";
export type { PresentType, WorkerPresence, WorkerRow } from "./client/presence.js";
export type { Keys, QueueChange, Queues } from "./client/queues.js";
export type { JobDetails, KeyAsk, PageAsk, ReadFilter, Reads } from "./client/reads.js";
export type { CreateScheduleFailure, Schedule, Schedules } from "./client/schedules.js";
export type { SkipReason } from "./client/stored-schedule.js";
export type { DeliveryAnswer } from "./client/webhooks/deliverer.js";
export {
  type WebhookChange,
  type WebhookInput,
  webhookFields,
} from "./client/webhooks/options.js";
export {
  type DisabledReason,
  type WebhookDelivery,
  webhooksMax,
} from "./client/webhooks/stored-webhook.js";
export type { Webhook, Webhooks, WebhookWithSecret } from "./client/webhooks/webhooks.js";
export type {
  BlockerRow,
  ChainRow,
  JobFilter,
  JobRow,
  KeyHolder,
  KeyRow,
  Page,
  QueueRow,
  StateCount,
} from "./engine/query.js";
export type { QueueSettings } from "./engine/record.js";

// The model: jobs, their events, and why they do not run.

export { type CloudEvent, cloudEvent, eventNames } from "./core/cloud-event.js";
export type { EventName, EventOf, JobEvent } from "./core/event.js";
export {
  type Actor,
  type Blocker,
  type EndedState,
  endedStates,
  type HookName,
  isEnded,
  type Job,
  type JobContext,
  type JobError,
  type JobSecrets,
  type JobSignature,
  type JobState,
  jobStates,
  type LogEntry,
  type Progress,
  type StalePolicy,
  type WhenFull,
} from "./core/job.js";
export type { Json } from "./core/json.js";
export type { CatchUp, Overlap, ScheduleTiming } from "./core/schedule.js";
export { redactEvent, redactJob } from "./core/secrets.js";
export type { OpenBlocker, Why } from "./core/why.js";

// The store, and what a service may be given in place of the system's own.

export type { IdSource } from "./client/ids.js";
export type { WebhookSettings } from "./client/runtime.js";
export type { Capabilities } from "./engine/capabilities.js";
export type { Clock } from "./engine/clock.js";
export type { Engine, FeedItem } from "./engine/engine.js";
export {
  isStoreError,
  StoreBusy,
  StoreClosed,
  StoreCorrupt,
  type StoreError,
  StoreFailed,
  StoreFull,
  StoreReadOnly,
  StoreTooNew,
  StoreUnavailable,
  TransactionConflict,
  type TransactionError,
  TransactionRefused,
  TransactionsNotSupported,
} from "./engine/errors.js";
export type { Logger } from "./engine/logger.js";
export { openEngine } from "./engine/open.js";
