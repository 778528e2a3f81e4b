/**
 * Tickets: what became of the job of a delivered ticket, and what is to be done with it now.
 */
import { claimVerdict } from "../../core/decide.js";
import type { JobEvent } from "../../core/event.js";
import type { Job } from "../../core/job.js";
import { eventOf } from "../event-text.js";
import { createdJob, type LoggedJob } from "./entry.js";
import type { EngineParts } from "./parts.js";
import type { Acknowledgeable, Delivery } from "./port.js";

/** What is to be done with a ticket. */
export type Verdict = "start" | "expire" | "drop" | "leave";

/** A ticket with its job. What was delivered is not kept, because it is most of what a job takes while it is started. */
export interface Candidate extends Acknowledgeable {
  readonly seq: number;
  readonly ticket: JobEvent;
  readonly logged: LoggedJob;
  readonly verdict: Verdict;
}

/** A ticket with its job, at once or when that was read. */
type Look = Candidate | Promise<Candidate>;

/** What looking at tickets needs of the engine. */
export type TicketsContext = Pick<EngineParts, "log" | "leases" | "keys" | "now">;

/** Looks at tickets. */
export class Tickets {
  readonly #context: TicketsContext;

  constructor(context: TicketsContext) {
    this.#context = context;
  }

  /** What the jobs of some tickets have come to. */
  async look(deliveries: readonly Delivery[]): Promise<readonly Candidate[]> {
    const looks: readonly Look[] = deliveries.map((delivery) => this.#look(delivery));
    return areKnown(looks) ? looks : Promise.all(looks);
  }

  /** A fresh creation is all there is of its job, unless the start is refused. */
  #look(delivery: Delivery): Look {
    const ticket = eventOf(delivery);
    const { reply, seq } = delivery;
    const isFresh = ticket.name === "created" && !delivery.isRedelivery;
    if (!isFresh) return this.again({ reply, seq, ticket });
    const logged = createdJob(ticket, seq);
    const verdict = this.#verdict(seq, ticket, logged);
    if (typeof verdict === "string") return { reply, seq, ticket, logged, verdict };
    return verdict.then((given) => ({ reply, seq, ticket, logged, verdict: given }));
  }

  /** What a ticket's job has come to by now. */
  async again({ reply, seq, ticket }: Omit<Candidate, "logged" | "verdict">): Promise<Candidate> {
    const logged = await this.#context.log.load(ticket.jobId, seq);
    return { reply, seq, ticket, logged, verdict: await this.#verdict(seq, ticket, logged) };
  }

  #verdict(seq: number, ticket: JobEvent, logged: LoggedJob): Verdict | Promise<Verdict> {
    const { job } = logged;
    // No copy shows the ticket itself, which may have been removed; if it was not, it is offered again.
    if (logged.lastSeq < seq) return "leave";
    if (job === null || seq < logged.ticketSeq) return "drop";
    if (job.state === "active") return this.#verdictOnActive(logged);
    if (job.state !== "pending" && job.state !== "retry") return "drop";
    const now = this.#context.now();
    // A ticket of an earlier start does not shorten the wait. One that was written when the time had come counts, even if
    // the clock has gone back since.
    if (job.runAt > now && ticket.at < job.runAt) return "drop";
    if (job.key) return this.#verdictOnKeyed(job);
    return claimVerdict(job, now) === "expire" ? "expire" : "start";
  }

  async #verdictOnActive(logged: LoggedJob): Promise<Verdict> {
    const lease = await this.#context.leases.of(logged);
    return lease && lease.until > this.#context.now() ? "leave" : "drop";
  }

  async #verdictOnKeyed(job: Job): Promise<Verdict> {
    if (!(await this.#context.keys.hasSlot(job))) return "drop";
    return claimVerdict(job, this.#context.now()) === "expire" ? "expire" : "start";
  }
}

/** Whether nothing has to be waited for. */
function areKnown(looks: readonly Look[]): looks is readonly Candidate[] {
  return !looks.some((look) => look instanceof Promise);
}
