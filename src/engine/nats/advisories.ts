/**
 * Advisories: the server says when it has offered a ticket too often and offers it no more. Nobody could start its job,
 * and nobody ever will, so that the job ends as dead. This is a net: a ticket is taken up or dropped long before.
 */
import { decide } from "../../core/decide.js";
import type { Actor, Job } from "../../core/job.js";
import type { Change } from "../engine.js";
import { eventOf, tokenOf } from "../event-text.js";
import { FirstFault } from "./first-fault.js";
import type { Log } from "./log.js";
import type { Port, StoredMessage } from "./port.js";
import type { Subjects } from "./subjects.js";

/** How many messages one look reads, how many advisories it acts on, and how many messages it removes that are none. */
const readMax = 1_000;
const actMax = 500;

/** How long the ticket that an advisory names is waited for; it may have been removed with its job. */
const findMs = 1_000;

/** What the server calls an advisory of a message that it has offered too often. */
const advisoryType = "io.nats.jetstream.advisory.v1.max_deliver";

/** The part of an advisory that matters here. */
interface Advisory {
  readonly consumer: string;
  readonly stream_seq: number;
  readonly deliveries: number;
}

/** What advisories need of the engine. */
export interface AdvisoriesContext {
  readonly port: Port;
  readonly subjects: Subjects;
  readonly log: Log;
  readonly now: () => number;
  readonly newEventId: () => string;
  readonly actor: Actor;
  /** Appends a change from outside. */
  readonly append: (change: Change) => Promise<{ readonly outcome: string }>;
}

/** The advisories of a deployment. */
export class Advisories {
  readonly #context: AdvisoriesContext;
  /** The position of the last message that was looked at for a service, unless all were. */
  readonly #lookedAt = new Map<string | null, number>();

  constructor(context: AdvisoriesContext) {
    this.#context = context;
  }

  /**
   * Ends the jobs of a service, or of all, whose tickets were offered too often. Only who may see all of a deployment can. Each
   * look goes on where the last one ended, and begins again with the first message after the last.
   */
  async act(service: string | null): Promise<void> {
    const { port, subjects } = this.#context;
    if (subjects.scope !== undefined) return;
    const start = service === null ? "" : `${tokenOf(service)}~`;
    const after = this.#lookedAt.get(service) ?? 0;
    const messages = await port.read("advisories", ">", { after, limit: readMax });
    if (messages.length < readMax) this.#lookedAt.delete(service);
    else this.#lookedAt.set(service, messages.at(-1)?.seq ?? 0);
    const found = messages.map((message) => ({ seq: message.seq, advisory: advisoryOf(message) }));
    // What is no advisory is in nobody's way, also where this user may not remove it.
    const strange = found.filter(({ advisory }) => advisory === null).map(({ seq }) => seq);
    await port.remove("advisories", strange.slice(0, actMax)).catch(() => {});
    const faults = new FirstFault();
    const own = found.filter(({ advisory }) => advisory?.consumer.startsWith(start));
    for (const { seq, advisory } of own.slice(0, actMax))
      await faults.attempt(async () => {
        if (advisory && (await this.#isDone(advisory))) await port.remove("advisories", [seq]);
      });
    faults.rethrow();
  }

  /** Whether nothing more is to be done about a ticket. */
  async #isDone({ stream_seq: seq, deliveries }: Advisory): Promise<boolean> {
    const { log, now, newEventId, actor, append } = this.#context;
    const id = await this.#jobAt(seq);
    if (id === null) return true;
    const { job, ticketSeq } = await log.load(id);
    // Whoever has it now, or a newer ticket, makes this one a thing of the past.
    const waits = job?.state === "pending" || job?.state === "retry";
    if (!waits || ticketSeq !== seq) return true;
    const message = `It was offered ${deliveries} times, and no worker could start it.`;
    const error = { message, reason: "deliveries" } as const;
    const command = { command: "exhaust", eventId: newEventId(), actor, error } as const;
    const decision = decide(job, command, now());
    if (!decision.ok) return true;
    const { outcome } = await append({
      job: keyOf(job),
      expect: { version: job.version },
      event: decision.event,
    });
    return outcome === "appended";
  }

  /** The job whose event lies at a position. */
  async #jobAt(seq: number): Promise<string | null> {
    const { port, subjects } = this.#context;
    const signal = AbortSignal.timeout(findMs);
    for await (const [first] of port.follow("jobs", subjects.feedFilter(), seq - 1, signal))
      return first?.seq === seq ? eventOf(first).jobId : null;
    return null;
  }
}

/**
 * An advisory as it was stored; `null` for what is none. A user can have the server carry other words there, where nobody but
 * the server may publish.
 */
function advisoryOf({ subject, body }: StoredMessage): Advisory | null {
  const said = parsed(body);
  if (said?.type !== advisoryType) return null;
  const { consumer, stream_seq, deliveries } = said;
  if (typeof consumer !== "string" || !subject.endsWith(`.${consumer}`)) return null;
  if (!isCount(stream_seq) || !isCount(deliveries)) return null;
  return { consumer, stream_seq, deliveries };
}

function parsed(text: string): Partial<Record<keyof Advisory | "type", unknown>> | null {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

function keyOf({ service, type, id }: Job): Change["job"] {
  return { service, type, id };
}
