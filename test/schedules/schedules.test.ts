// Schedules as users have them: declared in a contract, or made, looked at, paused, run and removed by a caller.
import {
  connect,
  defineJob,
  defineService,
  openEngine,
  type ServiceOptions,
  versions,
} from "millrace";
import { testService } from "millrace/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { freshUrl } from "../support/fresh-url.js";

const jobs = {
  report: versions(
    defineJob({ payload: z.object({ kind: z.string() }) }),
    defineJob({
      version: 2,
      payload: z.object({ kind: z.string(), deep: z.boolean().default(false) }),
    }),
  ),
};

const nightly = { type: "report", payload: { kind: "sales" }, cron: "30 2 * * *" } as const;

function shop(schedules?: NonNullable<ServiceOptions<typeof jobs>["schedules"]>) {
  return defineService("shop", jobs, schedules === undefined ? {} : { schedules });
}

async function opened(contract = shop()) {
  const test = await testService(contract);
  onTestFinished(() => test.stop());
  return test;
}

describe("a schedule of a caller's", () => {
  it("is listed, read, and removed", async () => {
    const { service } = await opened();
    const { schedules } = service;
    const made = await schedules
      .create("nightly", { ...nightly, timeZone: "Europe/Berlin", tags: ["money"] })
      .orThrow();
    expect(made).toEqual({
      service: "shop",
      name: "nightly",
      origin: "caller",
      cron: "30 2 * * *",
      timeZone: "Europe/Berlin",
      type: "report",
      version: 2,
      payload: { kind: "sales", deep: false },
      enabled: true,
      catchUp: "none",
      catchUpMax: 100,
      overlap: "allow",
      tags: ["money"],
      createdAt: Date.UTC(2030, 0, 1),
      nextAt: Date.UTC(2030, 0, 1, 1, 30),
    });
    await schedules
      .create("beat", { ...nightly, cron: undefined, everyMs: 1_000 } as never)
      .orThrow();
    expect((await schedules.list().orThrow()).map(({ name }) => name)).toEqual(["beat", "nightly"]);
    expect(await schedules.get("nightly").orThrow()).toEqual(made);
    await schedules.delete("nightly").orThrow();
    expect((await schedules.get("nightly")).isErr()).toBe(true);
  });

  it("tells its next instants, also while it is paused", async () => {
    const { service } = await opened();
    const { schedules } = service;
    await schedules.create("nightly", nightly).orThrow();
    await schedules.pause("nightly").orThrow();
    const day = (number: number) => Date.UTC(2030, 0, number, 2, 30);
    expect(await schedules.next("nightly", { count: 3 }).orThrow()).toEqual([1, 2, 3].map(day));
    expect(await schedules.next("nightly", { count: 101 })).toMatchObject({
      error: { _tag: "InvalidOption", field: "count" },
    });
    expect(await schedules.next("nightly", null as never)).toMatchObject({
      error: { _tag: "InvalidOption", field: "options" },
    });
  });

  it("is run by hand beside its instants", async () => {
    const test = await opened();
    const { schedules } = test.service;
    await schedules.create("nightly", { ...nightly, version: 1 }).orThrow();
    const job = await schedules.run("nightly").orThrow();
    expect(await job.get().orThrow()).toMatchObject({ typeVersion: 1, tags: ["schedule:nightly"] });
    await test.clock.advance(3 * 60 * 60 * 1_000);
    expect(await test.counts()).toEqual({ pending: 2 });
  });

  it("fires once at a single time", async () => {
    const test = await opened();
    const at = new Date(test.clock.now() + 1_000);
    const { cron: _cron, ...once } = nightly;
    await test.service.schedules.create("once", { ...once, at }).orThrow();
    await test.clock.advance(10_000);
    expect(await test.counts()).toEqual({ pending: 1 });
    expect((await test.service.schedules.get("once").orThrow()).nextAt).toBeNull();
  });

  it("may be of a type that no contract names, which routes run", async () => {
    const test = await opened();
    const ran: string[] = [];
    test.service.route("mail:", ({ type }) => void ran.push(type));
    const spec = { type: "mail:new", payload: [1], everyMs: 60_000 };
    await test.service.schedules.create("mails", spec).orThrow();
    await test.service.start();
    await test.clock.advance(60_000);
    await test.clock.advance(10_000);
    await test.drain();
    expect(ran).toEqual(["mail:new"]);
    const { entries } = await test.service.reads.jobs({ type: "mail:new" }).orThrow();
    expect(entries).toMatchObject([{ queue: "mail-new", tags: ["schedule:mails"] }]);
  });

  it.each([
    ["cron", { cron: "61 * * * *" }],
    ["cron", { cron: "* * *" }],
    ["cron", { cron: "0 0 30 2 *" }],
    ["cron", { cron: undefined }],
    ["timeZone", { timeZone: "Mars/Olympus" }],
    ["timeZone", { cron: undefined, everyMs: 1_000, timeZone: "UTC" }],
    ["everyMs", { everyMs: 1_000 }],
    ["everyMs", { cron: undefined, everyMs: 99 }],
    ["at", { cron: undefined, at: 0 }],
    ["at", { cron: undefined, at: new Date(Number.NaN) }],
    ["type", { type: "a b" }],
    ["version", { version: 3 }],
    ["priority", { priority: 0.5 }],
    ["deadlineMs", { deadlineMs: 0 }],
    ["catchUp", { catchUp: "some" }],
    ["catchUpMax", { catchUpMax: 5 }],
    ["overlap", { overlap: "never" }],
    ["tags", { tags: [""] }],
    ["enabled", { enabled: 1 }],
    ["payload", { payload: undefined }],
    ["crom", { crom: "* * * * *" }],
  ])("is refused with the field that is wrong: %s", async (field, wrong) => {
    const { service } = await opened();
    const made = await service.schedules.create("nightly", { ...nightly, ...wrong } as never);
    expect(made).toMatchObject({ error: { _tag: "InvalidOption", field } });
    // A contract lives on when the time of one of its schedules has passed.
    if ("at" in wrong && wrong.at === 0) return;
    expect(() => shop({ nightly: { ...nightly, ...wrong } as never })).toThrow(
      expect.objectContaining({ field: `schedules.nightly.${field}` }) as Error,
    );
  });

  it("is refused under a bad name, a name that is taken, and with a payload that does not fit", async () => {
    const { schedules } = (await opened()).service;
    expect(await schedules.create("a b", nightly)).toMatchObject({ error: { field: "name" } });
    await schedules.create("nightly", nightly).orThrow();
    expect(await schedules.create("nightly", nightly)).toMatchObject({
      error: { _tag: "ScheduleExists", schedule: "nightly" },
    });
    expect(await schedules.create("other", { ...nightly, payload: { kind: 1 } })).toMatchObject({
      error: { _tag: "InvalidPayload" },
    });
    for (const call of ["get", "pause", "resume", "run", "next", "delete"] as const)
      expect(await schedules[call]("other")).toMatchObject({ error: { _tag: "ScheduleNotFound" } });
  });
});

