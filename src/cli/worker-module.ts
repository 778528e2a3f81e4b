/**
 * Modules that users write for `worker`, `dev` and `contract`. The default export is either
 * `{ contract, handlers }`, or a function that is given the options of `connect` and gives a connected service;
 * such a module exports its `contract` by name, too.
 */
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { ServiceContract } from "../contract/definition.js";
import type { ConnectOptions } from "../service/connect.js";
import type { Handlers, Service } from "../service/service.js";
import { Failure, messageOf } from "./failure.js";

/** Creates sample jobs for `dev`, until it is done or the signal aborts. */
export type Sample = (parts: {
  readonly service: Service;
  readonly signal: AbortSignal;
  /** What `--sample name=value` gave. */
  readonly options: Readonly<Record<string, string>>;
}) => Promise<void>;

/** A module that was loaded. */
export interface WorkerModule {
  readonly path: string;
  readonly contract: ServiceContract | undefined;
  /** Connects the service and registers its handlers. */
  connect(options: ConnectOptions): Promise<Service>;
  readonly sample: Sample | undefined;
}

type Members = Readonly<Record<string, unknown>>;

/** Loads a module. */
export async function loadModule(given: string): Promise<WorkerModule> {
  const path = resolve(given);
  if (/\.[cm]?tsx?$/.test(path)) await allowTypeScript(path);
  const exported = await importModule(given, path);
  const main = exported.default;
  const isFactory = typeof main === "function";
  const members = isFactory ? exported : isMembers(main) ? main : exported;
  const contract = contractIn(main) ?? contractIn(members.contract);
  if (!isFactory && contract === undefined)
    throw new Failure(
      "usage",
      `${given} exports no contract; its default export is { contract, handlers }, or a function that connects a service.`,
    );
  const sample = typeof members.sample === "function" ? (members.sample as Sample) : undefined;
  const connectService = async (options: ConnectOptions): Promise<Service> => {
    if (isFactory) return checkedService(given, await (main as Factory)(options));
    if (contract === undefined) throw new Error("A module without a contract was let through.");
    const { connect } = await import("../service/connect.js");
    const service = await connect(contract, options);
    service.handle((members.handlers ?? {}) as Handlers<ServiceContract["jobs"]>);
    return service;
  };
  return { path, contract, connect: connectService, sample };
}

/** The contract of a module, for commands that need nothing else of it. */
export async function loadContract(given: string): Promise<ServiceContract> {
  const { contract } = await loadModule(given);
  if (contract !== undefined) return contract;
  throw new Failure("usage", `${given} exports no contract; export it by the name contract.`);
}

interface TsxPackage {
  readonly exports: { readonly "./esm/api": { readonly import: { readonly default: string } } };
}

type Factory = (options: ConnectOptions) => unknown;

async function importModule(given: string, path: string): Promise<Members> {
  try {
    return (await import(pathToFileURL(path).href)) as Members;
  } catch (error) {
    throw new Failure("usage", `${given} cannot be loaded: ${messageOf(error)}`);
  }
}

/** Node.js of this age runs no TypeScript by itself; tsx does, if it is installed next to the module or here. */
async function allowTypeScript(path: string): Promise<void> {
  for (const place of [path, join(process.cwd(), "package.json"), import.meta.filename]) {
    let description: string;
    try {
      description = createRequire(place).resolve("tsx/package.json");
    } catch {
      continue;
    }
    // `require.resolve` would give what tsx has for `require`.
    const { exports } = createRequire(place)(description) as TsxPackage;
    const api = resolve(dirname(description), exports["./esm/api"].import.default);
    const { register } = (await import(pathToFileURL(api).href)) as { register(): unknown };
    register();
    return;
  }
  const message =
    'TypeScript modules need tsx; install it with "npm install --save-dev tsx", or give a JavaScript file.';
  throw new Failure("usage", message);
}

function contractIn(value: unknown): ServiceContract | undefined {
  return isMembers(value) && value.kind === "service"
    ? (value as unknown as ServiceContract)
    : undefined;
}

function checkedService(given: string, service: unknown): Service {
  const isService =
    isMembers(service) && ["start", "stop"].every((name) => typeof service[name] === "function");
  if (isService) return service as unknown as Service;
  throw new Failure("usage", `The function that ${given} exports must give a connected service.`);
}

function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null;
}
