// The stores that behaviour is proven on, and services on a fresh one of each.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type ConnectOptions,
  connect,
  type JobEntries,
  type Service,
  type ServiceContract,
} from "millrace";
import { onTestFinished } from "vitest";

export interface Store {
  readonly name: string;
  /** The URL of a store that nobody has used; it is gone after the test. */
  freshUrl(): Promise<string>;
}

export const stores: readonly Store[] = [
  { name: "memory", freshUrl: async () => "memory:" },
  {
    name: "sqlite",
    freshUrl: async () => {
      const folder = await mkdtemp(join(tmpdir(), "millrace-"));
      onTestFinished(() => rm(folder, { recursive: true, force: true }));
      return `file:${join(folder, "jobs.db")}`;
    },
  },
];

/** A service on a fresh store, stopped after the test. */
export async function openService<Entries extends JobEntries>(
  store: Store,
  contract: ServiceContract<Entries>,
  options: ConnectOptions = {},
): Promise<Service<Entries>> {
  const url = await store.freshUrl();
  const service = await connect(contract, { url, ...options });
  onTestFinished(() => service.stop());
  return service;
}
