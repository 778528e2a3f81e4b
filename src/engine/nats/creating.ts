/**
 * What a create needs before it is stored, and what is done when it is: an id that is free, blockers that are there, a place
 * under its key; and the same for continuations, which are stored together with what they follow from.
 */
import { endsAtOnce, refusedContinuation } from "../../core/chains.js";
import type { EventOf, JobEvent } from "../../core/event.js";
import { evolve } from "../../core/evolve.js";
import { isEnded, type Job } from "../../core/job.js";
import { type BatchAnswer, Batcher } from "../batching.js";
import type { AppendOutcome, Change, WakeTopic } from "../engine.js";
import { blockerRefusal } from "./blockers.js";
import { messageOf } from "./entry.js";
import { heldRecordId } from "./held-deleted.js";
import type { KeyedCreate } from "./keys.js";
import type { Appended } from "./log.js";
import type { EngineParts } from "./parts.js";

/** What creates need of the engine. */
export interface CreatingContext
  extends Pick<EngineParts, "log" | "records" | "keys" | "subjects" | "now"> {
  readonly hint: (topic: WakeTopic, service: string) => void;
  /** The job that a chain has come to; `null` where the chain is not there, or its end was removed. */
  readonly chainEnd: (chainId: string) => Promise<Job | null>;
}

/** A create that may be stored: its event, where it goes, and what to do afterwards. */
export interface PreparedCreate {
  readonly items: readonly Appended[];
  readonly created: EventOf<"created">;
  readonly refusal: AppendOutcome | null;
  readonly keyed: Extract<KeyedCreate, { outcome: "let_in" }> | null;
}

const exists: AppendOutcome = { outcome: "exists" };

/** How many blockers are looked for together. */
const findMax = 1_000;

/** Gets creates ready. */
export class Creating {
  readonly #context: CreatingContext;
  /** Looks for blockers. Creates of one call often wait for the same. */
  readonly #blockers: Batcher<readonly string[], readonly (Job | null)[]>;

