// Bare JetStream: one connection, one stream; publishes one after the other or in atomic batches, and a pull
// consumer that fetches and acknowledges. It keeps no history, compares nothing, holds no lease and runs no handler.
import { connect, createInbox, headers, type NatsConnection } from "@nats-io/transport-node";
import { addressOf } from "#millrace/engine/nats/address.js";
import { type Bench, verify } from "../bench.js";
import { payloadOf } from "../payload.js";
import { now, ratePerSecond } from "../statistics.js";
import { inFreshStore } from "../stores.js";
import type { BareScript } from "./script.js";

/** How many messages an atomic batch and a fetch hold. */
const batchSize = 500;

interface BareStream {
  readonly connection: NatsConnection;
  readonly name: string;
  readonly subject: string;
}

/** The bare script of JetStream. */
export const bareNats: BareScript = {
  settings: `nats.js, one connection, one stream; publishes one by one, or in atomic batches of ${batchSize}; drain: fetches of ${batchSize}, each message acknowledged; no history`,
  createSequential: (bench) =>
    createRound(bench, bench.sizes.warmUpSequentialJobs, bench.sizes.bareSingleRows, publishEach),
  createMany: (bench) =>
    createRound(bench, bench.sizes.warmUpJobs, bench.sizes.bareBatchedRows, publishAll),
  drain: (bench) =>
    withStream(bench, async (stream) => {
      const { warmUpJobs, bareClaimJobs } = bench.sizes;
      await api(stream, `CONSUMER.CREATE.${stream.name}.work.${stream.subject}`, {
        stream_name: stream.name,
        config: {
          name: "work",
          durable_name: "work",
          ack_policy: "explicit",
          filter_subject: stream.subject,
          max_ack_pending: -1,
        },
      });
      await publishAll(stream, warmUpJobs);
      await drainAll(stream, warmUpJobs);
      await publishAll(stream, bareClaimJobs);
      const start = now();
      await drainAll(stream, bareClaimJobs);
      return ratePerSecond(bareClaimJobs, start);
    }),
};

function createRound(
  bench: Bench,
  warmUp: number,
  count: number,
  publish: (stream: BareStream, count: number) => Promise<void>,
): Promise<number> {
  return withStream(bench, async (stream) => {
    await publish(stream, warmUp);
    const start = now();
    await publish(stream, count);
    const rate = ratePerSecond(count, start);
    const info = await api<{ state: { messages: number } }>(
      stream,
      `STREAM.INFO.${stream.name}`,
      {},
    );
    const found = info.state.messages;
    verify(
      found === warmUp + count,
      () => `bare: ${found} of ${warmUp + count} messages are there`,
    );
    return rate;
  });
}

function withStream(bench: Bench, work: (stream: BareStream) => Promise<number>): Promise<number> {
  return inFreshStore(bench, async (url) => {
    const { servers, prefix } = addressOf(url);
    const connection = await connect({ servers: [...servers] });
    const stream = { connection, name: `${prefix.toUpperCase()}_BARE`, subject: `${prefix}.bare` };
    const config = {
      name: stream.name,
      subjects: [stream.subject],
      storage: "file",
      allow_atomic: true,
    };
    await api(stream, `STREAM.CREATE.${stream.name}`, config);
    try {
      return await work(stream);
    } finally {
      await connection.close();
    }
  });
}

async function api<Answer>(
  { connection }: BareStream,
  subject: string,
  body: object,
): Promise<Answer> {
  const answer = await connection.request(`$JS.API.${subject}`, JSON.stringify(body));
  return answer.json<Answer>();
}

async function publishEach({ connection, subject }: BareStream, count: number): Promise<void> {
  for (let number = 0; number < count; number += 1)
    await connection.request(subject, JSON.stringify(payloadOf(number)));
}

async function publishAll({ connection, subject }: BareStream, count: number): Promise<void> {
  for (let from = 0; from < count; from += batchSize) {
    const to = Math.min(from + batchSize, count);
    for (let number = from; number < to; number += 1) {
      const batch = headers();
      batch.set("Nats-Batch-Id", String(from));
      batch.set("Nats-Batch-Sequence", String(number - from + 1));
      const body = JSON.stringify(payloadOf(number));
      if (number < to - 1) {
        connection.publish(subject, body, { headers: batch });
        continue;
      }
      batch.set("Nats-Batch-Commit", "1");
      await connection.request(subject, body, { headers: batch, timeout: 30_000 });
    }
  }
}

async function drainAll({ connection, name }: BareStream, count: number): Promise<void> {
  const inbox = createInbox();
  const subscription = connection.subscribe(inbox);
  const fetch = () =>
    connection.publish(
      `$JS.API.CONSUMER.MSG.NEXT.${name}.work`,
      JSON.stringify({ batch: batchSize }),
      {
        reply: inbox,
      },
    );
  fetch();
  let drained = 0;
  for await (const message of subscription) {
    JSON.parse(message.string());
    message.respond("+ACK");
    drained += 1;
    if (drained === count) break;
    if (drained % batchSize === 0) fetch();
  }
  await connection.flush();
}
