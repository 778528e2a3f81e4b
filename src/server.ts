/**
 * `millrace/server`: the HTTP API over any store, as a server or in the process that asks it.
 *
 * @packageDocumentation
 */

export type { AuthMode } from "./server/http/backend.js";
export type { Caller, Capability } from "./server/http/caller.js";
export type { ListenOptions } from "./server/http/listener.js";
export { type OpenApp, openApp, type RunningServer, startServer } from "./server/http/server.js";
export type { AppOptions, BackendOptions, ServerOptions } from "./server/http/server-options.js";
