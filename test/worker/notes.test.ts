// What a handler says while it runs: progress, log lines, events, heartbeats.
import { expect, it } from "vitest";
import { z } from "zod";
import { defineJob, defineService } from "#millrace/contract/define.js";
import type { JobEvent } from "#millrace/core/event.js";
import type { ActiveJob } from "#millrace/worker/active-job.js";
import { gate, Workshop } from "./workshop.js";

function shop() {
  return new Workshop(
    defineService("shop", {
      mail: defineJob({ payload: z.object({}) }),
      silent: defineJob({ payload: z.object({}), progress: false, logs: false }),
      keyed: defineJob({ payload: z.object({}), keyConcurrency: { key: ["tickets", "acme"] } }),
    }),
  );
}

it("records progress, of which the job keeps the last", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({
    mail: async (job) => {
      await job.progress({ step: "render", current: 1, total: 2 });
      await job.progress({ step: "send", message: "almost", current: 2, total: 2 });
    },
  });
  const recorded = (await workshop.events(id)).filter(({ name }) => name === "progress");
  expect(recorded).toHaveLength(2);
  expect(recorded[0]).toMatchObject({ token: 1, version: 2, actor: "worker:w1" });
  expect((await workshop.job(id)).progress).toEqual({
    step: "send",
    message: "almost",
    current: 2,
    total: 2,
  });
});

it("records the log lines of one turn as one event, in order, before the outcome", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({
    mail: async ({ log }) => {
      log("one");
      log("two", "warn");
      await log("three", "error");
      log("four");
    },
  });
  expect(await workshop.names(id)).toEqual(["created", "started", "logged", "logged", "completed"]);
  const logged = await workshop.events(id);
  expect(entries(logged[2])).toEqual(["info one", "warn two", "error three"]);
  expect(entries(logged[3])).toEqual(["info four"]);
});

it("settles only when everything that was said is stored", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const arrival = gate();
  const note = workshop.engine.note.bind(workshop.engine);
  workshop.engine.note = async (notes) => {
    await arrival.opened;
    return note(notes);
  };
  await workshop.start({
    mail: (job) => {
      job.log("last words");
    },
  });
  expect(await workshop.names(id)).toEqual(["created", "started"]);
  arrival.open();
  await workshop.turn();
  expect(await workshop.names(id)).toEqual(["created", "started", "logged", "completed"]);
});

it("splits a flood of lines and cuts long ones", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({
    mail: (job) => {
      for (let index = 0; index < 250; index++) job.log(`line ${index}`);
      job.log("x".repeat(20_000));
    },
  });
  const logged = (await workshop.events(id)).filter(({ name }) => name === "logged");
  expect(logged.map((event) => entries(event).length)).toEqual([100, 100, 51]);
  expect(entries(logged[2]).at(-1)).toHaveLength("info ".length + 8_192);
});

it("records events of the handler's own and heartbeats", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({
    mail: async (job) => {
      await job.emit("mail.sent", { to: "a@b", at: new Date(0).toISOString() });
      await job.emit("done");
      await job.heartbeat();
    },
  });
  const events = await workshop.events(id);
  expect(events[2]).toMatchObject({ name: "emitted", topic: "mail.sent", data: { to: "a@b" } });
  expect(events[3]).toMatchObject({ name: "emitted", topic: "done" });
  expect(events[4]).toMatchObject({ name: "heartbeat", token: 1 });
  expect(workshop.count("renew")).toBe(1);
});

it("records nothing where the type has progress and logs switched off", async () => {
  const workshop = shop();
  const id = await workshop.create("silent");
  await workshop.start({
    silent: async (job) => {
      await job.progress({ current: 1 });
      await job.log("hush");
    },
  });
  expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
});

it.each<[string, (job: ActiveJob<unknown>) => Promise<void>]>([
  ["progress.current must be a number", (job) => job.progress({ current: Number.NaN })],
  ["progress.step must be a string", (job) => job.progress({ step: 7 as unknown as string })],
  ['not "percent"', (job) => job.progress({ percent: 7 } as object)],
  ["progress takes an object", (job) => job.progress(50 as unknown as object)],
  ["log takes a string", (job) => job.log({} as string)],
  ['not "debug"', (job) => job.log("x", "debug" as "info")],
  ["emit takes a topic", (job) => job.emit("")],
  ["emit cannot store its data", (job) => job.emit("x", 1n as unknown as number)],
])("refuses what cannot be recorded: %s", async (message, say) => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({ mail: say });
  expect((await workshop.job(id)).error).toMatchObject({ name: "TypeError" });
  expect((await workshop.job(id)).error?.message).toContain(message);
});

it("does not fail a handler that leaves a bad note unawaited", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  await workshop.start({
    mail: (job) => {
      job.log(undefined as unknown as string);
      job.heartbeat();
    },
  });
  expect((await workshop.job(id)).state).toBe("completed");
});

it("stops a handler whose note is refused, because its job is another's", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  const work = gate();
  const reasons: string[] = [];
  const worker = workshop.worker({
    mail: async (job) => {
      job.signal.addEventListener("abort", () => reasons.push(job.signal.reason.reason));
      await work.opened;
      await job.log("still here");
    },
  });
  workshop.engine.wake = () => () => {};
  await worker.start();
  await workshop.turn();
  await workshop.complete(id);
  work.open();
  await workshop.turn();
  expect(reasons).toEqual(["taken_by_another_worker"]);
  expect((await workshop.job(id)).completedBy).toBeNull();
});

it("refuses notes after the handler has returned", async () => {
  const workshop = shop();
  const id = await workshop.create("mail");
  let late: ActiveJob<unknown> | undefined;
  await workshop.start({
    mail: (job) => {
      late = job;
    },
  });
  await expect(late?.log("too late")).rejects.toThrow("outcome already");
  expect(await workshop.names(id)).toEqual(["created", "started", "completed"]);
});

it("shows the handler its job and its hold on the key", async () => {
  const workshop = shop();
  const deadline = workshop.clock.now() + 60_000;
  const id = await workshop.create("keyed", {}, { tags: ["vip"], deadline });
  const seen: unknown[] = [];
  await workshop.start({
    keyed: (job) => {
      const { type, tries, maxTries, run, isRedelivery, tags, key, context } = job;
      seen.push({ id: job.id, type, tries, maxTries, run, isRedelivery, tags, key });
      seen.push(job.deadline, context.traceId.length, job.queue, job.createdAt);
    },
  });
  const key = { key: "tickets/acme", leaseUntil: workshop.clock.now() + 30_000, isFresh: true };
  expect(seen).toEqual([
    { id, type: "keyed", tries: 1, maxTries: 5, run: 1, isRedelivery: false, tags: ["vip"], key },
    deadline,
    32,
    "keyed",
    deadline - 60_000,
  ]);
});

function entries(event: JobEvent | undefined): readonly string[] {
  if (event?.name !== "logged") return [];
  return event.entries.map(({ level, message }) => `${level} ${message}`);
}
