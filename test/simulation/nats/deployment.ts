// The JetStream engine on a simulated server.
import type { Clock } from "#millrace/engine/clock.js";
import type { Engine } from "#millrace/engine/engine.js";
import { NatsEngine, type NatsParts } from "#millrace/engine/nats/engine.js";
import { ServerClock } from "#millrace/engine/nats/server-clock.js";
import { Subjects } from "#millrace/engine/nats/subjects.js";
import { Projection } from "#millrace/engine/projection/projection.js";
import type { ProjectionStore } from "#millrace/engine/projection/store.js";
import { type SimulatedServer, simulatedPort, type Wire } from "./server.js";

const url = "nats://simulated";
const prefix = "millrace";

/** How a process sees the server. */
export interface Place {
  readonly clock: Clock;
  /** Tells the process from all others. */
  readonly session: string;
  readonly store: () => ProjectionStore;
  readonly wire?: Wire;
  /** Whether the server can neither store nor read many messages at once. */
  readonly isOld: boolean;
  /** Whether the server that leads now takes batches. */
  readonly takesBatches?: () => boolean;
  /** How the process rests while others are in its way; by the machine's clock where nothing is given. */
  readonly rest?: NatsParts["rest"];
}

/** The engine of one process. */
export function openSimulated(server: SimulatedServer, place: Place): Engine {
  const { clock, session, store, wire, isOld, takesBatches, rest } = place;
  const port = simulatedPort(server, {
    now: () => clock.now(),
    readsEverything: !isOld,
    ...(wire && { wire }),
    ...(takesBatches && { takesBatches }),
  });
  return new NatsEngine({
    url,
    port,
    session,
    subjects: new Subjects(prefix),
    topology: {
      recordsBucket: "MILLRACE_RECORDS",
      atomicBatches: !isOld,
      replicas: 3,
      identity: "one",
    },
    clock: new ServerClock(clock, null),
    openProjection: () => openProjectionOf(store(), clock),
    ...(rest && { rest }),
  });
}

/** The read model of the simulated deployment. */
export function openProjectionOf(store: ProjectionStore, clock: Clock): Promise<Projection> {
  return Projection.open(store, { identity: prefix, origin: url, clock });
}
