/**
 * Notices statements whose answers will never come: the server they were sent to is cut off, or lives on and waits for a standby
 * that has taken its place. Nobody ends such a connection, and whoever waits for it would wait for ever. So when one has been
 * silent for a while, the server that the address leads to now is asked which connections it works for.
 */
import type { Client, ClientBase } from "pg";
import { isConnectionLoss } from "./faults.js";
import { lose, socketOf, unsentBy } from "./socket.js";

/** How often to look, in real time: the server is as real, whatever clock the store was given. */
const lookEveryMs = 2_000;

/** How many looks in a row have to miss a connection: an answer may be on its way, and a server away for a moment. */
const missesMax = 2;

/** What the watch needs. */
export interface AnswerWatchOptions {
  /** All connections that there are. */
  readonly clients: () => Iterable<ClientBase>;
  /** Makes a connection of its own that does not wait for long: those that there are may all lead to the server that is silent. */
  readonly connect: () => Client;
  /** Whether the server answers itself. A pooler tells other numbers than the server does. */
  readonly isDirect: () => boolean;
  /** A server has fallen silent. Those that rest or are answered just now may lead there, too. */
  readonly onSilence: () => void;
}

/** What had come and gone over a connection at a look, and how many looks in a row missed it. */
interface Seen {
  readonly bytes: number;
  readonly misses: number;
}

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
    const silent = [...this.#options.clients()].filter((client) => this.#isSilent(client));
    if (silent.length > 0) await this.#askFor(silent);
    this.#isLooking = false;
  }

  /** Whether a connection has been waiting for an answer since the last look, and nothing has come or gone. */
  #isSilent(client: ClientBase): boolean {
    const bytes = bytesOf(client);
    const isKnown = this.#waiting.get(client)?.bytes === bytes;
    if (!isWaiting(client)) this.#waiting.delete(client);
    else if (!isKnown) this.#waiting.set(client, { bytes, misses: 0 });
    return isKnown && isWaiting(client);
  }

  async #askFor(silent: readonly ClientBase[]): Promise<void> {
    const worksFor = await this.#ask();
    const lost = silent.filter((client) => this.#isLost(client, worksFor(client)));
    if (lost.length === 0 || this.#isOver) return;
    for (const client of lost) lose(client, unanswered);
    this.#options.onSilence();
  }

  #isLost(client: ClientBase, isWorkedFor: boolean): boolean {
    const seen = this.#waiting.get(client);
    if (seen === undefined || seen.bytes !== bytesOf(client)) return false;
    const misses = isWorkedFor ? 0 : seen.misses + 1;
    this.#waiting.set(client, { ...seen, misses });
    return misses >= missesMax;
  }

  /**
   * Asks the server that the address leads to now for which connections it works. One that refuses to say is there, and counts as
   * one that works.
   */
  async #ask(): Promise<(client: ClientBase) => boolean> {
    let client: Client | undefined;
    try {
      client = this.#options.connect();
      client.on("error", () => {});
      await client.connect();
      const { rows } = await client.query(selectWorking);
      const working = new Set(rows.map(({ pid }) => pid));
      const isDirect = this.#options.isDirect();
      return (one) => !isDirect || working.has(processOf(one));
    } catch (error) {
      return () => !isConnectionLoss(error);
    } finally {
      void client?.end().catch(() => {});
    }
  }
}

/** Processes of the server that are at work for one of us. After a failover another one may have the same number. */
const selectWorking = `SELECT pid FROM pg_stat_activity
  WHERE backend_type = 'client backend' AND usename = session_user AND state NOT LIKE 'idle%'`;

const unanswered = "a statement got no answer, and the server does not work on it";

function isWaiting(client: ClientBase): boolean {
  return (client as { readyForQuery?: boolean }).readyForQuery === false;
}

function processOf(client: ClientBase): unknown {
  return (client as { processID?: unknown }).processID;
}

/** How much has come, and how much has gone out. A long statement is on its way for a while before the server works on it. */
function bytesOf(client: ClientBase): number {
  const { bytesRead = 0, bytesWritten = 0, writableLength = 0 } = socketOf(client) ?? {};
  return bytesRead + bytesWritten - writableLength - unsentBy(client);
}
