/**
 * Events as messages: the body is the event, and headers carry what belongs to the message alone.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import type { Job } from "../../core/job.js";
import { eventOf, tokenOf } from "../event-text.js";
import type { OutgoingMessage, StoredMessage } from "./port.js";

/** Where a start says until when its lease holds. */
export const leaseHeader = "Millrace-Lease-Until";
const sessionHeader = "Millrace-Session";
const capsHeader = "Millrace-Caps";
const creationHeader = "Millrace-Creation";

/** What a start says besides its event: how long the lease stands, who renews it, and which caps it counts under. */
export interface StartFacts {
  readonly leaseUntil: number;
  /** The sheet of the process that holds it: a record that this process alone renews its leases in. */
  readonly sheet: string;
  readonly caps: readonly string[];
}

/** A job as its log tells it, with the positions that an append compares with. */
export interface LoggedJob {
  readonly job: Job | null;
  /** The positions of everything that is in the log under this id. */
  readonly seqs: readonly number[];
  /** Those of them that create a job. */
  readonly creations: readonly number[];
  /** The position of the newest message that is not a note; 0 where there is none. */
  readonly lastSeq: number;
  /** Whether there ever was a job of this id, also if it is gone. */
  readonly existed: boolean;
  /** The position of the newest ticket. */
  readonly ticketSeq: number;
  /** When a job of this id was last deleted, as far as the log remembers; 0 where none was. */
  readonly deletedAt: number;
  /** The facts of each start, by token. */
  readonly starts: Starts;
}

/** A job whose log was read. */
export interface ReadJob extends LoggedJob {
  /** The events of the log, tickets aside, without those of a job of the same id that was deleted. */
  readonly events: readonly JobEvent[];
}

/** The facts of starts, by token. */
export interface Starts {
  get(token: number): StartFacts | undefined;
}

/** One more start than there were. Nearly all jobs have one alone, and a map costs more than all else that is known of them. */
class LastStart implements Starts {
  constructor(
    readonly token: number,
    readonly facts: StartFacts,
    readonly before: Starts,
  ) {}

  get(token: number): StartFacts | undefined {
    return token === this.token ? this.facts : this.before.get(token);
  }
}

/**
 * The headers that every event has, and those of a start. By its id a server knows a message that it has stored; where
 * that is compared with the log, it could not be stored twice anyhow, and so the server need not remember it.
 */
function headersOf(
  event: JobEvent,
  isCompared: boolean,
  start?: StartFacts,
): Record<string, string> {
  const { requestId, traceparent, tracestate } = event.context;
  const headers: Record<string, string> = isCompared
    ? { "request-id": headerText(requestId), traceparent: headerText(traceparent) }
    : {
        "Nats-Msg-Id": headerText(event.id),
        "request-id": headerText(requestId),
        traceparent: headerText(traceparent),
      };
  if (tracestate !== undefined) headers.tracestate = headerText(tracestate);
  if (start === undefined) return headers;
  headers[leaseHeader] = String(start.leaseUntil);
  headers[sessionHeader] = start.sheet;
  if (start.caps.length > 0) headers[capsHeader] = JSON.stringify(start.caps);
  return headers;
}

/** A header is one line of printable characters. */
export function headerText(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, "?");
}

/** An event as a message. */
export function messageOf(
  subject: string,
  event: JobEvent,
  expect?: OutgoingMessage["expect"],
  start?: StartFacts,
): OutgoingMessage {
  const body = JSON.stringify(event);
  if (expect === undefined) return { subject, body, headers: headersOf(event, false, start) };
  return { subject, body, headers: headersOf(event, true, start), expect };
}

/** The message of a deletion names the creation that goes with it. Others stay as they are. */
export function deleting(
  message: OutgoingMessage,
  { name }: JobEvent,
  logged: LoggedJob | ReadJob,
): OutgoingMessage {
  const creation = "events" in logged ? logged.events[0]?.id : undefined;
  if (name !== "deleted" || creation === undefined) return message;
  return { ...message, headers: { ...message.headers, [creationHeader]: headerText(creation) } };
}

