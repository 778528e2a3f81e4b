/**
 * `millrace service`, `millrace worker list` and `millrace info`: what runs, and where.
 */
import type { Command } from "commander";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import type { Column } from "../table.js";
import { ago, fields } from "../words.js";

interface ServiceAnswer {
  readonly name: string;
  readonly instances: number;
  readonly jobs: Readonly<Record<string, number>>;
  readonly hasContract: boolean;
}

interface WorkerAnswer {
  readonly service: string;
  readonly instance: string;
  readonly version: string;
  readonly host: string;
  readonly pid: number;
  readonly startedAt: string;
  readonly heartbeatAt: string;
  readonly fresh: boolean;
  readonly types: readonly { readonly type: string; readonly active: number }[];
}

interface InfoAnswer {
  readonly version: string;
  readonly engine: { readonly url: string; readonly kind: string };
  readonly auth: string;
  readonly actor: string;
  readonly instance: string;
  readonly startedAt: string;
  readonly counts: Readonly<Record<string, number>>;
}

const serviceColumns: readonly Column<ServiceAnswer>[] = [
  { title: "service", value: ({ name }) => name },
  { title: "workers", value: ({ instances }) => instances },
  { title: "contract", value: ({ hasContract }) => (hasContract ? "accepted" : "none") },
  {
    title: "jobs",
    value: ({ jobs }) =>
      Object.entries(jobs)
        .map(([state, count]) => `${count} ${state}`)
        .join(", "),
    cuts: true,
  },
];

const workerColumns: readonly Column<WorkerAnswer>[] = [
  { title: "service", value: ({ service }) => service },
  { title: "instance", value: ({ instance }) => instance },
  {
    title: "state",
    value: ({ fresh }) => (fresh ? "live" : "lost"),
    paint: (text, { fresh }, colors) => (fresh ? colors.green(text) : colors.red(text)),
  },
  { title: "active", value: ({ types }) => types.reduce((sum, { active }) => sum + active, 0) },
  { title: "heartbeat", value: ({ heartbeatAt }) => ago(heartbeatAt) },
  { title: "started", value: ({ startedAt }) => ago(startedAt) },
  { title: "version", value: ({ version }) => version },
  { title: "types", value: ({ types }) => types.map(({ type }) => type).join(", "), cuts: true },
];

/** Adds the commands about services. */
export function addService(program: Command, run: Run): void {
  const service = group(program, "service", "the services that have jobs, workers or contracts");
  define(service, run, {
    words: "list",
    says: "list services",
    examples: ["millrace service list"],
    run: async (session) => {
      const answer = await ask<{ entries: ServiceAnswer[] }>(
        await session.api(),
        "GET",
        "/v1/services",
      );
      session.output.list(answer, serviceColumns);
    },
  });
  define(service, run, {
    words: "get <service>",
    says: "show a service",
    examples: ["millrace service get shop"],
    run: async (session, { args: [name = ""] }) => {
      const found = await ask<ServiceAnswer>(
        await session.api(),
        "GET",
        path`/v1/services/${name}`,
      );
      session.output.document(found, () => session.output.table([found], serviceColumns));
    },
  });
}

/** Adds `list` to the group of workers. */
export function addWorkerList(worker: Command, run: Run): void {
  define<{ service?: string }>(worker, run, {
    words: "list",
    says: "list workers, and whether they live",
    examples: ["millrace worker list --service shop"],
    options: [option("--service <name>", "of this service")],
    run: async (session, { options: { service } }) => {
      const options = { query: { service } };
      const answer = await ask<{ entries: WorkerAnswer[] }>(
        await session.api(),
        "GET",
        "/v1/workers",
        options,
      );
      session.output.list(answer, workerColumns);
    },
  });
}

/** Adds `info`. */
export function addInfo(program: Command, run: Run): void {
  define(program, run, {
    words: "info",
    says: "say what a server or store is, and how much is in it",
    examples: ["millrace info", "millrace info --server https://jobs.example"],
    run: async (session) => {
      const info = await ask<InfoAnswer>(await session.api(), "GET", "/v1/info");
      session.output.document(info, () =>
        fields(
          [
            ["version", info.version],
            ["store", `${info.engine.url} (${info.engine.kind})`],
            ["auth", info.auth],
            ["you are", info.actor],
            ["instance", info.instance],
            ...Object.entries(info.counts),
          ],
          session.output.colors,
        ),
      );
    },
  });
}
