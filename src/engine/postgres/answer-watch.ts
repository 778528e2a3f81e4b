/**
 * Notices statements whose answers will never come: the server they were sent to is cut off, or lives on and waits for a standby
 * that has taken its place. Nobody ends such a connection, and whoever waits for it would wait for ever. So when one has been
 * silent for a while, the server that the address leads to now is asked which connections it works for.
 */
import type { Client, ClientBase } from "pg";
import { isConnectionLoss } from "./faults.js";
import { socketOf } from "./socket.js";

/** How often to look, in real time: the server is as real, whatever clock the store was given. */
const lookEveryMs = 3_000;

/** How many looks in a row have to miss a connection: an answer may be on its way, and a server away for a moment. */
const missesMax = 2;

/** What the watch needs. */
export interface AnswerWatchOptions {
  /** All connections that there are. */
  readonly clients: () => Iterable<ClientBase>;
  /** Makes a connection of its own: those that there are may all lead to the server that is silent. */
  readonly connect: () => Client;
  /** Whether the server answers itself. A pooler tells other numbers than the server does. */
  readonly isDirect: () => boolean;
}

/** What was seen of a connection at a look. */
interface Seen {
  readonly bytesRead: number;
  readonly misses: number;
}

/** What a server says of a connection: it works for it, waits for the rest of a transaction, or neither. */
type Standing = "works" | "waits" | "rests";

export class AnswerWatch {
  readonly #options: AnswerWatchOptions;
  /** What was seen of the connections that wait for an answer. */
  readonly #waiting = new WeakMap<ClientBase, Seen>();
  #timer: NodeJS.Timeout | undefined;
  #isLooking = false;
  #isOver = false;

  constructor(options: AnswerWatchOptions) {
    this.#options = options;
  }

  /** Begins, once. It keeps no process alive. */
  start(): void {
    if (!this.#isOver) this.#timer ??= setInterval(() => void this.#look(), lookEveryMs).unref();
  }

  stop(): void {
    this.#isOver = true;
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    const clients = [...this.#options.clients()];
    const silent = clients.filter((client) => this.#isSilent(client));
    if (silent.length > 0) await this.#askFor(silent, clients);
    this.#isLooking = false;
  }

  /** Whether a connection has been waiting for an answer since the last look, and nothing was heard. */
  #isSilent(client: ClientBase): boolean {
    const bytesRead = bytesReadBy(client);
    const isKnown = this.#waiting.get(client)?.bytesRead === bytesRead;
    if (!isWaiting(client)) this.#waiting.delete(client);
    else if (!isKnown) this.#waiting.set(client, { bytesRead, misses: 0 });
    return isKnown && isWaiting(client);
  }

  async #askFor(silent: readonly ClientBase[], clients: readonly ClientBase[]): Promise<void> {
    const standingOf = await this.#ask();
    const lost = silent.filter((client) => this.#isLost(client, standingOf(client)));
    if (lost.length === 0 || this.#isOver) return;
    for (const client of lost) lose(client);
    // What rests may be as silent when it is used. A transaction that waits for its owner is lost only if the server has none.
    for (const client of clients)
      if (!isWaiting(client) && standingOf(client) === "rests") lose(client);
  }

  #isLost(client: ClientBase, standing: Standing): boolean {
    const seen = this.#waiting.get(client);
    if (seen === undefined || seen.bytesRead !== bytesReadBy(client)) return false;
    const misses = standing === "works" ? 0 : seen.misses + 1;
    this.#waiting.set(client, { ...seen, misses });
    return misses >= missesMax;
  }

  /** Asks the server that the address leads to now. One that refuses to say is there, and counts as one that works. */
  async #ask(): Promise<(client: ClientBase) => Standing> {
    const client = this.#options.connect();
    client.on("error", () => {});
    try {
      await client.connect();
      const { rows } = await client.query(selectStandings);
      const standings = new Map<unknown, Standing>(
        rows.map(({ pid, standing }) => [pid, standing]),
      );
      const isDirect = this.#options.isDirect();
      return (one) => (isDirect ? (standings.get(processOf(one)) ?? "rests") : "works");
    } catch (error) {
      return () => (isConnectionLoss(error) ? "rests" : "works");
    } finally {
      void client.end().catch(() => {});
    }
  }
}

/** A session of another role does not show what it does. */
const selectStandings = `SELECT pid,
  CASE WHEN state = 'idle' THEN 'rests' WHEN state LIKE 'idle%' THEN 'waits' ELSE 'works' END AS standing
  FROM pg_stat_activity`;

/** Ends a connection without a word to the server. What waits for it fails. */
function lose(client: ClientBase): void {
  const message = "a statement got no answer, and the server does not work on it";
  socketOf(client)?.destroy?.(new Error(message));
}

function isWaiting(client: ClientBase): boolean {
  return (client as { readyForQuery?: boolean }).readyForQuery === false;
}

function processOf(client: ClientBase): unknown {
  return (client as { processID?: unknown }).processID;
}

function bytesReadBy(client: ClientBase): number {
  return socketOf(client)?.bytesRead ?? 0;
}
