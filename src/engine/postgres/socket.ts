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

/** Ends a connection, and waits for that no longer than a moment: a server that is cut off never says goodbye. */
export async function endSoon(client: Client): Promise<void> {
  keepAlive(client, true);
  const timer = setTimeout(() => lose(client, "the server did not say goodbye"), goodbyeMs);
  await client.end().catch(() => {});
  clearTimeout(timer);
}