describe("a schedule of a type whose definition names blockers", () => {
  const waiting = {
    ...jobs,
    thank: defineJob({ payload: z.object({}), blockers: { report: "report" } }),
  };
  const daily = { type: "thank", payload: {}, cron: "0 8 * * *" } as const;
  const message =
    "A job of thank waits for report, which a schedule cannot name; let a job of another type create it.";

  it("is refused, because it could never make a job", async () => {
    const test = await testService(defineService("shop", waiting));
    onTestFinished(() => test.stop());
    expect(await test.service.schedules.create("daily", daily)).toMatchObject({
      error: { _tag: "InvalidOption", field: "type", message },
    });
    await test.service.schedules.create("nightly", nightly).orThrow();
  });

  it("does not compile where a contract declares it, and keeps the service from starting", async () => {
    // @ts-expect-error: a schedule cannot say what a thank waits for.
    const contract = defineService("shop", waiting, { schedules: { daily, nightly } });
    const service = await connect(contract, { url: "memory:" });
    onTestFinished(() => service.stop());
    await expect(service.start()).rejects.toMatchObject({
      _tag: "InvalidDefinition",
      field: "schedules.daily",
      message: `schedules.daily: ${message}`,
    });
  });
});

describe("a declared schedule", () => {
  async function startedOn(url: string, contract: ReturnType<typeof shop>) {
    const service = await connect(contract, { url, keeper: { tickMs: 60_000 } });
    onTestFinished(() => service.stop());
    await service.start();
    return service;
  }

  it("is made when the service starts, changed with the contract, and removed with it", async () => {
    const url = await freshUrl();
    const first = await startedOn(
      url,
      shop({ nightly, weekly: { ...nightly, cron: "0 3 * * 1" } }),
    );
    await first.schedules.create("own", nightly).orThrow();
    await first.schedules.pause("nightly").orThrow();
    const made = await first.schedules.list().orThrow();
    expect(made.map(({ name, origin }) => [name, origin])).toEqual([
      ["nightly", "contract"],
      ["own", "caller"],
      ["weekly", "contract"],
    ]);
    const second = await startedOn(url, shop({ nightly: { ...nightly, cron: "0 4 * * *" } }));
    const changed = await second.schedules.list().orThrow();
    expect(changed.map(({ name, cron, enabled }) => [name, cron, enabled])).toEqual([
      ["nightly", "0 4 * * *", false],
      ["own", "30 2 * * *", true],
    ]);
    expect(await second.schedules.delete("nightly")).toMatchObject({
      error: { _tag: "ScheduleDeclared" },
    });
  });

  it("is left alone by a process that still runs the earlier contract", async () => {
    const url = await freshUrl();
    const earlier = shop({ nightly });
    await startedOn(url, earlier);
    const later = await startedOn(url, shop({ weekly: { ...nightly, cron: "0 3 * * 1" } }));
    await startedOn(url, earlier);
    expect((await later.schedules.list().orThrow()).map(({ name }) => name)).toEqual(["weekly"]);
  });

  it("gives way to one that a caller has made under its name", async () => {
    const url = await freshUrl();
    const first = await startedOn(url, shop());
    await first.schedules.create("nightly", { ...nightly, cron: "0 5 * * *" }).orThrow();
    const second = await startedOn(url, shop({ nightly }));
    expect(await second.schedules.get("nightly").orThrow()).toMatchObject({
      origin: "caller",
      cron: "0 5 * * *",
    });
  });

  it("counts among all schedules of the service", async () => {
    const engine = await openEngine("memory:");
    const start = async (count: number) => {
      const names = Array.from({ length: count }, (_, place) => [`declared-${place}`, nightly]);
      const service = await connect(shop(Object.fromEntries(names)), { engine, keeper: false });
      onTestFinished(() => service.stop());
      await service.start();
      return service;
    };
    const first = await start(1);
    await first.schedules.create("made", nightly).orThrow();
    await expect(start(1_000)).rejects.toMatchObject({
      _tag: "InvalidDefinition",
      field: "schedules",
      message: expect.stringContaining("1001 together; a service has at most 1000") as string,
    });
    const names = async () => (await first.schedules.list().orThrow()).map(({ name }) => name);
    expect(await names()).toEqual(["declared-0", "made"]);
    await start(999);
    expect(await names()).toHaveLength(1_000);
  });

  it("must fit its job type", async () => {
    const url = await freshUrl();
    const wrong = shop({ nightly: { ...nightly, payload: { kind: 1 } } as never });
    await expect(startedOn(url, wrong)).rejects.toMatchObject({ field: "schedules.nightly" });
    expect(() => shop({ nightly: { ...nightly, type: "repot" } as never })).toThrow("use report");
    // @ts-expect-error The payload lacks its kind.
    shop({ nightly: { ...nightly, payload: {} } });
  });
});
