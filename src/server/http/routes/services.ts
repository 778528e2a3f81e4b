/**
 * Services and workers: who is there, and how much each has to do.
 */
import { z } from "zod";
import { workerRows } from "../../../client/presence.js";
import type { JobState } from "../../../core/job.js";
import { recordId } from "../../../engine/record.js";
import type { Backend } from "../backend.js";
import { errorOut } from "../openapi.js";
import { notFound } from "../refusal.js";
import { ok, type Route, route } from "../route.js";
import { listOf, name } from "../wire/common.js";
import { serviceOut, workerBody, workerOut } from "../wire/operate.js";

const group = "Services";

/** How many contracts are looked through for services without jobs. */
const contractsMax = 1_000;
const recordsMax = 10_000;

/** The routes of services and workers. */
export const serviceRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/services",
    operation: "listServices",
    group,
    summary: "The services that have jobs, workers or a contract.",
    needs: "admin.read",
    answers: { 200: { description: "The services.", body: listOf(serviceOut) } },
    handle: async ({ backend }) => ok({ entries: await services(backend) }),
  }),
  route({
    method: "get",
    path: "/v1/services/{service}",
    operation: "getService",
    group,
    summary: "A service.",
    needs: "admin.read",
    params: z.object({ service: name("service") }),
    answers: {
      200: { description: "The service.", body: serviceOut },
      404: { description: "There is no such service.", body: errorOut },
    },
    handle: async ({ backend, params }) => {
      const found = (await services(backend)).find((service) => service.name === params.service);
      if (found === undefined) throw notFound("service", params.service);
      return ok(found);
    },
  }),
  route({
    method: "get",
    path: "/v1/workers",
    operation: "listWorkers",
    group,
    summary: "The worker processes, with the age of their heartbeats.",
    needs: "admin.read",
    query: z.object({ service: name("service").optional() }),
    answers: { 200: { description: "The workers.", body: listOf(workerOut) } },
    handle: async ({ backend, query }) => {
      const rows = await workerRows(backend.engine, query.service);
      return ok({ entries: rows.map(workerBody) });
    },
  }),
];

/** The names of all services that have jobs, workers, a contract, schedules or webhooks. */
export async function serviceNames({
  engine,
}: Pick<Backend, "engine">): Promise<readonly string[]> {
  const prefixes = [recordId.contracts, recordId.schedules(), recordId.webhooks()];
  const [counts, workers, ...records] = await Promise.all([
    engine.query("counts", {}),
    workerRows(engine),
    ...prefixes.map((prefix) => engine.query("records", { prefix, limit: recordsMax })),
  ]);
  const named = records.flat().map(({ id }) => id.split("/")[1] ?? "");
  return [...new Set([...counts, ...workers].map(({ service }) => service).concat(named))].sort();
}

async function services(backend: Backend) {
  const { engine } = backend;
  const [names, counts, workers, contracts] = await Promise.all([
    serviceNames(backend),
    engine.query("counts", {}),
    workerRows(engine),
    engine.query("records", { prefix: recordId.contracts, limit: contractsMax }),
  ]);
  const withContract = new Set(contracts.map(({ id }) => id.slice(recordId.contracts.length)));
  return names.map((service) => {
    const jobs: { [State in JobState]?: number } = {};
    for (const { service: owner, state, count } of counts)
      if (owner === service) jobs[state] = (jobs[state] ?? 0) + count;
    const instances = workers.filter((row) => row.service === service && row.fresh).length;
    return { name: service, instances, hasContract: withContract.has(service), jobs };
  });
}
