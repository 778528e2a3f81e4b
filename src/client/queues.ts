/**
 * What an operator does to queues and keys: pause, resume, and release a key that a lost job blocks.
 */
import { Result } from "better-result";
import { nameProblem } from "../core/names.js";
import { StoreBusy, type StoreError } from "../engine/errors.js";
import { type QueueSettings, recordId } from "../engine/record.js";
import { type AsyncResult, attempt, refusal } from "./async-result.js";
import type { Client } from "./client.js";
import { commandMany } from "./commands.js";
import { InvalidOption } from "./errors.js";
import { type KeyAsk, keyProblem, keyRow } from "./reads.js";
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
    return this.#set(queue, { paused: true });
  }

  /** Hands out jobs of a queue again. */
  resume(queue: string): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    return this.#set(queue, { paused: false });
  }

  #set(
    queue: string,
    change: QueueSettings,
  ): AsyncResult<QueueSettings, InvalidOption | StoreError> {
    return attempt<QueueSettings, InvalidOption | StoreError>(async () => {
      const problem = nameProblem("queue", queue);
      if (problem !== null)
        return Result.err(new InvalidOption({ field: "queue", message: problem }));
      const { engine, service } = this.#client.runtime;
      const id = recordId.queue(service, queue);
      let [current = null] = await engine.records([id]);
      for (let writes = 0; writes < writesMax; writes++) {
        const body = { ...(current?.body as object | undefined), ...change };
        const [outcome] = await engine.swap([{ id, expect: current?.version ?? 0, body }]);
        if (outcome === undefined) throw new Error("The store gave no answer to a swap.");
        if (outcome.swapped) return Result.ok(body);
        current = outcome.current;
      }
      const message = `The settings of queue ${queue} kept changing; try again.`;
      return Result.err(new StoreBusy({ url: engine.url, message }));
    });
  }
}

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
      return Result.ok(outcomes.flatMap((outcome) => (outcome.ok ? [outcome.job.id] : [])));
    });
  }
}