/** Whether a message tells that an event was stored: it is the event, or the deletion of the job that the event created. */
export function tellsOf(message: StoredMessage, eventId: string): boolean {
  return eventOf(message).id === eventId || message.header(creationHeader) === headerText(eventId);
}

/** What the message of a start says besides its event. */
export function startFactsOf(message: StoredMessage): StartFacts {
  const caps = message.header(capsHeader);
  return {
    leaseUntil: leaseUntilOf(message),
    sheet: message.header(sessionHeader) ?? "",
    caps: caps === undefined ? [] : capsFrom(caps),
  };
}

/** Until when the lease of a start stands, as its message says. */
export function leaseUntilOf(message: StoredMessage): number {
  return Number(message.header(leaseHeader) ?? 0);
}

/** The caps that a header lists. What is no list counts under none. */
function capsFrom(text: string): readonly string[] {
  try {
    const caps: unknown = JSON.parse(text);
    return Array.isArray(caps) ? caps.filter((cap) => typeof cap === "string") : [];
  } catch {
    return [];
  }
}

/** How many tokens the subject of an event has that makes no job claimable. */
const plainTokens = 6;

/** Whether a message makes its job claimable. */
function isTicket({ subject }: StoredMessage): boolean {
  return subject.split(".").length > plainTokens;
}

/** Whether a message is a note, which no append compares with. */
function isNoteMessage(prefix: string, { subject }: StoredMessage): boolean {
  return subject.startsWith(`${prefix}.notes.`);
}

/** A job that does not exist. */
export const noJob: ReadJob = {
  job: null,
  events: [],
  seqs: [],
  creations: [],
  lastSeq: 0,
  existed: false,
  ticketSeq: 0,
  deletedAt: 0,
  starts: new Map(),
};

/** A job of which nothing but its creation is in the log, and that with a ticket. */
export function createdJob(event: EventOf<"created">, seq: number): LoggedJob {
  const { job } = evolve(null, event);
  const place = [seq];
  return {
    job,
    seqs: place,
    creations: place,
    lastSeq: seq,
    existed: true,
    ticketSeq: seq,
    deletedAt: 0,
    starts: noJob.starts,
  };
}

/** A job that was started from what was known of it. */
export function startedJob(logged: LoggedJob, job: Job, seq: number, facts: StartFacts): LoggedJob {
  const { seqs, creations, existed, ticketSeq, deletedAt } = logged;
  const starts = new LastStart(job.token, facts, logged.starts);
  return { job, seqs, creations, lastSeq: seq, existed, ticketSeq, deletedAt, starts };
}

/** Whether an event is not of a job's service; what no fold knows says it as its subject does. */
function isOfAnother(event: JobEvent, { service }: Job): boolean {
  return event.service !== service && event.service !== tokenOf(service);
}

/** Folds the messages of a job in the order of the log. */
export function foldMessages(prefix: string, messages: readonly StoredMessage[]): ReadJob {
  let { job, lastSeq, ticketSeq, deletedAt, existed } = noJob;
  let events: JobEvent[] = [];
  const seqs: number[] = [];
  const creations: number[] = [];
  const starts = new Map<number, StartFacts>();
  for (const message of messages) {
    const event = eventOf(message);
    // No append to the job compares with what another service writes under its id.
    if (job !== null && isOfAnother(event, job)) continue;
    seqs.push(message.seq);
    if (event.name === "created") creations.push(message.seq);
    existed ||= event.version > 0;
    if (!isNoteMessage(prefix, message)) lastSeq = message.seq;
    if (isTicket(message)) ticketSeq = message.seq;
    if (event.name === "started") starts.set(event.token, startFactsOf(message));
    // What only refuses a creation deletes no job.
    if (event.name === "deleted" && event.version > 0) deletedAt = event.at;
    const evolution = evolve(job, event);
    job = evolution.job;
    if (evolution.ignored !== null || event.name === "ready") continue;
    events.push(event);
    if (job === null) events = [];
  }
  return { job, events, seqs, creations, lastSeq, existed, ticketSeq, deletedAt, starts };
}
