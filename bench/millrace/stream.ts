// How many jobs of a stream have not ended, as the stream itself tells: the read model may be behind, and
// it is not what is timed.
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { addressOf } from "#millrace/engine/nats/address.js";
import type { JobType } from "./contract.js";

const connections = new Map<string, Promise<NatsConnection>>();

/** The jobs of a type that were created and not completed. */
export async function unfinishedInStream(url: string, type: JobType): Promise<number> {
  const { servers, prefix } = addressOf(url);
  const server = servers[0] ?? "";
  const connection = await (connections.get(server) ?? opened(server));
  const count = (event: string) =>
    countUnder(
      connection,
      `${prefix.toUpperCase()}_JOBS`,
      `${prefix}.jobs.bench.${type}.*.${event}`,
    );
  return (await count("created.>")) - (await count("completed"));
}

function opened(server: string): Promise<NatsConnection> {
  const opening = connect({ servers: server });
  connections.set(server, opening);
  // The connection must not keep the run going when its server has gone.
  void opening.then((connection) => connection.closed());
  return opening;
}

/** A consumer is told, when it is made, how much waits for it. */
async function countUnder(connection: NatsConnection, stream: string, filter: string) {
  const name = `count${process.hrtime.bigint()}`;
  const config = {
    name,
    filter_subject: filter,
    ack_policy: "none",
    mem_storage: true,
    inactive_threshold: 1e8,
  };
  const subject = `$JS.API.CONSUMER.CREATE.${stream}.${name}.${filter}`;
  const answer = await connection.request(subject, JSON.stringify({ stream_name: stream, config }));
  return answer.json<{ num_pending: number }>().num_pending;
}
