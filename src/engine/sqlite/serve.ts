/**
 * The thread that owns a connection, so that no fsync ever blocks the caller's event loop.
 * The writer carries out each batch in one transaction; the reader answers beside it.
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import type { Step } from "../sql/statement.js";
import type { Transaction } from "../sql/transaction.js";
import { sqliteDialect } from "./dialect.js";
import { type Connection, type FileKind, openReader, openWriter } from "./driver.js";
import { createEventIds } from "./event-ids.js";
import { type Fault, faultOf, isOfOneItem } from "./faults.js";
import { readHead } from "./feed.js";
import { LogRoom } from "./log-room.js";
import { LogSync } from "./log-sync.js";
import {
  type ItemReply,
  isLone,
  type Operation,
  type Reply,
  type Request,
  type Response,
  type Sent,
  type ThreadData,
  type Woke,
} from "./protocol.js";
import { wakePath } from "./wake.js";

/** What a thread can do, and with what kind of file. */
export interface Skills<Write extends Operation, Read extends Operation> {
  readonly fileKind: FileKind;
  /** Carries out writes in order; gives a list of answers for each, one per item. */
  writeAll(tx: Transaction, writes: readonly Write[]): Step<readonly (readonly unknown[])[]>;
  /** Carries out one read. */
  readItem(now: number, read: Read): Step<unknown>;
}

const { path, role, sentCount } = workerData as ThreadData;
const port = parentPort;
if (!port) throw new Error("This file runs in a worker thread.");

const lanes = new Map<string, number>();
const eventId = createEventIds();

let connection: Connection;
let skills: Skills<Operation, Operation>;
let bells: { readonly ready: number; readonly ended: number } | null = null;
let room: LogRoom | null = null;
let log: LogSync | null = null;

/** Opens the file and answers requests until the thread is told to close. */
export function serve<Write extends Operation, Read extends Operation>(
  given: Skills<Write, Read>,
): void {
  // What is asked comes from a channel of the same operations.
  skills = given as unknown as typeof skills;
  try {
    connection = role === "writer" ? openWriter(path, given.fileKind) : openReader(path);
    if (role === "writer")
      bells = {
        ready: openSync(wakePath(path, "ready"), "w"),
        ended: openSync(wakePath(path, "ended"), "w"),
      };
    // A projection's commits do not wait for the disk.
    if (given.fileKind === "store") {
      log = new LogSync(path);
      if (role === "writer") room = new LogRoom(path);
    }
    port?.postMessage({ id: 0, replies: [{ answer: null }], woke: null } satisfies Response);
    port?.on("message", listen);
  } catch (error) {
    port?.postMessage({
      id: 0,
      replies: [{ fault: faultOf(error, path) }],
      woke: null,
    } satisfies Response);
  }
}

type Asked = Request<Operation, Operation>;

/** How long a thread that has answered looks out for the next request before it goes to sleep. */
const lookoutMs = 0.3;

/** How often it looks before it looks at the time. */
const looksMax = 100;

/** When the last answer was given, in milliseconds of the thread's own. */
let answeredAt = Number.NEGATIVE_INFINITY;

/** How many requests have come. */
let received = 0;

/** Why nothing more is written: what was acknowledged later would lie behind what the disk did not take. */
let broken: Fault | null = null;

/**
 * Answers a request, and those that follow closely. To wake a sleeping thread takes as long as half a commit, which
 * whoever writes one thing after the other would pay each time. So the thread stays awake for a moment, but only where
 * the last request came soon, too, and was about one thing: what many ask for is better gathered. Whoever writes in a
 * row is answered before the bells are rung, and a lone write rings them first.
 */
function listen(first: Sent): void {
  let asked: Sent | undefined = counted(first);
  let isFollowing = performance.now() - answeredAt < 2 * lookoutMs;
  while (asked !== undefined && asked !== "close") {
    const response = isFollowing ? respond(asked) : respondAtOnce(asked);
    port?.postMessage(response);
    if (isFollowing) ring(response.woke);
    if ("writes" in asked) room?.keep(connection);
    answeredAt = performance.now();
    asked = isFollowing && isLoneWrite(asked) ? nextWithin(lookoutMs) : next();
    isFollowing = true;
  }
  if (asked === "close") close();
}

function counted(request: Sent): Sent {
  received += 1;
  return request;
}

function isLoneWrite(request: Asked): boolean {
  return "writes" in request && isLone(request.writes);
}

/** The next request, if it comes in time. */
function nextWithin(ms: number): Sent | undefined {
  for (const end = performance.now() + ms; performance.now() < end; ) {
    for (let looks = 0; looks < looksMax; looks++) {
      const request = next();
      if (request !== undefined) return request;
    }
  }
  return undefined;
}

/** The next request, if it is there already. */
function next(): Sent | undefined {
  if (!port || Atomics.load(sentCount, 0) === received) return undefined;
  const mail = receiveMessageOnPort(port);
  return mail && counted(mail.message as Sent);
}

