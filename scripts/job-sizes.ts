// Measures what an ended job takes in each store: runs jobs, and divides what the store has grown by their number.
// `npm run sizes` prints the table of docs/guides/retention.md.
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { availableParallelism, cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectNats } from "@nats-io/transport-node";
import Database from "better-sqlite3";
import { connect, defineJob, defineService } from "millrace";
import { Client } from "pg";
import { z } from "zod";
import { startNats } from "./nats-server.js";
import { startPostgres } from "./postgres-server.js";

/** What grows by far less than a job for each job, such as the first pages of a file, is left out by a first run. */
const warmUpJobs = 1_000;
const measuredJobs = 5_000;
const batchJobs = 1_000;

/** A store to measure: its parts by name, each with the way to read its bytes. */
interface MeasuredStore {
  readonly url: string;
  readonly parts: { readonly [name: string]: () => Promise<number> };
}

interface Measurement {
  readonly name: string;
  readonly payloadBytes: number;
  readonly isKept: boolean;
}

const measurements: readonly Measurement[] = [
  { name: "payload of 100 bytes", payloadBytes: 100, isKept: true },
  { name: "payload of 2,000 bytes", payloadBytes: 2_000, isKept: true },
  { name: "discarded at once", payloadBytes: 100, isKept: false },
];

/** Runs jobs to their end. */
async function runJobs(
  url: string,
  count: number,
  { payloadBytes, isKept }: Measurement,
): Promise<void> {
  const type = defineJob({
    payload: z.object({ text: z.string() }),
    result: z.object({ ok: z.boolean() }),
    concurrency: 100,
    ...(isKept ? {} : { retention: { completed: 0 } }),
  });
  const contract = defineService("sizes", { note: type });
  const service = await connect(contract, { url });
  let left = count;
  const handled = new Promise<void>((resolve) => {
    service.jobs.note.handle(() => {
      if (--left === 0) resolve();
      return { ok: true };
    });
  });
  await service.start();
  const length = payloadBytes - '{"text":""}'.length;
  for (let created = 0; created < count; created += batchJobs)
    await service.jobs.note
      .createMany(Array.from({ length: batchJobs }, () => ({ payload: { text: noise(length) } })))
      .orThrow();
  await handled;
  await service.stop();
  // An answer is never older than the log, so that a projection has caught up when it comes.
  const reader = await connect(contract, { url });
  await reader.reads.counts().orThrow();
  await reader.stop();
}

/** Text that no store can compress. */
function noise(length: number): string {
  return randomBytes(length).toString("base64url").slice(0, length);
}

async function measure(
  open: (folder: string) => Promise<MeasuredStore>,
  measurement: Measurement,
): Promise<readonly (readonly [string, number])[]> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-sizes-"));
  try {
    const { url, parts } = await open(folder);
    const read = () => Promise.all(Object.values(parts).map((bytes) => bytes()));
    await runJobs(url, warmUpJobs, measurement);
    const before = await read();
    await runJobs(url, measuredJobs, measurement);
    const after = await read();
    return Object.keys(parts).map((name, place) => {
      const grown = (after[place] ?? 0) - (before[place] ?? 0);
      return [name, grown / measuredJobs];
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The bytes of a file's used pages. */
async function fileBytes(path: string): Promise<number> {
  const database = new Database(path);
  database.pragma("wal_checkpoint(TRUNCATE)");
  const free = Number(database.pragma("freelist_count", { simple: true }));
  const page = Number(database.pragma("page_size", { simple: true }));
  database.close();
  return (await stat(path)).size - free * page;
}

async function openFile(folder: string): Promise<MeasuredStore> {
  const path = join(folder, "jobs.db");
  return { url: `file:${path}`, parts: { "file:": () => fileBytes(path) } };
}

let places = 0;

function openPostgres(serverUrl: string) {
  return async (): Promise<MeasuredStore> => {
    const name = `sizes${++places}`;
    await inDatabase(serverUrl, `CREATE DATABASE ${name}`);
    const url = new URL(serverUrl);
    url.pathname = name;
    const bytes = async () => {
      await inDatabase(url.href, "VACUUM FULL");
      return inDatabase(url.href, "SELECT pg_database_size(current_database()) AS bytes");
    };
    return { url: url.href, parts: { "postgres:": bytes } };
  };
}

async function inDatabase(url: string, statement: string): Promise<number> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query(statement);
    return Number(rows[0]?.bytes ?? 0);
  } finally {
    await client.end();
  }
}

function openNats(serverUrl: string) {
  return async (folder: string): Promise<MeasuredStore> => {
    const prefix = `sizes${++places}`;
    const views = join(folder, "views.db");
    const url = `${serverUrl}?prefix=${prefix}&projection=${encodeURIComponent(`file:${views}`)}`;
    const parts = {
      "nats:": () => streamBytes(serverUrl, prefix.toUpperCase()),
      "its projection": () => fileBytes(views),
    };
    return { url, parts };
  };
}

async function streamBytes(serverUrl: string, prefix: string): Promise<number> {
  const connection = await connectNats({ servers: serverUrl });
  let bytes = 0;
  for await (const { config, state } of (await jetstreamManager(connection)).streams.list())
    if (config.name.replace(/^KV_/, "").startsWith(`${prefix}_`)) bytes += state.bytes;
  await connection.close();
  return bytes;
}

const [postgres, nats] = await Promise.all([startPostgres(), startNats()]);
try {
  console.log(
    `${availableParallelism()} processors (${cpus()[0]?.model}), Node ${process.version}`,
  );
  for (const open of [openFile, openPostgres(postgres.url), openNats(nats.url)])
    for (const measurement of measurements)
      for (const [store, bytes] of await measure(open, measurement))
        console.log(`${store}\t${measurement.name}\t${Math.round(bytes)} bytes per job`);
} finally {
  await Promise.all([postgres.stop(), nats.stop()]);
}
