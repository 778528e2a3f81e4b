// The callers: they create jobs and give commands through the real client, and keep their own list
// of what they were told.
import type { Result } from "better-result";
import type { BlockerInput } from "#millrace/client/blockers.js";
import { completeChain } from "#millrace/client/chain-completion.js";
import type { Client } from "#millrace/client/client.js";
import { InvalidBlocker, JobEnded, JobExists, JobNotEnqueued } from "#millrace/client/errors.js";
import { JobCreator } from "#millrace/client/job-creator.js";
import { JobRef } from "#millrace/client/job-ref.js";
import { Keys, Queues } from "#millrace/client/queues.js";
import { boundJobs } from "#millrace/contract/definition.js";
import type { JobState } from "#millrace/core/job.js";
import {
  continuations,
  contract,
  type JobType,
  keys,
  type PlanStep,
  queues,
  type Work,
} from "./contract.js";
import type { CallersLedger } from "./ledger.js";
import type { Random } from "./random.js";
import type { World } from "./world.js";

export class Caller {
  readonly #world: World;
  readonly #ledger: CallersLedger;
  readonly #random: Random;
  readonly #client: Client;
  readonly #creators: ReadonlyMap<JobType, JobCreator<Work, unknown, unknown>>;
  readonly process;

  constructor(world: World, ledger: CallersLedger, instance: string) {
    const { process, client } = world.startCaller(instance);
    this.#world = world;
    this.#ledger = ledger;
    this.#random = world.random.fork();
    this.#client = client;
    this.process = process;
    this.#creators = new Map(
      boundJobs(contract).map(({ service, type, queue, definition }) => {
        const { payload: schema, settings } = definition;
        const target = { service, type, queue, schema, settings };
        return [type as JobType, new JobCreator<Work, unknown, unknown>(client, target)];
      }),
    );
  }

  /** Creates a job of a random kind. */
  async create(): Promise<void> {
    const random = this.#random;
    const type = random.pick(this.#world.types);
    const id = this.#client.runtime.ids.jobId();
    const payload = this.#work(type, 3);
    const blockers = random.chance(0.25) ? this.#blockers() : [];
    const isRepeatable = random.chance(0.1);
    const options = {
      id,
      priority: random.chance(0.3) ? random.whole(-2, 2) : 0,
      ...(random.chance(0.2) && { delayMs: random.whole(1, 5_000) }),
      ...(random.chance(0.1) && { deadline: this.#world.wall.now() + random.whole(1, 6_000) }),
      ...(isRepeatable && { idempotencyKey: `${type}-repeatable` }),
      ...(blockers.length > 0 && { blockers }),
    };
    const shared = { key: "a", plan: [] };
    const created = await this.#creator(type).create(isRepeatable ? shared : payload, options);
    this.#world.trace(`${this.process.name}: create ${type} ${id}: ${outcomeText(created)}`);
    if (created.isOk()) {
      this.#ledger.acknowledged.add(created.value.id);
      if (type === "linked") this.#ledger.chains.add(created.value.id);
      if (created.value.id !== id) this.#ledger.refused.add(id);
    } else if (JobNotEnqueued.is(created.error) || InvalidBlocker.is(created.error)) {
      this.#ledger.refused.add(id);
      const named = JobNotEnqueued.is(created.error) && created.error.existingJobId;
      if (named) this.#ledger.named.add(named);
    } else if (JobExists.is(created.error)) {
      this.#ledger.violations.push(
        `A create of the fresh id ${id} met a job: ${created.error.message}`,
      );
    }
  }

  /** Gives a random job a random command. */
  async command(): Promise<void> {
    const random = this.#random;
    const { acknowledged } = this.#ledger;
    if (acknowledged.size === 0) return;
    const id = random.pick([...acknowledged]);
    const ref = new JobRef(this.#client, id);
    const draw = random.next();
    if (draw < 0.3) await this.#cancel(ref, random.chance(0.4));
    else if (draw < 0.5) this.#tell("retry", id, await ref.retry({ force: random.chance(0.3) }));
    else if (draw < 0.7) this.#tell("dismiss", id, await ref.dismiss());
    else if (draw < 0.76) await this.#remove(ref, random.chance(0.5));
    else if (draw < 0.85) await this.#completeChain();
    else await this.#wait(ref);
  }

  /** Pauses or resumes a queue. */
  async operate(): Promise<void> {
    const queue = this.#random.pick(queues);
    const asked = this.#random.chance(0.5) ? "pause" : "resume";
    const outcome = await new Queues(this.#client)[asked](queue);
    this.#world.trace(`${this.process.name}: ${asked} ${queue}: ${outcomeText(outcome)}`);
  }

  /** Resumes all queues and releases every key that a lost job blocks. */
  async setRight(): Promise<void> {
    for (const queue of queues) await new Queues(this.#client).resume(queue);
    for (const key of keys) await new Keys(this.#client).release({ type: "blocks", key });
  }

  /** The work of a job; one that can go on does so through at most `links` more. */
  #work(type: JobType, links: number): Work {
    const random = this.#random;
    const work: Work = { key: random.pick(keys), plan: randomPlan(random, type === "linked") };
    if (type !== "linked" || links === 0) return work;
    // Only types that somebody handles come to an end.
    const handled = continuations.filter((next) => this.#world.types.includes(next));
    const next = random.chance(0.5) ? "linked" : random.pick(handled);
    return { ...work, next: { type: next, work: this.#work(next, links - 1) } };
  }

  /** Some jobs and chains to wait for, of which some may be gone. */
  #blockers(): BlockerInput[] {
    const random = this.#random;
    const { acknowledged, chains } = this.#ledger;
    const onBadEnd = () => random.pick(["continue", "continue", "unreachable"] as const);
    const picked: BlockerInput[] = [];
    for (let count = random.whole(1, 3); count > 0 && acknowledged.size > 0; count--) {
      if (chains.size > 0 && random.chance(0.5))
        picked.push({ chain: random.pick([...chains]), onBadEnd: onBadEnd() });
      else picked.push({ job: random.pick([...acknowledged]), onBadEnd: onBadEnd() });
    }
    return picked;
  }

  /** Completes the current job of a chain in the place of a worker, in one or two steps. */
  async #completeChain(): Promise<void> {
    const { chains } = this.#ledger;
    if (chains.size === 0) return;
    const id = this.#random.pick([...chains]);
    const steps = this.#random.whole(1, 2);
    const outcome = await completeChain(this.#client, id, async ({ job, complete }) => {
      let current: typeof job | null = job;
      for (let step = 0; step < steps && current !== null; step++) {
        const { next } = current.payload as unknown as Work;
        current = await complete(current, ({ continueWith }) =>
          next ? continueWith(next.type, next.work) : { by: "hand" },
        );
      }
    });
    this.#world.trace(`${this.process.name}: complete chain ${id}: ${outcomeText(outcome)}`);
    if (outcome.isOk())
      this.#ledger.told.push({ id: outcome.value.current.id, state: outcome.value.state });
  }

  #creator(type: JobType): JobCreator<Work, unknown, unknown> {
    const creator = this.#creators.get(type);
    if (creator === undefined) throw new Error(`There is no type ${type}.`);
    return creator;
  }

  async #cancel(ref: JobRef, force: boolean): Promise<void> {
    const outcome = await ref.cancel("by hand", { force });
    this.#world.trace(`${this.process.name}: cancel ${ref.id}: ${outcomeText(outcome)}`);
    if (outcome.isOk()) this.#ledger.told.push({ id: ref.id, state: outcome.value.state });
  }

  async #remove(ref: JobRef, force: boolean): Promise<void> {
    const outcome = await ref.delete({ force });
    this.#world.trace(`${this.process.name}: delete ${ref.id}: ${outcomeText(outcome)}`);
    if (outcome.isOk()) this.#ledger.removed.add(ref.id);
  }

  async #wait(ref: JobRef): Promise<void> {
    const end = await ref.wait({ timeoutMs: 10_000 });
    this.#world.trace(`${this.process.name}: wait for ${ref.id}: ${outcomeText(end)}`);
    if (end.isOk()) this.#ledger.told.push({ id: ref.id, state: "completed" });
    else if (JobEnded.is(end.error)) this.#ledger.told.push({ id: ref.id, state: end.error.state });
  }

  #tell(command: string, id: string, outcome: Result<{ readonly state: JobState }, Error>): void {
    this.#world.trace(`${this.process.name}: ${command} ${id}: ${outcomeText(outcome)}`);
    if (outcome.isOk()) this.#ledger.told.push({ id, state: outcome.value.state });
  }
}

function outcomeText(result: Result<unknown, Error>): string {
  return result.isOk() ? "done" : `${result.error.name}: ${result.error.message}`;
}

/** A few steps of which the last lets the job end. */
function randomPlan(random: Random, completes: boolean): readonly PlanStep[] {
  const says = [
    "returned",
    "returned",
    "threw",
    "threw",
    "snoozed",
    "terminated",
    "skipped",
  ] as const;
  const steps = Array.from({ length: random.whole(0, 3) }, () => step(random, random.pick(says)));
  const good = completes ? "completed" : "returned";
  const last = random.pick([good, good, good, "threw", "terminated"] as const);
  return [...steps, step(random, last)];
}

function step(random: Random, says: PlanStep["says"]): PlanStep {
  const workMs = random.chance(0.7) ? random.whole(0, 800) : random.whole(800, 7_000);
  return { workMs, says, notes: random.chance(0.3), isDeaf: random.chance(0.15) };
}
