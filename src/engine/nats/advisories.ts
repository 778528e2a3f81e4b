/**
 * Advisories: the server says when it has offered a ticket too often and offers it no more. Nobody could start its job,
 * and nobody ever will, so that the job ends as dead. This is a net: a ticket is taken up or dropped long before.
 */
import { decide } from "../../core/decide.js";
import type { Actor, Job } from "../../core/job.js";
import type { Change } from "../engine.js";
import { eventOf, tokenOf } from "../event-text.js";
import type { Log } from "./log.js";
import type { Port } from "./port.js";
import type { Subjects } from "./subjects.js";

/** How many advisories one look acts on. */
const actMax = 500;

/** How long the ticket that an advisory names is waited for; it may have been removed with its job. */
const findMs = 1_000;

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

  constructor(context: AdvisoriesContext) {
    this.#context = context;
  }

  /** Ends the jobs of a service whose tickets were offered too often. Only who may see all of a deployment can. */
  async act(service: string): Promise<void> {
    const { port, subjects } = this.#context;
    if (subjects.scope !== undefined) return;
    const messages = await port.read("advisories", ">");
    for (const { seq, body } of messages.slice(0, actMax)) {
      const advisory = JSON.parse(body) as Advisory;
      if (!advisory.consumer.startsWith(`${tokenOf(service)}~`)) continue;
      if (await this.#isDone(advisory)) await port.remove("advisories", [seq]);
    }
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

function keyOf({ service, type, id }: Job): Change["job"] {
  return { service, type, id };
}
