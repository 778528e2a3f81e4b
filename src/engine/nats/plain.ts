/**
 * Plain changes, which are nearly all: a job without a key, blockers or records is created, or the worker that holds it
 * ends it. Nothing has to be looked up for them, and so each is one message and little else, and those of one call go
 * together: what a change holds on to while it is under way costs more than the change. Whatever does not go as expected
 * is left to the way of all others.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { ignoredReason } from "../../core/evolve.js";
import { isEnded } from "../../core/job.js";
import type { Change, WakeTopic } from "../engine.js";
import { messageOf } from "./entry.js";
import type { Held } from "./held.js";
import type { Appended, Log } from "./log.js";
import type { Where } from "./news.js";
import type { Acknowledgeable, EachPublication, Port } from "./port.js";
import type { Subjects } from "./subjects.js";

/** What plain changes need of the engine. */
export interface PlainContext {
  readonly port: Port;
  readonly subjects: Subjects;
  readonly log: Log;
  readonly held: Held;
  readonly hint: (topic: WakeTopic, service: string, where?: Where) => void;
}

/** What a hint at ends says where nothing else than plain jobs has ended. */
const plainEnds: Where = new Set(["plain"]);

/** Changes of one call that are plain, each with its place in the call. */
export class PlainChanges {
  readonly #context: PlainContext;
  readonly #items: Appended[] = [];
  readonly #changes: Change[] = [];
  readonly #places: number[] = [];

  constructor(context: PlainContext) {
    this.#context = context;
  }

  /** Takes a change that is plain; gives whether it is. */
  take(change: Change, by: "worker" | "outside", place: number): boolean {
    const item = by === "worker" ? endOf(this.#context, change) : createOf(this.#context, change);
    if (item === null) return false;
    this.#items.push(item);
    this.#changes.push(change);
    this.#places.push(place);
    return true;
  }

  /** Stores them, and tells what became of each. */
  async store(tell: (publication: EachPublication, place: number) => void): Promise<void> {
    if (this.#items.length === 0) return;
    const storing = this.#context.log.appendEach(this.#items);
    // Who hears of a create when it is sent finds it stored, nearly always; a second hint comes when it is for sure.
    this.#hintCreated(this.#changes);
    const publications = await storing;
    const stored: Change[] = [];
    const done: Acknowledgeable[] = [];
    for (let index = 0; index < publications.length; index++) {
      const publication = publications[index] as EachPublication;
      if (publication.outcome === "stored") {
        const change = this.#changes[index] as Change;
        stored.push(change);
        this.#letGo(change, done);
      }
      tell(publication, this.#places[index] as number);
    }
    this.#hintCreated(stored);
    // Nobody waits for this: a ticket that could not be acknowledged comes again and is dropped.
    this.#context.port.acknowledge(done).catch(() => {});
  }

  /** Tells workers of jobs that they may claim, and where. Most creates of a call are for the same lane. */
  #hintCreated(changes: readonly Change[]): void {
    const { hint, subjects } = this.#context;
    let told: EventOf<"created"> | null = null;
    for (const { event } of changes) {
      if (event.name !== "created" || (told !== null && areOfOneLane(event, told))) continue;
      told = event;
      hint("ready", event.service, isDue(event) ? new Set([subjects.consumerOf(event)]) : null);
    }
  }

  /** The end of a plain job frees nothing that others wait for, but somebody may wait for the end. */
  #letGo({ event, expect }: Change, done: Acknowledgeable[]): void {
    const { held, hint } = this.#context;
    if (event.name === "created" || expect.token === undefined) return;
    hint("ended", event.service, plainEnds);
    const delivery = held.take(event.jobId, expect.token);
    if (delivery) done.push(delivery);
  }
}

/** A create as it is stored, if it is plain. */
function createOf(
  { subjects }: PlainContext,
  { event, expect, records, follow, job }: Change,
): Appended | null {
  if (event.name !== "created" || records !== undefined || follow !== undefined) return null;
  if (event.key !== undefined || event.blockers.length > 0) return null;
  if (expect.version !== 0 || job.id !== event.jobId) return null;
  const { jobId } = event;
  const compare = { filter: subjects.idFilter(jobId), seq: 0 };
  if (!isDue(event)) return { jobId, message: messageOf(subjects.event(event), event, compare) };
  // A job that is due is claimed from its creation.
  const message = messageOf(subjects.ticket(event, event), event, compare);
  return { jobId, message, consumer: subjects.consumerOf(event) };
}

function isDue({ runAt, at }: EventOf<"created">): boolean {
  return runAt <= at;
}

/** Whether the same workers wait for two jobs. */
function areOfOneLane(one: EventOf<"created">, other: EventOf<"created">): boolean {
  return (
    one.service === other.service &&
    one.type === other.type &&
    one.queue === other.queue &&
    one.typeVersion === other.typeVersion &&
    one.priority === other.priority &&
    isDue(one) === isDue(other)
  );
}

/** The end of a job by the worker that holds it as it is stored, if it is plain. */
function endOf(
  { subjects, held }: PlainContext,
  { event, expect, records, follow, job: key }: Change,
): Appended | null {
  if (!isEnded(event.state) || records !== undefined || follow !== undefined) return null;
  const logged = held.get(key.id, expect.token)?.logged;
  const job = logged?.job;
  if (!logged || !job || job.key !== undefined || event.name === "deleted") return null;
  const { service, id, token, version } = job;
  if (key.service !== service || key.type !== job.type || key.id !== event.jobId) return null;
  if (version !== expect.version || token !== expect.token) return null;
  if (logged.starts.get(token)?.caps.length !== 0 || !isOwnOutcome(event, job)) return null;
  const compare = { filter: subjects.jobFilter(service, id), seq: logged.lastSeq };
  return { jobId: id, message: messageOf(subjects.event(event), event, compare) };
}

/** Whether an event is the outcome that a worker may give to a job as it is. */
function isOwnOutcome(event: JobEvent, job: Parameters<typeof ignoredReason>[0]): boolean {
  return event.actor.startsWith("worker:") && ignoredReason(job, event) === null;
}
