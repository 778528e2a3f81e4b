// A worker of Millrace with handlers that do nothing.
import type { HostOpener, WorkerHost } from "../worker/host.js";
import { type BenchService, openService } from "./contract.js";

/** Connects a worker to a store that processes share. */
export const openHost: HostOpener = async (url, onEntry) => hostOn(await openService(url), onEntry);

/** A worker on a service that is connected already. */
export function hostOn(service: BenchService, onEntry: (number: number) => void): WorkerHost {
  for (const type of ["plain", "keyed", "capped"] as const) {
    service.jobs[type].handle(({ payload }) => onEntry(payload.number));
  }
  return { start: () => service.start(), stop: () => service.stop() };
}
