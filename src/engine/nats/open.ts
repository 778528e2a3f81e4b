/**
 * Opening the JetStream engine on a server: its streams are made if there are none, and its clock is asked for the time.
 */
import { randomBytes } from "node:crypto";
import { type Clock, systemClock } from "../clock.js";
import type { Logger } from "../logger.js";
import { openProjection } from "../projection/open.js";
import type { Projection } from "../projection/projection.js";
import { type Address, addressOf } from "./address.js";
import { openConnection } from "./connection.js";
import { NatsEngine } from "./engine.js";
import { JetStreamPort } from "./jetstream.js";
import { loadNats } from "./libraries.js";
import { inboxPrefix } from "./permissions.js";
import { provision, type Topology } from "./provision.js";
import { ServerClock } from "./server-clock.js";
import { Subjects } from "./subjects.js";

/** What the engine is opened with. */
export interface NatsOptions {
  readonly clock?: Clock;
  readonly logger?: Logger;
}

/** Opens the engine on a server, making its streams if there are none. */
export async function openNats(url: string, options: NatsOptions = {}): Promise<NatsEngine> {
  const address = addressOf(url);
  const nats = await loadNats(address.where);
  const { clock = systemClock, logger } = options;
  const { service } = address;
  const inbox = address.inbox ?? inboxPrefix(address.prefix, service);
  const name = service === undefined ? "millrace" : `millrace ${service}`;
  const connection = await openConnection(nats, address, { name, inbox });
  try {
    const topology = await provision(connection, address);
    const subjects = new Subjects(topology.prefix, service);
    const port = new JetStreamPort({
      nats,
      connection,
      topology,
      url: address.where,
      readsEverything: service === undefined,
      clockFilter: subjects.clockFilter(),
      inboxPrefix: inbox,
    });
    const ask = clock === systemClock ? () => port.time() : null;
    const serverClock = new ServerClock(clock, ask);
    await serverClock.start();
    return new NatsEngine({
      url: address.where,
      port,
      subjects,
      topology,
      clock: serverClock,
      openProjection: () => projectionOf(address, topology, serverClock),
      session: randomBytes(9).toString("base64url"),
      ...(logger && { logger }),
    });
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** The read model of a deployment lies where the URL or the environment says, or else in a file of its own. */
function projectionOf(
  { projection, prefix, service }: Address,
  { identity }: Topology,
  clock: Clock,
): Promise<Projection> {
  const scope = service === undefined ? prefix : `${prefix}-${service}`;
  const url = projection ?? process.env.MILLRACE_PROJECTION_URL ?? `file:${scope}-projection.db`;
  return openProjection(url, { identity: scope, origin: identity, clock });
}
