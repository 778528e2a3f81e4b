/**
 * What an operator does to queues and keys: create, change, pause, resume, and release a key that a lost job blocks.
 */
import { Result } from "better-result";
import type { Json } from "../core/json.js";
import { nameProblem } from "../core/names.js";
import { StoreBusy, type StoreError } from "../engine/errors.js";
import { type QueueSettings, recordId } from "../engine/record.js";
import { type AsyncResult, attempt, refusal } from "./async-result.js";
import { type AuditAction, type AuditedChange, leaveAuditEvent } from "./audit.js";
import type { Client } from "./client.js";
import { commandMany, firstFault } from "./commands.js";
import { InvalidOption, QueueExists } from "./errors.js";
import { optionsProblem, whole, yesOrNoProblem } from "./option-checks.js";
import { given, type KeyAsk, keyProblem, keyRow } from "./reads.js";
import { actorOf } from "./runtime.js";

/** How often a setting is written when others change it at the same time. */
const writesMax = 20;

/** The queues of a service. A paused queue takes new jobs and hands out none; running ones go on. */
export class Queues {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Stops handing out jobs of a queue, in every process. */
  pause(queue: string): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    return this.#configure(queue, { paused: true }, "queue.pause");
  }

  /** Hands out jobs of a queue again. */
  resume(queue: string): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    return this.#configure(queue, { paused: false }, "queue.resume");
  }

  /** Gives settings to a queue that has none. Of several at once, one is the first and the others are refused. */
  create(
    queue: string,
    settings: QueueChange = {},
  ): AsyncResult<QueueSettings, InvalidOption | QueueExists | StoreError> {
    const problem = optionsProblem("a queue", settings, queueChecks) ?? queueNameProblem(queue);
    if (problem !== null) return refusal(problem);
    return attempt<QueueSettings, InvalidOption | QueueExists | StoreError>(async () => {
      const { engine, service } = this.#client.runtime;
      const created = this.#changed(undefined, settings);
      const id = recordId.queue(service, queue);
      const [outcome] = await engine.swap([{ id, expect: 0, body: created as unknown as Json }]);
      if (outcome?.swapped) {
        await leaveAuditEvent(this.#client.runtime, auditedChange("queue.create", queue, settings));
        return Result.ok(created);
      }
      const message = `Queue ${queue} of ${service} has settings already; change them with configure.`;
      return Result.err(new QueueExists({ queue, message }));
    });
  }

  /**
   * Changes the settings of a queue, in every process; what is not named stays, and `null` removes a limit.
   * Workers go by a new limit within seconds.
   */
  configure(
    queue: string,
    change: QueueChange,
  ): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    return this.#configure(queue, change, "queue.change");
  }

  #configure(
    queue: string,
    change: QueueChange,
    action: AuditAction,
  ): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    const problem = optionsProblem("a queue", change, queueChecks);
    if (problem !== null) return refusal(problem);
    const audited = auditedChange(action, queue, change);
    return this.#write(queue, audited, (current) => this.#changed(current, change));
  }

  /** Forgets the settings of a queue. Its jobs stay, and go by what their contract says. */
  forget(queue: string): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    return this.#write(queue, { action: "queue.delete", target: queue }, () => null);
  }

  #changed(current: QueueSettings | undefined, change: QueueChange): QueueSettings {
    const { runtime } = this.#client;
    // Members that a newer version has written stay.
    const { maxActive: before, ...others } = current ?? {};
    const { maxActive = before, paused = current?.paused ?? false } = change;
    return {
      ...others,
      paused,
      ...(typeof maxActive === "number" && { maxActive }),
      changedAt: runtime.engine.now(),
      changedBy: actorOf(runtime),
    };
  }

  #write(
    queue: string,
    audited: AuditedChange,
    settings: (current: QueueSettings | undefined) => QueueSettings | null,
  ): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    const problem = queueNameProblem(queue);
    if (problem !== null) return refusal(problem);
    return attempt<QueueSettings, InvalidOption | StoreError>(async () => {
      const { engine, service } = this.#client.runtime;
      const id = recordId.queue(service, queue);
      let [current = null] = await engine.records([id]);
      for (let writes = 0; writes < writesMax; writes++) {
        const next = settings(current?.body as QueueSettings | undefined);
        if (next === null && current === null) return Result.ok({ paused: false });
        const body = next as Json | null;
        const [outcome] = await engine.swap([{ id, expect: current?.version ?? 0, body }]);
        if (outcome === undefined) throw new Error("The store gave no answer to a swap.");
        if (outcome.swapped) {
          await leaveAuditEvent(this.#client.runtime, audited);
          return Result.ok(next ?? { paused: false });
        }
        current = outcome.current;
      }
      const message = `The settings of queue ${queue} kept changing; try again.`;
      return Result.err(new StoreBusy({ url: engine.url, message }));
    });
  }
}

function auditedChange(action: AuditAction, target: string, change: QueueChange): AuditedChange {
  const { paused, maxActive } = change;
  return { action, target, details: given({ paused, maxActive }) };
}

function queueNameProblem(queue: string): InvalidOption | null {
  const message = nameProblem("queue", queue);
  return message === null ? null : new InvalidOption({ field: "queue", message });
}

/** What may be changed of a queue's settings. */
export interface QueueChange {
  readonly paused?: boolean | undefined;
  /** How many of its jobs may be active at once over all processes; `null` goes back to what contracts say. */
  readonly maxActive?: number | null | undefined;
}

/** How many jobs of a queue may be allowed to run at once. */
const maxActiveMost = 1_000_000;

const queueChecks = {
  paused: yesOrNoProblem,
  maxActive: (value: unknown) => (value === null ? null : whole(1, maxActiveMost)(value)),
};

/** The concurrency keys of a service. */
export class Keys {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /**
   * Releases a key that stays blocked because a worker was lost under the `block` policy.
   * The lost jobs end as `stale`; gives their ids, none when the key is not blocked.
   */
  release(ask: KeyAsk): AsyncResult<readonly string[], InvalidOption | StoreError> {
    const problem = keyProblem(ask);
    if (problem !== null) return refusal(problem);
    return attempt(async () => {
      const { runtime } = this.#client;
      const row = await keyRow(this.#client, ask);
      const holders = (row?.active ?? []).map(({ jobId }) => jobId);
      const outcomes = await commandMany(runtime, holders, () => ({
        command: "releaseKey",
        eventId: runtime.ids.eventId(),
        actor: actorOf(runtime),
      }));
      const released = outcomes.flatMap((outcome) => (outcome.ok ? [outcome.job.id] : []));
      if (row !== null && released.length > 0) {
        const { hash, service } = row;
        const details = { released };
        await leaveAuditEvent(runtime, { action: "key.release", target: hash, service, details });
      }
      const fault = firstFault(outcomes);
      if (fault !== undefined) throw fault;
      return Result.ok(released);
    });
  }
}
