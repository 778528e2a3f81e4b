/**
 * What every part of the client works with: the runtime, the contract's job types,
 * the shared watcher, and the trace of the code that runs now.
 */
import { type BoundJob, boundJobs, type ServiceContract } from "../contract/definition.js";
import { OnItsWay } from "./on-its-way.js";
import type { Runtime } from "./runtime.js";
import { type ActiveTrace, noTrace } from "./trace.js";
import { UnnamedLanes } from "./unnamed-lanes.js";
import { Waiters } from "./waiters.js";

/** The bundle behind refs, creates and reads. */
export interface Client {
  readonly runtime: Runtime;
  readonly waiters: Waiters;
  readonly activeTrace: ActiveTrace;
  readonly onItsWay: OnItsWay;
  readonly unnamedLanes: UnnamedLanes;
  /** A type of the contract at a version, if the contract names it. */
  boundJob(type: string, version: number): BoundJob | undefined;
  /** A type of the contract at its current version, if the contract names it. */
  currentJob(type: string): BoundJob | undefined;
}

/** Makes a client of a service. */
export function createClient(
  runtime: Runtime,
  contract: ServiceContract,
  activeTrace: ActiveTrace = noTrace,
): Client {
  const jobs = boundJobs(contract);
  const bound = new Map(jobs.map((job) => [`${job.type}@${job.definition.settings.version}`, job]));
  // The versions of a type come lowest first, so that the last one stays.
  const current = new Map(jobs.map((job) => [job.type, job]));
  return {
    runtime,
    waiters: new Waiters(runtime),
    activeTrace,
    onItsWay: new OnItsWay(runtime.clock),
    unnamedLanes: new UnnamedLanes(runtime),
    boundJob: (type, version) => bound.get(`${type}@${version}`),
    currentJob: (type) => current.get(type),
  };
}