function close(): void {
  room?.close();
  log?.close();
  connection.close();
  if (bells) {
    closeSync(bells.ready);
    closeSync(bells.ended);
  }
  port?.close();
}

/** Answers a request that others may wait for: they hear of it before the answer is there. */
function respondAtOnce(request: Asked): Response {
  if (!log || !isLoneWrite(request) || !isCreate(request)) {
    const response = respond(request);
    ring(response.woke);
    return response;
  }
  const response = respond(request, "after");
  ring(response.woke);
  const synced = guard(() => log?.sync());
  if ("answer" in synced) return response;
  broken = synced.fault;
  return { id: request.id, replies: [synced], woke: null };
}

function isCreate(request: Asked): boolean {
  return "writes" in request && request.writes[0]?.kind === "create";
}

/** When a transaction is synced: with its commit, or after it by whoever asked for that. */
type Sync = "with" | "after";

function respond(request: Asked, sync: Sync = "with"): Response {
  const { id, now } = request;
  if ("reads" in request) {
    const replies = request.reads.map((read) => guard(() => readDurably(now ?? Date.now(), read)));
    return { id, replies, woke: null };
  }
  const { writes } = request;
  if (broken) {
    const refused = { fault: broken };
    return { id, replies: writes.map(() => refused), woke: null };
  }
  const together = guard(() => commit(now, writes, sync));
  if ("answer" in together) {
    const { answers, woke } = together.answer as Committed;
    return { id, replies: answers.map((answer) => ({ answer })), woke };
  }
  if (!isOfOneItem(together.fault)) {
    return { id, replies: writes.map(() => together), woke: null };
  }
  return { id, ...commitApart(now, writes, sync) };
}

/** Carries out a read. The feed tells nothing that is not on disk yet, because whoever follows it remembers positions. */
function readDurably(now: number, read: Operation): unknown {
  const answer = connection.run(skills.readItem(now, read));
  if (read.kind === "feed" && (answer as readonly unknown[]).length > 0) log?.sync();
  return answer;
}

/** A clock that steps back by less than this is waited out; one that steps further was wrong before, and is believed. */
const stepBackMs = 1_000;

let latest = 0;

/** The machine's time, which small steps back do not turn round. */
function machineNow(): number {
  const machine = Date.now();
  latest = latest - machine > stepBackMs ? machine : Math.max(latest, machine);
  return latest;
}

/** The position of the newest event after the last commit of this thread, unless something failed since. */
let head: number | null = null;

interface Committed {
  readonly answers: readonly (readonly unknown[])[];
  readonly woke: Woke;
}

/** Carries out writes in one transaction. */
function commit(given: number | null, writes: readonly Operation[], sync: Sync): Committed {
  connection.syncWithCommit(sync === "with");
  connection.exec("BEGIN IMMEDIATE");
  try {
    const woke = { ready: false, ended: false, cancel: false };
    // Others may have held the file for long, so the time is taken only now.
    const now = given ?? machineNow();
    if (connection.isChangedByOthers()) head = null;
    const seq = head ?? connection.run(readHead());
    const tx: Transaction = { dialect: sqliteDialect, now, seq, eventId, lanes, woke };
    const answers = connection.run(skills.writeAll(tx, writes));
    connection.exec("COMMIT");
    head = tx.seq;
    return { answers, woke };
  } catch (error) {
    lanes.clear();
    head = null;
    rollback();
    throw error;
  }
}

/** SQLite rolls some failed transactions back by itself; then there is nothing left to undo. */
function rollback(): void {
  try {
    connection.exec("ROLLBACK");
  } catch (error) {
    if (!(error instanceof Error && error.message.includes("no transaction is active")))
      throw error;
  }
}

/** After a failure each item gets a transaction of its own, so that only what is at fault fails. */
function commitApart(
  now: number | null,
  writes: readonly Operation[],
  sync: Sync,
): { replies: readonly Reply[]; woke: Woke } {
  const woke = { ready: false, ended: false, cancel: false };
  const replies = writes.map((write): Reply => {
    const items: ItemReply[] = [];
    for (const item of write.items ?? []) {
      const alone = guard(() => commit(now, [{ kind: write.kind, items: [item] }], sync));
      if ("fault" in alone) {
        items.push(alone);
        continue;
      }
      const done = alone.answer as Committed;
      items.push({ answer: done.answers[0]?.[0] });
      woke.ready ||= done.woke.ready;
      woke.ended ||= done.woke.ended;
      woke.cancel ||= done.woke.cancel;
    }
    return { items };
  });
  return { replies, woke };
}

function guard(work: () => unknown): ItemReply {
  try {
    return { answer: work() };
  } catch (error) {
    return { fault: faultOf(error, path) };
  }
}

/** Touches the files that other processes watch. A bell that cannot be rung is a hint lost, no more. */
function ring(woke: Woke | null): void {
  if (!bells || !woke) return;
  try {
    if (woke.ready || woke.cancel) writeSync(bells.ready, "!", 0);
    if (woke.ended) writeSync(bells.ended, "!", 0);
  } catch {
    return;
  }
}
