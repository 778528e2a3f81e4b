/**
 * The socket under a connection, which the driver's types do not tell.
 */
import type { Socket } from "node:net";
import type { Client, ClientBase } from "pg";

/** How long to wait for a server to end a connection. */
const goodbyeMs = 1_000;

/** What a connection reads from and writes to. */
export function socketOf(client: ClientBase): Partial<Socket> | undefined {
  return (client as unknown as { connection?: { stream?: Partial<Socket> } }).connection?.stream;
}

/** Says whether an open connection keeps the process alive. */
export function keepAlive(client: ClientBase, isKept: boolean): void {
  const socket = socketOf(client);
  if (isKept) socket?.ref?.();
  else socket?.unref?.();
}

/**
 * Holds back what is sent on a connection until the end of this turn. Each write wakes the server, which costs more than
 * what is written.
 */
export function sendTogether(client: ClientBase): void {
  const socket = socketOf(client);
  socket?.cork?.();
  process.nextTick(() => socket?.uncork?.());
}

/** How much of what was written the system has not taken yet. */
export function unsentBy(client: ClientBase): number {
  const socket = socketOf(client) as { _handle?: { writeQueueSize?: number } | null } | undefined;
  return socket?._handle?.writeQueueSize ?? 0;
}

/** Ends a connection without a word to the server. What waits for it fails. */
export function lose(client: ClientBase, why: string): void {
  socketOf(client)?.destroy?.(new Error(why));
}

/** What the driver calls when a connection is made, or cannot be. */
type OnConnected = ((error: Error) => void) | ((error: null, client: Client) => void);

/** Connections whose socket is closed where they cannot be made: the driver leaves it to the server to give up. */
export function closingClient(Base: typeof Client): typeof Client {
  return class extends Base {
    override connect(): Promise<Client>;
    override connect(callback: OnConnected): void;
    override connect(callback?: OnConnected): Promise<Client> | undefined {
      const failed = () => lose(this, "the connection could not be made");
      if (callback === undefined) {
        const connected = super.connect();
        connected.catch(failed);
        return connected;
      }
      const tell = callback as (error: Error | null, client: Client) => void;
      super.connect((error: Error | null) => {
        if (error) failed();
        tell(error, this);
      });
      return undefined;
    }
  };
}

/** Ends a connection, and waits for that no longer than a moment: a server that is cut off never says goodbye. */
export async function endSoon(client: Client): Promise<void> {
  keepAlive(client, true);
  const timer = setTimeout(() => lose(client, "the server did not say goodbye"), goodbyeMs);
  await client.end().catch(() => {});
  clearTimeout(timer);
}
