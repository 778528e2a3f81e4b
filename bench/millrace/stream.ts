// How many jobs of a stream have not ended, as the stream itself tells: the read model may be behind, and
// it is not what is timed.
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { addressOf } from "#millrace/engine/nats/address.js";
import type { JobType } from "./contract.js";

const connections = new Map<string, Promise<NatsConnection>>();

/** Up to where all jobs of a type have ended. What lies before is not counted again: that would take longer the more there is. */
const endedUpTo = new Map<string, number>();

/** The jobs of a type that were created and not completed. */
export async function unfinishedInStream(url: string, type: JobType): Promise<number> {
  const { servers, prefix } = addressOf(url);
  const server = servers[0] ?? "";
  const connection = await (connections.get(server) ?? opened(server));
  const place = `${url} ${type}`;
  const from = (endedUpTo.get(place) ?? 0) + 1;
  const stream = `${prefix.toUpperCase()}_JOBS`;
  const last = await lastOf(connection, stream);
  const count = (event: string) =>
    countFrom(connection, from, { stream, filter: `${prefix}.jobs.bench.${type}.*.${event}` });
  const unfinished = (await count("created.>")) - (await count("completed"));
  if (unfinished === 0) endedUpTo.set(place, last);
  return unfinished;
}

function opened(server: string): Promise<NatsConnection> {
  const opening = connect({ servers: server });
  connections.set(server, opening);
  // The connection must not keep the run going when its server has gone.
  void opening.then((connection) => connection.closed());
  return opening;
}

/** A consumer is told, when it is made, how much waits for it. */
async function countFrom(
  connection: NatsConnection,
  from: number,
  { stream, filter }: { readonly stream: string; readonly filter: string },
) {
  const name = `count${process.hrtime.bigint()}`;
  const config = {
    name,
    filter_subject: filter,
    deliver_policy: "by_start_sequence",
    opt_start_seq: from,
    ack_policy: "none",
    mem_storage: true,
    inactive_threshold: 1e8,
  };
  const subject = `$JS.API.CONSUMER.CREATE.${stream}.${name}.${filter}`;
  const answer = await connection.request(subject, JSON.stringify({ stream_name: stream, config }));
  return answer.json<{ num_pending: number }>().num_pending;
}

/** The position of the newest message. */
async function lastOf(connection: NatsConnection, stream: string): Promise<number> {
  const answer = await connection.request(`$JS.API.STREAM.INFO.${stream}`);
  return answer.json<{ state: { last_seq: number } }>().state.last_seq;
}
