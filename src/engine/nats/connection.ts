/**
 * Connecting to the servers of an address, and staying connected.
 */
import { readFile } from "node:fs/promises";
import type { ConnectionOptions, NatsConnection } from "@nats-io/transport-node";
import { StoreUnavailable } from "../errors.js";
import type { Address } from "./address.js";
import { thrownFault } from "./faults.js";
import type { NatsLibrary } from "./libraries.js";

/** How long the first connection may take, and how long a lost one waits between two attempts. */
const connectTimeoutMs = 5_000;
const reconnectPauseMs = 250;

/** How often the server is asked whether it is there, and after how many missed answers the connection counts as lost. */
const pingMs = 10_000;
const pingsMissedMax = 2;

/** What a connection is opened as. */
export interface ConnectionPurpose {
  /** How the server lists the connection. */
  readonly name: string;
  /** What its inboxes begin with. */
  readonly inbox?: string;
}

/** Connects. What fails at first is thrown; a connection that was there comes back on its own, forever. */
export async function openConnection(
  nats: NatsLibrary,
  address: Address,
  { name, inbox }: ConnectionPurpose,
): Promise<NatsConnection> {
  const options: ConnectionOptions = {
    name,
    servers: [...address.servers],
    timeout: connectTimeoutMs,
    maxReconnectAttempts: -1,
    reconnectTimeWait: reconnectPauseMs,
    pingInterval: pingMs,
    maxPingOut: pingsMissedMax,
    // A server that was restarted may know its users a moment later.
    ignoreAuthErrorAbort: true,
    ...(inbox !== undefined && { inboxPrefix: inbox }),
    ...(address.tls && { tls: { ...address.tls } }),
    ...(await authentication(nats, address)),
  };
  try {
    return await nats.connect(options);
  } catch (error) {
    throw thrownFault(error, address.where);
  }
}

async function authentication(
  nats: NatsLibrary,
  { credentials, where }: Address,
): Promise<ConnectionOptions> {
  switch (credentials.kind) {
    case "none":
      return {};
    case "user":
      return { user: credentials.user, pass: credentials.password };
    case "token":
      return { token: credentials.token };
    case "creds": {
      const bytes = await readFile(credentials.path).catch((error: Error) => {
        const message = `The file ${credentials.path}, which creds in the URL names, cannot be read (${error.message}).`;
        throw new StoreUnavailable({ url: where, message });
      });
      return { authenticator: nats.credsAuthenticator(bytes) };
    }
  }
}
