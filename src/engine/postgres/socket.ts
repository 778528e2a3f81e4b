/**
 * The socket under a connection, which the driver's types do not tell.
 */
import type { Socket } from "node:net";
import type { ClientBase } from "pg";

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
