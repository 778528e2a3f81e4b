// A log that is written by hand: every event is made by the core, and no engine has stored it.
import { MovableClock } from "millrace/conformance";
import type { Command, CommandData, CommandName } from "#millrace/core/command.js";
import { decide, startedEvent } from "#millrace/core/decide.js";
import type { JobEvent } from "#millrace/core/event.js";
import { evolve } from "#millrace/core/evolve.js";
import type { Actor, Job, JobKeyPolicy } from "#millrace/core/job.js";
import { keyHash } from "#millrace/core/keys.js";
import type { LoggedEvent } from "#millrace/engine/projection/entry.js";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;

type Wish = {
  [Name in CommandName]: { readonly command: Name; readonly actor?: Actor } & CommandData[Name];
}[CommandName];

export class Log {
  readonly clock = new MovableClock();
  readonly entries: LoggedEvent<JobEvent>[] = [];
  readonly #jobs = new Map<string, Job>();
  #count = 0;

  get head(): number {
    return this.entries.at(-1)?.seq ?? 0;
  }

  /** Writes an event as it is. */
  write(event: JobEvent, leaseUntil?: number): void {
    const seq = this.head + 1;
    this.entries.push(leaseUntil === undefined ? { seq, event } : { seq, event, leaseUntil });
    const { job } = evolve(this.#jobs.get(event.jobId) ?? null, event);
    if (job) this.#jobs.set(event.jobId, job);
    else this.#jobs.delete(event.jobId);
  }

  /** A job as the log tells it. */
  job(id: string): Job {
    const job = this.#jobs.get(id);
    if (!job) throw new Error(`The log has no job ${id}.`);
    return job;
  }

  create(id: string, more: Partial<CommandData["create"]> = {}): void {
    const context = { requestId: `request-${id}`, traceId, traceparent };
    this.do(id, {
      ...{ command: "create", id, service: "shop", type: "mail", typeVersion: 1, queue: "mail" },
      ...{ payload: { id }, context, maxTries: 3, priority: 0, runAt: this.clock.now() },
      ...{ deadLetter: true, tags: [], blockers: [] },
      ...more,
    } as Wish);
  }

  /** Decides a command and writes its event. */
  do(id: string, wish: Wish): void {
    const origin = { eventId: this.#eventId(), actor: wish.actor ?? "client:caller" };
    const command = { ...wish, ...origin } as Command;
    const decision = decide(this.#jobs.get(id) ?? null, command, this.clock.now());
    if (!decision.ok) throw new Error(decision.rejection.message);
    this.write(decision.event);
  }

  /** Lets a worker start a job. */
  start(id: string, leaseMs = 30_000): void {
    const origin = { eventId: this.#eventId(), actor: "worker:worker-1" } as const;
    const now = this.clock.now();
    this.write(startedEvent(this.job(id), origin, "worker-1", now), now + leaseMs);
  }

  complete(id: string): void {
    const { token } = this.job(id);
    const actor = "worker:worker-1";
    this.do(id, { command: "complete", token, completedBy: "worker-1", actor });
  }

  #eventId(): string {
    this.#count += 1;
    return `event-${this.#count}`;
  }
}

/** A key of mails that one job may hold at a time. */
export function key(name: string, maxActive = 1): JobKeyPolicy {
  const hash = keyHash("shop", "mail", [name]);
  const policy = { whenFull: "reject", stalePolicy: "requeue" } as const;
  return { key: name, hash, maxActive, maxQueued: 100, ...policy };
}

/** A log of some life: jobs of all kinds come, run, fail and go, and some stay. The same every time. */
export function busyLog(jobs: number): Log {
  const log = new Log();
  for (let count = 0; count < jobs; count++) {
    const id = `job-${count}`;
    const later = count % 5 === 0 ? 40 : 0;
    log.create(id, {
      runAt: log.clock.now() + later,
      tags: count % 4 === 0 ? ["red"] : [],
      ...(count % 3 === 0 && { key: key(`k${count % 2}`) }),
      ...(count % 7 === 0 && { chainId: id }),
    });
    log.clock.advance(10);
    const earlier = `job-${count - 6}`;
    if (count < 6 || count % 11 === 0) continue;
    log.start(earlier);
    if (count % 13 === 0) continue;
    if (count % 2 === 0) log.complete(earlier);
    else failed(log, earlier);
    if (count % 8 === 0) log.do(earlier, { command: "delete", reason: "test", force: true });
  }
  return log;
}

function failed(log: Log, id: string): void {
  const error = { message: "no luck", reason: "error" } as const;
  const retryAt = log.clock.now() + 25;
  log.do(id, { command: "fail", token: log.job(id).token, error, retryAt });
}
