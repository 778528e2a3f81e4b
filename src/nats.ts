/**
 * `millrace/nats`: the admin calls over NATS, served and made, what users of a deployment have to be allowed, and
 * handlers that are asked over NATS.
 *
 * @packageDocumentation
 */

// Permissions: what each user of a deployment needs, and no more.

export {
  type InboxOwner,
  inboxPrefix,
  type PermissionScope,
  type Permissions,
  permissionsOf,
  permissionsText,
  type Role,
} from "./engine/nats/permissions.js";

// The admin runtime, and the admin calls: who serves them and who makes them.

export type { ProjectionStatus } from "./engine/projection/projection.js";
export { type AdminOptions, type AdminRuntime, startAdmin } from "./server/admin.js";
export type {
  DeadFilterInput,
  FilterInput,
  IdInput,
  JobsCallName,
  JobsCalls,
  KeyInput,
  OneJob,
  PageInput,
} from "./server/calls.js";
export {
  type AdminError,
  NotFoundError,
  UnavailableError,
  ValidationError,
} from "./server/errors.js";
export { JobsClient, type JobsClientOptions } from "./server/jobs-client.js";
export { JobsServer, type JobsServerOptions } from "./server/jobs-server.js";
export type {
  ConcurrencyWire,
  HealthCheck,
  HealthWire,
  JobWire,
  KeyWire,
  LogWire,
  PageWire,
  ServiceWire,
  WorkerWire,
} from "./server/wire.js";

// Remote handlers: whoever answers a request carries out the job.

export { type RemoteFailureCode, RemoteHandlerFailed } from "./server/remote/errors.js";
export {
  type RemoteHandlers,
  type RemoteHandlersOptions,
  remoteHandlers,
} from "./server/remote/remote-handlers.js";
export type { RemoteJob } from "./server/remote/wire.js";