  constructor(context: CreatingContext) {
    this.#context = context;
    this.#blockers = new Batcher((asked) => this.#find(asked), {
      weightMax: findMax,
      weigh: (ids) => ids.length,
      inFlightMax: 1,
    });
  }

  /**
   * Where a new job of an id begins: behind a deleted one of that id; `null` if the id is taken. A create that was
   * decided before the deletion comes late, and may be the very job that was deleted.
   */
  async freeId({ jobId, service, at }: JobEvent): Promise<number | null> {
    const { log, records, now } = this.#context;
    const { job, lastSeq, deletedAt } = await log.load(jobId);
    if (job !== null || deletedAt > at) return null;
    if (lastSeq === 0) return 0;
    const { record } = await records.get(heldRecordId(service, jobId));
    const body = record?.body as { readonly until?: number } | undefined;
    return (body?.until ?? 0) > now() ? null : lastSeq;
  }

  /** Takes the places that a create needs. A continuation that its key refuses is created and skipped. */
  async prepare(
    event: EventOf<"created">,
    lastSeq: number,
    isContinuation: boolean,
    leavingId?: string,
  ): Promise<PreparedCreate> {
    const { keys, subjects } = this.#context;
    const item = (created: EventOf<"created">, hasPlace: boolean) =>
      this.#creation(created, lastSeq, hasPlace);
    if (!event.key)
      return { items: [item(event, true)], created: event, refusal: null, keyed: null };
    const keyed = await keys.admit(event, event.key, leavingId);
    if (keyed.outcome === "let_in") {
      const { created, hasSlot } = keyed;
      return { items: [item(created, hasSlot)], created, refusal: null, keyed };
    }
    if (!isContinuation) return { items: [], created: event, refusal: keyed, keyed: null };
    const { created, skipped } = refusedContinuation(event, keyed.admission);
    const end = { jobId: event.jobId, message: messageOf(subjects.event(skipped), skipped) };
    return { items: [item(created, false), end], created, refusal: keyed, keyed: null };
  }

  /** The creation of a job, as the ticket of one that may be claimed at once. */
  #creation(created: EventOf<"created">, lastSeq: number, hasPlace: boolean): Appended {
    const { subjects } = this.#context;
    const { jobId } = created;
    const { job } = evolve(null, created);
    const expect = { filter: subjects.idFilter(jobId), seq: lastSeq };
    if (!job || !hasPlace || !isClaimable(job, created))
      return { jobId, message: messageOf(subjects.event(created), created, expect) };
    const message = messageOf(subjects.ticket(created, job), created, expect);
    return { jobId, message, consumer: subjects.consumerOf(job) };
  }

  /** What keeps the continuations of a change from being stored. */
  async followRefusal(follow: readonly Change[]): Promise<AppendOutcome | null> {
    for (const { event } of follow) {
      if (event.name !== "created") continue;
      if ((await this.freeId(event)) === null) return exists;
      const refusal = await this.blockerRefusal(event);
      if (refusal) return refusal;
    }
    return null;
  }

  /** What is wrong with the blockers of a create. */
  blockerRefusal(event: EventOf<"created">): Promise<AppendOutcome | null> {
    const jobs = (ids: readonly string[]) => this.#blockers.call(ids);
    return blockerRefusal({ jobs, chain: this.#context.chainEnd }, event);
  }

  /** Looks for each job once, whoever asks for it. */
  async #find(
    asked: readonly (readonly string[])[],
  ): Promise<readonly BatchAnswer<readonly (Job | null)[]>[]> {
    const ids = [...new Set(asked.flat())];
    const jobs = await this.#context.log.loadJobs(ids);
    const found = new Map(ids.map((id, place) => [id, jobs[place] ?? null]));
    return asked.map((some) => ({ answer: some.map((id) => found.get(id) ?? null) }));
  }

  /**
   * What follows from a change, behind the create that it may be, or beside the end of a job whose place under a key
   * is free then. A job that ends as soon as it is there takes no place, and is offered to nobody: without batches a worker could
   * start it before.
   */
  async prepareFollow(
    follow: readonly Change[],
    created: readonly PreparedCreate[],
    leavingId?: string,
  ): Promise<readonly PreparedCreate[]> {
    const { subjects } = this.#context;
    const events = follow.map(({ event }) => event);
    const prepared = [...created];
    for (const event of events) {
      if (event.name === "created") {
        const lastSeq = (await this.freeId(event)) ?? 0;
        if (endsAtOnce(events, event.jobId)) {
          const items = [this.#creation(event, lastSeq, false)];
          prepared.push({ items, created: event, refusal: null, keyed: null });
        } else {
          prepared.push(await this.prepare(event, lastSeq, true, leavingId));
        }
        continue;
      }
      // It happens to the job that was created just before, in the same batch where the server takes such.
      const message = messageOf(subjects.event(event), event);
      const last = prepared.at(-1);
      if (last) {
        const items = isEnded(event.state) ? this.#withoutTicket(last) : last.items;
        prepared[prepared.length - 1] = {
          ...last,
          items: [...items, { jobId: event.jobId, message }],
        };
      }
    }
    return prepared;
  }

  /** A job that ends as soon as it is there is offered to nobody: without batches a worker could start it before. */
  #withoutTicket({ items, created }: PreparedCreate): readonly Appended[] {
    const { subjects } = this.#context;
    return items.map((item) => {
      const { jobId, message } = item;
      if (message.expect === undefined) return item;
      return { jobId, message: messageOf(subjects.event(created), created, message.expect) };
    });
  }

  /** Does what follows from creates that are stored. */
  async stored(prepared: readonly PreparedCreate[]): Promise<void> {
    const { hint } = this.#context;
    for (const { created, keyed, items } of prepared) {
      await keyed?.stored();
      hint("ready", created.service);
      if (created.state === "blocked" || items.length > 1) hint("ended", created.service);
      if (items.length > 1 && keyed) await this.#settleFollowed(created);
    }
  }

  /** A continuation that was ended in the same batch leaves its key again. */
  async #settleFollowed(created: EventOf<"created">): Promise<void> {
    const { log, keys } = this.#context;
    const { job, events } = await log.load(created.jobId);
    const last = events.at(-1);
    if (job && last && isEnded(job.state)) await keys.move(job, job, last, null);
  }
}

/** Gives back the places of creates that can never come. The keeper finds those that cannot be given back now. */
export async function withdrawAll(creates: readonly PreparedCreate[]): Promise<void> {
  for (const { keyed } of creates) await keyed?.withdraw().catch(() => {});
}

/** Whether an event leaves a job that may be claimed at once. */
export function isClaimable(job: Job, event: JobEvent): boolean {
  return (job.state === "pending" || job.state === "retry") && job.runAt <= event.at;
}
