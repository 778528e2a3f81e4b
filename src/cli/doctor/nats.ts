/**
 * What the doctor looks at of a `nats:` store. Streams are looked at, and neither made nor changed.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type Address, addressOf } from "../../engine/nats/address.js";
import { openConnection } from "../../engine/nats/connection.js";
import { loadNats } from "../../engine/nats/libraries.js";
import { inboxPrefix } from "../../engine/nats/permissions.js";
import { deploymentNames, layoutKey, layoutVersion } from "../../engine/nats/streams.js";
import { messageOf } from "../failure.js";
import { clockFinding, type Finding, failed, note, ok, schemaFinding, warning } from "./finding.js";
import { driverFinding, notThereYet } from "./machine.js";

const requestTimeoutMs = 5_000;

/** The first server that works, and the first that stores batches well. */
const versionNeeded = [2, 11, 0] as const;
const versionOfBatches = [2, 14, 4] as const;

/** The least message size: a payload and a result of 256 KiB, with room for the rest of an event. */
const payloadNeededBytes = 1024 * 1024;

interface StreamInfo {
  readonly error?: { readonly description?: string; readonly code?: number };
  readonly config?: {
    readonly num_replicas?: number;
    readonly allow_atomic?: boolean;
    readonly metadata?: Readonly<Record<string, string>>;
  };
  readonly cluster?: { readonly replicas?: readonly unknown[] };
  readonly ts?: string;
}

/** Looks at a server and the deployment that a URL names. `monitor` is the server's own HTTP port, if it has one. */
export async function natsFindings(url: string, monitor?: string): Promise<readonly Finding[]> {
  const driver = driverFinding("@nats-io/transport-node");
  if (driver.status === "failed") return [driver];
  const address = addressOf(url);
  let connection: NatsConnection;
  try {
    const nats = await loadNats(address.where);
    const inbox = address.inbox ?? inboxPrefix(address.prefix, address.service);
    connection = await openConnection(nats, address, { name: "millrace doctor", inbox });
  } catch (error) {
    const remedy = "Check host, port and credentials, and that the server runs.";
    return [driver, failed("server", messageOf(error), remedy)];
  }
  try {
    return [
      driver,
      ...serverFindings(connection),
      ...(await streamFindings(connection, address)),
      await syncFinding(monitor),
    ];
  } finally {
    await connection.close();
  }
}

function serverFindings({ info }: NatsConnection): readonly Finding[] {
  const version = info?.version ?? "0.0.0";
  const says = `nats-server is ${version}.`;
  const findings: Finding[] = [];
  if (isOlder(version, versionNeeded))
    findings.push(failed("server", says, `Upgrade to ${versionNeeded.join(".")} or newer.`));
  else if (isOlder(version, versionOfBatches))
    findings.push(
      warning(
        "server",
        `${says} It does not store batches well, so that events go one by one.`,
        `Upgrade to ${versionOfBatches.join(".")} or newer.`,
      ),
    );
  else findings.push(ok("server", says));
  findings.push(
    info?.jetstream === true
      ? ok("jetstream", "JetStream is on.")
      : failed(
          "jetstream",
          "JetStream is off.",
          "Add a jetstream block to the server's configuration.",
        ),
  );
  const bytes = info?.max_payload ?? 0;
  findings.push(
    bytes >= payloadNeededBytes
      ? ok("message size", `Messages may have ${bytes} bytes.`)
      : warning(
          "message size",
          `Messages may have ${bytes} bytes.`,
          `Set max_payload to ${payloadNeededBytes} or more.`,
        ),
  );
  return findings;
}

function isOlder(version: string, needed: readonly [number, number, number]): boolean {
  const parts = version.split(/[.-]/).map(Number);
  for (const [index, part] of needed.entries()) {
    const own = parts[index] ?? 0;
    if (own !== part) return own < part;
  }
  return false;
}

async function streamFindings(
  connection: NatsConnection,
  address: Address,
): Promise<readonly Finding[]> {
  const { jobsStream } = deploymentNames(address.prefix);
  const api = address.domain === undefined ? "$JS.API" : `$JS.${address.domain}.API`;
  const before = Date.now();
  let info: StreamInfo;
  try {
    const options = { timeout: requestTimeoutMs };
    const reply = await connection.request(`${api}.STREAM.INFO.${jobsStream}`, "{}", options);
    info = JSON.parse(reply.string()) as StreamInfo;
  } catch (error) {
    const says = `The stream ${jobsStream} cannot be looked at: ${messageOf(error)}`;
    return [note("streams", says, "Ask as a user of the admin role, who may.")];
  }
  const between = (before + Date.now()) / 2;
  if (info.error?.code === 404) return [notThereYet(`The stream ${jobsStream}`)];
  if (info.error !== undefined)
    return [
      failed(
        "streams",
        info.error.description ?? "The server refuses.",
        "Check the user's permissions.",
      ),
    ];
  const { num_replicas: replicas = 1, metadata = {}, allow_atomic: atomic } = info.config ?? {};
  return [
    schemaFinding(Number(metadata[layoutKey] ?? layoutVersion), layoutVersion),
    replicas >= 3
      ? ok("copies", `${replicas} servers hold the log.`)
      : note(
          "copies",
          "One server holds the log.",
          "Run three servers for a log that survives the loss of one.",
        ),
    atomic === true
      ? ok("batches", "Events are stored in atomic batches.")
      : warning(
          "batches",
          "Events are stored one by one.",
          "Upgrade the server and start a service once.",
        ),
    ...(info.ts === undefined ? [] : [clockFinding(Date.parse(info.ts) - between)]),
  ];
}

/** How often the server fsyncs is told on its monitoring port alone. */
async function syncFinding(monitor: string | undefined): Promise<Finding> {
  const check = "durability";
  const remedy = "Set sync_interval: always in the jetstream block of every server.";
  if (monitor === undefined)
    return note(
      check,
      "Whether the server fsyncs each write is told only on its monitoring port.",
      `${remedy} To check it here, give --monitor http://host:8222.`,
    );
  try {
    const answer = await fetch(`${monitor.replace(/\/+$/, "")}/jsz?config=true`, {
      signal: AbortSignal.timeout(requestTimeoutMs),
    });
    const { config } = (await answer.json()) as {
      config?: { sync_always?: boolean; sync_interval?: number };
    };
    if (config?.sync_always === true) return ok(check, "The server fsyncs each write.");
    const seconds = (config?.sync_interval ?? 0) / 1e9;
    return warning(
      check,
      `The server fsyncs every ${seconds} s: a crash of the machine may lose acknowledged jobs.`,
      remedy,
    );
  } catch (error) {
    return note(check, `${monitor} does not answer: ${messageOf(error)}`, remedy);
  }
}
