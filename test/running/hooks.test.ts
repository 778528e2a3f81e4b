// Hooks end to end on every store: what is called around a job, by whom, and what becomes of one that throws.
import { connect, defineJob, defineService } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { HookJob } from "#millrace/contract/hooks.js";
import { everyStore } from "../support/every-store.js";

const keeper = { ttlMs: 2_000, renewMs: 200, tickMs: 50, resolveMs: 10 };

/** What was called, as `hook id state`, and a way to wait for one of them. */
class Calls {
  readonly seen: string[] = [];
  readonly #waiting = new Map<string, () => void>();

  note(hook: string, { id, state }: HookJob<unknown, unknown>): void {
    const call = `${hook} ${id} ${state}`;
    this.seen.push(call);
    this.#waiting.get(call)?.();
  }

  async of(call: string): Promise<void> {
    if (this.seen.includes(call)) return;
    await new Promise<void>((resolve) => this.#waiting.set(call, resolve));
  }

  about(id: string): readonly string[] {
    return this.seen.filter((call) => call.split(" ")[1] === id);
  }
}

function shop(calls: Calls) {
  const hooks = {
    onStart: (job: HookJob) => calls.note("onStart", job),
    onSuccess: (job: HookJob) => calls.note("onSuccess", job),
    onFail: (job: HookJob) => calls.note("onFail", job),
    onEnd: (job: HookJob) => calls.note("onEnd", job),
  };
  const throwing = {
    onStart: () => {
      throw new Error("no start");
    },
    onSuccess: () => Promise.reject(new Error("no success")),
    onEnd: () => {
      throw Object.assign(new Error("no end"), { code: "E_END" });
    },
  };
  const payload = z.object({ fails: z.boolean().default(false) });
  return defineService("shop", {
    mail: defineJob({ payload, retry: { maxTries: 2, backoff: [1] }, hooks }),
    unkept: defineJob({ payload, retention: { completed: 0 }, hooks }),
    broken: defineJob({ payload, hooks: throwing }),
    idle: defineJob({ payload, hooks }),
  });
}

describe.for(everyStore)("hooks on $name", (store) => {
  async function start() {
    const calls = new Calls();
    const service = await connect(shop(calls), { url: await store.freshUrl(), keeper });
    onTestFinished(() => service.stop());
    const handler = ({ payload }: { payload: { fails: boolean } }) => {
      if (payload.fails) throw new Error("no paper");
    };
    service.handle({ mail: handler, unkept: handler, broken: handler });
    await service.start();
    return { calls, service };
  }

  it("calls onStart before each try, onSuccess or onFail once, and onEnd at the end", async () => {
    const { calls, service } = await start();
    const good = await service.jobs.mail.create({}).orThrow();
    const bad = await service.jobs.mail.create({ fails: true }).orThrow();
    await calls.of(`onEnd ${good.id} completed`);
    await calls.of(`onEnd ${bad.id} dead`);
    await calls.of(`onSuccess ${good.id} completed`);
    await calls.of(`onFail ${bad.id} dead`);
    expect([...calls.about(good.id)].sort()).toEqual([
      `onEnd ${good.id} completed`,
      `onStart ${good.id} active`,
      `onSuccess ${good.id} completed`,
    ]);
    expect(calls.about(bad.id).filter((call) => call.startsWith("onStart"))).toHaveLength(2);
    expect(calls.about(bad.id).filter((call) => call.startsWith("onFail"))).toHaveLength(1);
  });

  it("calls the hooks of ends that no worker wrote", async () => {
    const { calls, service } = await start();
    const cancelled = await service.jobs.idle.create({}).orThrow();
    const expired = await service.jobs.idle.create({}, { deadline: Date.now() + 50 }).orThrow();
    await cancelled.cancel("not needed").orThrow();
    await calls.of(`onEnd ${cancelled.id} cancelled`);
    await calls.of(`onEnd ${expired.id} expired`);
    expect(calls.about(cancelled.id)).toEqual([`onEnd ${cancelled.id} cancelled`]);
    expect(calls.about(expired.id)).toEqual([`onEnd ${expired.id} expired`]);
  });

  it("records hooks that throw, and lets the outcome stand", async () => {
    const { service } = await start();
    const job = await service.jobs.broken.create({}).orThrow();
    await job.wait().orThrow();
    const recorded = await eventually(async () => {
      const events = await job.events().orThrow();
      const failed = events.filter((event) => event.name === "hookFailed");
      return failed.length === 3 ? failed : null;
    });
    const said = recorded.map(({ hook, error }) => [hook, error.message, error.reason, error.code]);
    expect(said.sort()).toEqual([
      ["onEnd", "no end", "hook", "E_END"],
      ["onStart", "no start", "hook", undefined],
      ["onSuccess", "no success", "hook", undefined],
    ]);
    expect(await job.get().orThrow()).toMatchObject({ state: "completed", tries: 1, version: 3 });
  });
});

/** Looks until there is something to see; the store itself says nothing when a note was stored. */
async function eventually<T>(look: () => Promise<T | null>): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== null) return found;
    await new Promise((resolve) => setImmediate(resolve));
  }
}
