// What the events of jobs cost on JetStream by themselves: the engine's own connection, which takes tickets, stores a start
// and an end of each job with their compares and acknowledges. It folds nothing, holds no lease, shows no view and runs no
// handler, so that no worker with the same history can be faster.
import { addressOf } from "#millrace/engine/nats/address.js";
import { openConnection } from "#millrace/engine/nats/connection.js";
import { JetStreamPort } from "#millrace/engine/nats/jetstream.js";
import { loadNats } from "#millrace/engine/nats/libraries.js";
import type { OutgoingMessage, Publication } from "#millrace/engine/nats/port.js";
import { provision } from "#millrace/engine/nats/provision.js";
import { Subjects } from "#millrace/engine/nats/subjects.js";
import { type Bench, verify } from "../bench.js";
import { concurrently } from "../concurrently.js";
import { payloadOf } from "../payload.js";
import { concurrentCallers } from "../sizes.js";
import { now, ratePerSecond } from "../statistics.js";
import { inFreshStore } from "../stores.js";

/** How many jobs are taken at once, as many as a batch may hold, and how many such takings are under way. */
const takenAtOnce = 1_000;
const takersAtOnce = 2;
const lane = { service: "bench", queue: "plain", type: "plain", typeVersion: 1 } as const;
const consumer = "floor";
const ackWaitMs = 30_000;
/** What every event says of the job's context, in its body and again in headers. */
const requestId = "01M7QSD2SWWKQKZS58YHE1SJVD";
const traceId = "0d4681a9a7fd7bde01096bc356d09fe9";
const traceparent = `00-${traceId}-e807cbff8286df3a-01`;
const headers = { "request-id": requestId, traceparent };
const context = { requestId, traceId, traceparent };
/** What makes an id as long as those that are made for jobs. */
const idPrefix = "01M7QSD2SWWKQKZS58";

interface Floor {
  readonly port: JetStreamPort;
  readonly subjects: Subjects;
  /** Stores messages in the way that is faster on this server: together where it syncs each, else one by one. */
  store(messages: readonly OutgoingMessage[]): Promise<readonly Publication[]>;
}

/** Jobs a second that are taken, started, ended and acknowledged. */
export function drainFloor(bench: Bench): Promise<number> {
  return withFloor(bench, async (floor) => {
    const { port, subjects } = floor;
    const filter = subjects.ticketFilter(lane, "normal");
    await port.ensureConsumer({ name: consumer, filter, ackWaitMs });
    const { warmUpJobs, bareClaimJobs } = bench.sizes;
    await fill(floor, 0, warmUpJobs);
    await drain(floor, warmUpJobs);
    await fill(floor, warmUpJobs, warmUpJobs + bareClaimJobs);
    const start = now();
    await drain(floor, bareClaimJobs);
    return ratePerSecond(bareClaimJobs, start);
  });
}

/** Creations a second of callers each of whom waits for its own. */
export function createFloor(bench: Bench): Promise<number> {
  return withFloor(bench, async (floor) => {
    const { warmUpJobs, createConcurrentJobs } = bench.sizes;
    await createInRounds(floor, 0, warmUpJobs);
    const start = now();
    await createInRounds(floor, warmUpJobs, warmUpJobs + createConcurrentJobs);
    return ratePerSecond(createConcurrentJobs, start);
  });
}

async function createInRounds(floor: Floor, from: number, to: number): Promise<void> {
  for (let first = from; first < to; first += concurrentCallers)
    await fillOnce(floor, first, Math.min(first + concurrentCallers, to));
}

async function fill(floor: Floor, from: number, to: number): Promise<void> {
  for (let first = from; first < to; first += takenAtOnce)
    await fillOnce(floor, first, Math.min(first + takenAtOnce, to));
}

async function fillOnce({ subjects, store }: Floor, from: number, to: number): Promise<void> {
  const messages: OutgoingMessage[] = [];
  for (let number = from; number < to; number += 1) {
    const id = `${idPrefix}${String(number).padStart(8, "0")}`;
    messages.push({
      subject: `${subjects.prefix}.jobs.bench.plain.${id}.created.plain.v1-normal`,
      body: bodyOf("created", id, { payload: payloadOf(number), ...creation }),
      headers,
      expect: { filter: subjects.jobFilter("bench", id), seq: 0 },
    });
  }
  await store(messages);
}

const creation = {
  typeVersion: 1,
  queue: "plain",
  maxTries: 5,
  priority: 0,
  tags: [],
  blockers: [],
};

/** An event as long as Millrace's own is. */
function bodyOf(name: string, jobId: string, more: Readonly<Record<string, unknown>>): string {
  const names = { name, id: requestId, jobId, service: "bench", type: "plain" };
  const place = { version: 2, run: 1, tries: 1, state: name, previousState: "pending" };
  return JSON.stringify({
    ...names,
    ...place,
    at: 1_795_020_983_107,
    actor: "worker:vm-4420-92bace",
    context,
    ...more,
  });
}

async function drain(floor: Floor, count: number): Promise<void> {
  let drained = 0;
  await concurrently(takersAtOnce, takersAtOnce, async () => {
    while (drained < count) {
      const taken = await takeOnce(floor);
      drained += taken;
    }
  });
}

async function takeOnce({ port, subjects, store }: Floor): Promise<number> {
  const deliveries = (await port.fetch(consumer, takenAtOnce)) ?? [];
  if (deliveries.length === 0) return 0;
  let seqs = deliveries.map(({ seq }) => seq);
  for (const name of ["started", "completed"]) {
    const messages = deliveries.map(({ subject }, index) => {
      const id = subject.split(".")[4] as string;
      return {
        subject: `${subjects.prefix}.jobs.bench.plain.${id}.${name}`,
        body: bodyOf(name, id, { token: 1, worker: "worker-4420-92bace" }),
        headers,
        expect: { filter: subjects.jobFilter("bench", id), seq: seqs[index] as number },
      };
    });
    seqs = (await store(messages)).map((stored) => {
      verify(stored.outcome === "stored", () => "bare: an event of a job was refused");
      return stored.outcome === "stored" ? stored.seq : 0;
    });
  }
  await port.acknowledge(deliveries);
  return deliveries.length;
}

function withFloor(bench: Bench, work: (floor: Floor) => Promise<number>): Promise<number> {
  return inFreshStore(bench, async (url) => {
    const address = addressOf(url);
    const nats = await loadNats(address.where);
    const connection = await openConnection(nats, address, { name: "bare" });
    try {
      const topology = await provision(connection, address);
      const subjects = new Subjects(topology.prefix);
      const port = new JetStreamPort({
        nats,
        connection,
        topology,
        url: address.where,
        readsEverything: true,
        clockFilter: subjects.clockFilter(),
      });
      return await work({ port, subjects, store: storeOf(bench, port) });
    } finally {
      await connection.close();
    }
  });
}

function storeOf({ engine }: Bench, port: JetStreamPort): Floor["store"] {
  if (engine === "nats-always")
    return async (messages) => {
      const stored = await port.publishTogether(messages);
      if (stored === null) throw new Error("The server did not take the messages as a batch.");
      return stored;
    };
  return async (messages) => {
    const each = await port.publishEach(messages);
    return each.map((publication) => {
      if (publication.outcome === "fault") throw publication.error;
      return publication;
    });
  };
}
