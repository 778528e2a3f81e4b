/**
 * The subjects of the log. Every name is exactly one token, so that nothing a caller sends can widen a subject.
 */
import type { JobEvent } from "../../core/event.js";
import type { Job } from "../../core/job.js";
import { tokenOf } from "../event-text.js";

/** Priority is by lane here: all of a higher lane are offered before any of a lower one. */
export const priorityLanes = ["high", "normal", "low"] as const;

export type PriorityLane = (typeof priorityLanes)[number];

/** The lane of a priority: above 0, 0, and below. */
export function priorityLane(priority: number): PriorityLane {
  if (priority === 0) return "normal";
  return priority > 0 ? "high" : "low";
}

/** What a consumer serves: the jobs of one type and version in one queue, of one priority lane. */
export interface LaneName {
  readonly service: string;
  readonly queue: string;
  readonly type: string;
  readonly typeVersion: number;
}

/** The subjects and names of one deployment. */
export class Subjects {
  readonly prefix: string;
  /** The service that may be read; all of them without one. */
  readonly scope: string | undefined;
  /** What the subjects of a type begin with; the last that was asked for, because most come in a row. */
  #head = { service: "", type: "", text: "" };
  /** What the filters of a service's jobs begin with; the last that was asked for. */
  #filterHead = { service: "", text: "" };
  /** The name of a consumer; the last that was asked for, because most jobs of a turn are of one lane. */
  #consumer = { service: "", queue: "", type: "", token: "", name: "" };

  constructor(prefix: string, scope?: string) {
    this.prefix = prefix;
    this.scope = scope;
  }

  /** Where an event is published that changes a job. */
  event({ service, type, jobId, name }: JobEvent): string {
    if (this.#head.service !== service || this.#head.type !== type) {
      const text = `${this.prefix}.jobs.${tokenOf(service)}.${tokenOf(type)}.`;
      this.#head = { service, type, text };
    }
    return `${this.#head.text}${tokenOf(jobId)}.${name}`;
  }

  /** Where an event is published that makes a job claimable. */
  ticket(event: JobEvent, job: Pick<Job, "queue" | "typeVersion" | "priority">): string {
    return `${this.event(event)}.${tokenOf(job.queue)}.${laneToken(job.typeVersion, priorityLane(job.priority))}`;
  }

  /** Where a note is published. One that may come before the start lies where a start compares, so that it is folded. */
  note(event: JobEvent): string {
    const { service, type, jobId, name } = event;
    if (name === "acknowledged") return this.event(event);
    return `${this.prefix}.notes.${tokenOf(service)}.${tokenOf(type)}.${tokenOf(jobId)}.${name}`;
  }

  /** Where an event is announced to whoever listens. No stream holds these subjects. */
  announcement({ service, type, name }: JobEvent): string {
    return `${this.prefix}.events.${tokenOf(service)}.${tokenOf(type)}.${name}`;
  }

  /** Where anything lies that has an id, whose ever it is: creations compare under this filter, and what refuses them. */
  idFilter(id: string): string {
    return `${this.prefix}.jobs.*.*.${tokenOf(id)}.>`;
  }

  /**
   * Everything that changes a job. What follows its creation compares under this filter, always written the same,
   * so that nothing another service writes under the same id is in the way.
   */
  jobFilter(service: string, id: string): string {
    if (this.#filterHead.service !== service)
      this.#filterHead = { service, text: `${this.prefix}.jobs.${tokenOf(service)}.*.` };
    return `${this.#filterHead.text}${tokenOf(id)}.>`;
  }

  /** Where whoever may see one service asks what the server that stores has of an id. Nothing is ever stored there. */
  question(service: string, id: string): string {
    return `${this.prefix}.jobs.${tokenOf(service)}._.${tokenOf(id)}._`;
  }

  /** The whole log of a job, with its notes: whose ever it is, as far as that may be read, or a service's alone. */
  logFilter(id: string, service?: string): string {
    const owner = service === undefined ? this.#scope() : tokenOf(service);
    return `${this.prefix}.*.${owner}.*.${tokenOf(id)}.>`;
  }

  /** The tickets of one consumer. */
  ticketFilter({ service, queue, type, typeVersion }: LaneName, lane: PriorityLane): string {
    return `${this.prefix}.jobs.${tokenOf(service)}.${tokenOf(type)}.*.*.${tokenOf(queue)}.${laneToken(typeVersion, lane)}`;
  }

  /** The name of one consumer. Tokens hold no `~`, so that names are never ambiguous. */
  consumer({ service, queue, type, typeVersion }: LaneName, lane: PriorityLane): string {
    const token = laneToken(typeVersion, lane);
    const last = this.#consumer;
    const isSame = last.token === token && last.type === type && last.queue === queue;
    if (isSame && last.service === service) return last.name;
    const name = [service, queue, type].map(tokenOf).concat(token).join("~");
    this.#consumer = { service, queue, type, token, name };
    return name;
  }

  /** The name of the consumer that gives out a job. */
  consumerOf(job: LaneName & { readonly priority: number }): string {
    return this.consumer(job, priorityLane(job.priority));
  }

  /** Everything that may be read: all events and notes, or those of one service. */
  feedFilter(): string {
    return `${this.prefix}.*.${this.#scope()}.>`;
  }

  /** All events and notes of a service. */
  serviceFilter(service: string): string {
    return `${this.prefix}.*.${tokenOf(service)}.>`;
  }

  /** What the newest message of the log is asked by. Where all may be read, the server need not compare subjects. */
  headFilter(): string {
    return this.scope === undefined ? ">" : this.feedFilter();
  }

  /** The deletions that may be read. */
  deletedFilter(): string {
    return `${this.prefix}.jobs.${this.#scope()}.*.*.deleted`;
  }

  /** Where nothing lies: a job has more tokens. */
  clockFilter(): string {
    return `${this.prefix}.jobs.${this.scope === undefined ? "_" : tokenOf(this.scope)}.clock`;
  }

  /** Where hints on a topic are sent for a service. */
  hint(topic: string, service: string): string {
    return `${this.prefix}.hints.${topic}.${tokenOf(service)}`;
  }

  /** The hints on a topic that may be heard. */
  hintFilter(topic: string): string {
    return `${this.prefix}.hints.${topic}.${this.#scope()}`;
  }

  /** Where whoever applies the log to the view that is asked hears that somebody waits for it. */
  viewHint(): string {
    return this.hint("view", this.scope ?? "_");
  }

  #scope(): string {
    return this.scope === undefined ? "*" : tokenOf(this.scope);
  }
}

function laneToken(typeVersion: number, lane: PriorityLane): string {
  return `v${typeVersion}-${lane}`;
}
