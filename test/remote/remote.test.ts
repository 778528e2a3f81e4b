// Remote handlers against a real NATS server: what goes over the wire, and what every reply, and none, means for the job.
import { connect, defineJob, defineService, type JobSnapshot } from "millrace";
import { type RemoteHandlersOptions, remoteHandlers } from "millrace/nats";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { everyStore } from "../support/every-store.js";
import { freshUrl } from "../support/fresh-url.js";
import { freshPrefix, natsConnection, ownNats } from "../support/nats.js";
import { type Asked, respond, respondInPython, type Said } from "./responder.js";

const mail = defineService("mail", {
  resize: defineJob({
    payload: z.object({ width: z.number() }),
    result: z.object({ url: z.string() }),
    timeoutMs: 20_000,
    retry: { backoff: () => 0 },
  }),
  short: defineJob({ payload: z.null(), timeoutMs: 200, retry: { maxTries: 1 } }),
  "node.name": defineJob({ payload: z.null() }),
});

const keeper = { ttlMs: 2_000, renewMs: 200, tickMs: 20 };

async function open(url = "memory:", remoteOptions: Partial<RemoteHandlersOptions> = {}) {
  const { url: natsUrl, prefix } = await freshPrefix();
  const remote = remoteHandlers({
    url: natsUrl,
    prefix,
    ...remoteOptions,
  } as RemoteHandlersOptions);
  await remote.start();
  const service = await connect(mail, { url, keeper });
  onTestFinished(async () => {
    await service.stop();
    await remote.stop();
  });
  return { service, remote, natsUrl, prefix, subject: (type: string) => `${prefix}.H.T.${type}` };
}

/** A handler for one untyped job, of which it gives the last state. */
async function endOf(
  reply: (asked: Asked) => Said | null | Promise<Said | null>,
): Promise<JobSnapshot> {
  const { service, remote, natsUrl, subject } = await open();
  await respond(natsUrl, subject("task"), reply);
  service.route("task", remote.handler(), { timeoutMs: 5_000 });
  await service.start();
  const job = await service.untyped.create("task", { n: 1 }, { maxTries: 1 }).orThrow();
  await job.wait();
  return job.get().orThrow();
}

describe.for(everyStore)("remote handlers on $name", (store) => {
  it("lets a handler in Python complete, fail and give up jobs", async () => {
    const { service, remote, natsUrl, subject } = await open(await store.freshUrl());
    await respondInPython(natsUrl, subject("email:new"));
    service.route("email:", remote.handler(), { retry: { backoff: () => 0 } });
    await service.start();
    const good = await service.untyped.create("email:new", { to: "a@b.example" }).orThrow();
    expect(await good.wait().orThrow()).toEqual({
      messageId: `${good.id}@python`,
      to: "a@b.example",
      try: 1,
    });
    const busy = await service.untyped.create("email:new", { to: "a@busy.example" }).orThrow();
    expect(await busy.wait().orThrow()).toMatchObject({ try: 2 });
    const bad = await service.untyped.create("email:new", { to: "nowhere" }).orThrow();
    await bad.wait();
    expect(await bad.get().orThrow()).toMatchObject({
      state: "failed",
      tries: 1,
      error: { message: "'nowhere' is no address", reason: "terminated" },
    });
  });
});

it("sends the task with its headers in the shape of the protocol", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const asked: Asked[] = [];
  await respond(natsUrl, subject("resize"), (each) => {
    asked.push(each);
    return { body: '{"url":"/small.png"}' };
  });
  service.jobs.resize.handle(remote.handler());
  await service.start();
  const before = Date.now();
  const context = { requestId: "request-1" };
  const job = await service.jobs.resize.create({ width: 20 }, { context }).orThrow();
  expect(await job.wait().orThrow()).toEqual({ url: "/small.png" });
  const [{ message, task, payload } = fail()] = asked;
  expect(payload).toEqual({ width: 20 });
  const { createdAt } = await job.get().orThrow();
  expect(task).toMatchObject({
    id: job.id,
    type: "resize",
    queue: "resize",
    state: "active",
    tries: 1,
    max_tries: 5,
    created: new Date(createdAt).toISOString(),
  });
  expect(task.deadline).toBeUndefined();
  expect(Date.parse(task.tried)).toBeGreaterThanOrEqual(before);
  expect(message.headers?.get("AJ-Content-Type")).toBe("application/x-asyncjobs-task+json");
  expect(message.headers?.get("request-id")).toBe("request-1");
  // A try may take 20 s, of which 2 s are for the reply and up to one is lost to whole seconds.
  const deadline = message.headers?.get("AJ-Handler-Deadline") ?? "";
  expect(deadline).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  expect(Date.parse(deadline)).toBeGreaterThan(before + 16_500);
  expect(Date.parse(deadline)).toBeLessThanOrEqual(Date.now() + 18_000);
});

it("tells the remote handler the job's own deadline where that comes before the timeout", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const asked: Asked[] = [];
  await respond(natsUrl, subject("resize"), (each) => {
    asked.push(each);
    return { body: '{"url":"/"}' };
  });
  service.jobs.resize.handle(remote.handler());
  await service.start();
  const deadline = Date.now() + 10_000;
  await service.jobs.resize.run({ width: 1 }, { deadline }).orThrow();
  const [{ message, task } = fail()] = asked;
  expect(task.deadline).toBe(new Date(deadline).toISOString());
  const told = Date.parse(message.headers?.get("AJ-Handler-Deadline") ?? "");
  expect(told).toBeGreaterThan(deadline - 3_500);
  expect(told).toBeLessThanOrEqual(deadline - 2_000);
});

it.each<[string, Said, unknown]>([
  ["JSON", { body: '{"a":[1]}' }, { a: [1] }],
  ["text that is no JSON", { body: "done: 3" }, "done: 3"],
  ["bytes that are no text", { body: new Uint8Array([0xff, 0x00]) }, { base64: "/wA=" }],
  ["nothing", {}, undefined],
])("stores a reply of %s as the result", async (_name, said, result) => {
  const job = await endOf(() => said);
  expect(job.state).toBe("completed");
  expect(job.result).toEqual(result);
});

it("takes a reply with AJ-Error for a failure that may pass, with its text", async () => {
  const job = await endOf(() => ({ headers: { "AJ-Error": "disk is full" }, body: "ignored" }));
  expect(job.state).toBe("dead");
  expect(job.result).toBeUndefined();
  expect(job.error).toEqual({
    message: "disk is full",
    name: "RemoteHandlerFailed",
    code: "remote_error",
    reason: "error",
  });
});

it("ends a job whose reply has AJ-Terminate, whatever else it says", async () => {
  const headers = { "aj-terminate": "no such user", "AJ-Error": "later" };
  const job = await endOf(() => ({ headers }));
  expect(job).toMatchObject({ state: "failed", error: { message: "no such user" } });
});

it("refuses a result that the contract does not know", async () => {
  const { service, remote, natsUrl, subject } = await open();
  await respond(natsUrl, subject("resize"), () => ({ body: '{"url":7}' }));
  service.jobs.resize.handle(remote.handler());
  await service.start();
  const job = await service.jobs.resize.create({ width: 1 }).orThrow();
  await job.wait();
  expect(await job.get().orThrow()).toMatchObject({ state: "failed", error: { reason: "result" } });
});

it("tries again where nobody listens, and says so", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const listening = new Promise<void>((resolve) => {
    service.use(async (_job, next) => {
      try {
        return await next();
      } catch (error) {
        await respond(natsUrl, subject("resize"), () => ({ body: '{"url":"/"}' }));
        resolve();
        throw error;
      }
    });
  });
  service.jobs.resize.handle(remote.handler());
  await service.start();
  const job = await service.jobs.resize.create({ width: 1 }).orThrow();
  await listening;
  await job.wait().orThrow();
  const retried = (await job.events().orThrow()).find(({ name }) => name === "retry");
  expect(retried).toMatchObject({
    error: {
      code: "remote_no_responder",
      message: `No remote handler listens on ${subject("resize")}; start one, or check its subject and prefix.`,
    },
  });
});

it("gives up waiting before the try times out, and ignores a late reply", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const asked: Asked[] = [];
  const responder = await respond(natsUrl, subject("short"), (each) => {
    asked.push(each);
    return null;
  });
  service.jobs.short.handle(remote.handler());
  await service.start();
  const job = await service.jobs.short.create(null).orThrow();
  await job.wait();
  const ended = await job.get().orThrow();
  expect(ended).toMatchObject({ state: "dead", error: { code: "remote_no_reply" } });
  expect(ended.error?.message).toContain(`No reply came on ${subject("short")} within`);
  asked[0]?.message.respond('"late"');
  await responder.flush();
  expect(await job.get().orThrow()).toEqual(ended);
});

it("stops waiting when the job is cancelled; the remote handler hears nothing of it", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const asked = signalled();
  await respond(natsUrl, subject("resize"), () => {
    asked.signal();
    return null;
  });
  service.jobs.resize.handle(remote.handler());
  await service.start();
  const job = await service.jobs.resize.create({ width: 1 }).orThrow();
  await asked.signalled;
  await job.cancel().orThrow();
  await job.wait();
  expect((await job.get().orThrow()).state).toBe("cancelled");
});

it("waits for the reply while its worker stops", async () => {
  const url = await freshUrl();
  const { service, remote, natsUrl, subject } = await open(url);
  const asked = signalled();
  const stopping = signalled();
  await respond(natsUrl, subject("resize"), async () => {
    asked.signal();
    await stopping.signalled;
    return { body: '{"url":"/"}' };
  });
  service.jobs.resize.handle((job) => {
    job.signal.addEventListener("abort", () => stopping.signal());
    return remote.handler<{ url: string }>()(job);
  });
  await service.start();
  const { id } = await service.jobs.resize.create({ width: 1 }).orThrow();
  await asked.signalled;
  await service.stop();
  expect(await stateAt(url, id)).toMatchObject({ state: "completed", result: { url: "/" } });
});

it("gives the job back at no try when the worker stops and no reply comes", async () => {
  const url = await freshUrl();
  const { service, remote, natsUrl, subject } = await open(url, { shutdownWaitMs: 1 });
  const asked = signalled();
  await respond(natsUrl, subject("resize"), () => {
    asked.signal();
    return null;
  });
  service.jobs.resize.handle(remote.handler());
  await service.start();
  const { id } = await service.jobs.resize.create({ width: 1 }).orThrow();
  await asked.signalled;
  await service.stop();
  expect(await stateAt(url, id)).toMatchObject({ state: "pending", tries: 0 });
});

it("sends every job to the subject of the given type, and all to the catch-all", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const reply = ({ message, task }: Asked) => ({
    body: JSON.stringify([message.subject, task.type]),
  });
  for (const name of ["email:", "email:new", "catchall", "node=2Ename"])
    await respond(natsUrl, subject(name), reply);
  service.route("email:", remote.handler("email:"));
  service.route("email:new", remote.handler());
  service.route("", remote.handler(""));
  service.jobs["node.name"].handle(remote.handler());
  await service.start();
  expect(await service.untyped.run("email:new", null).orThrow()).toEqual([
    subject("email:new"),
    "email:new",
  ]);
  expect(await service.untyped.run("email:old", null).orThrow()).toEqual([
    subject("email:"),
    "email:old",
  ]);
  expect(await service.untyped.run("sms", null).orThrow()).toEqual([subject("catchall"), "sms"]);
  expect(await service.jobs["node.name"].run(null).orThrow()).toEqual([
    subject("node=2Ename"),
    "node.name",
  ]);
});

it("shares the jobs among the responders of a queue group", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const byResponder = new Map<string, string[]>([
    ["a", []],
    ["b", []],
  ]);
  for (const [name, ids] of byResponder)
    await respond(natsUrl, subject("task"), ({ task }) => {
      ids.push(task.id);
      return { body: name };
    });
  service.route("task", remote.handler());
  await service.start();
  const ids = Array.from({ length: 60 }, (_, index) => `task-${index}`);
  await Promise.all(ids.map((id) => service.untyped.run("task", null, { id }).orThrow()));
  const [first = [], second = []] = [...byResponder.values()];
  expect(first.length).toBeGreaterThan(0);
  expect(second.length).toBeGreaterThan(0);
  expect([...first, ...second].sort()).toEqual([...ids].sort());
});

it("sends the results of what the job has waited for, where it is asked to", async () => {
  const { service, remote, natsUrl, subject } = await open("memory:", { loadDependencies: true });
  const tasks: Asked["task"][] = [];
  await respond(natsUrl, subject("task"), ({ task }) => {
    tasks.push(task);
    return { body: '{"n":1}' };
  });
  service.route("task", remote.handler());
  await service.start();
  const first = await service.untyped.create("task", null).orThrow();
  const second = await service.untyped.create("task", null, { blockers: [first] }).orThrow();
  await second.wait().orThrow();
  expect(tasks[0]?.dependencies).toBeUndefined();
  expect(tasks[1]).toMatchObject({
    dependencies: [first.id],
    dependency_results: { [first.id]: { payload: { n: 1 } } },
  });
});

it("uses a connection of the caller's, and leaves it open", async () => {
  const { url, prefix } = await freshPrefix();
  const connection = await natsConnection(url);
  const remote = remoteHandlers({ connection, prefix: `${prefix}.CHORIA_AJ` });
  await respond(url, `${prefix}.CHORIA_AJ.H.T.task`, () => ({ body: "1" }));
  const service = await connect(mail, { url: "memory:", keeper });
  onTestFinished(() => service.stop());
  service.route("task", remote.handler());
  await remote.start();
  await service.start();
  expect(await service.untyped.run("task", null).orThrow()).toBe(1);
  await remote.stop();
  await remote.stop();
  expect(connection.isClosed()).toBe(false);
  const job = await service.untyped.create("task", null, { maxTries: 1 }).orThrow();
  await job.wait();
  expect((await job.get().orThrow()).error).toMatchObject({ code: "remote_unreachable" });
});

it("fails what waits when it is stopped itself", async () => {
  const { service, remote, natsUrl, subject } = await open();
  const asked = signalled();
  await respond(natsUrl, subject("short"), () => {
    asked.signal();
    return null;
  });
  service.route("task", remote.handler("short"));
  await service.start();
  const job = await service.untyped.create("task", null, { maxTries: 1 }).orThrow();
  await asked.signalled;
  await remote.stop();
  await job.wait();
  expect((await job.get().orThrow()).error).toMatchObject({ code: "remote_unreachable" });
});

it("can be started again after a failure, and not after a stop", async () => {
  const server = await ownNats();
  const remote = remoteHandlers({ url: server.url });
  await server.kill("SIGKILL");
  await expect(remote.start()).rejects.toMatchObject({ _tag: "StoreUnavailable" });
  await server.restart();
  await remote.start();
  await remote.stop();
  expect(() => remote.start()).toThrow("were stopped");
});

it("refuses what cannot stand in a subject, and needs one way to the server", async () => {
  const { url } = await freshPrefix();
  const remote = remoteHandlers({ url });
  expect(() => remoteHandlers({ url, prefix: "a.*" })).toThrow("without wildcards");
  expect(() => remoteHandlers({} as RemoteHandlersOptions)).toThrow("either a connection or a url");
  expect(() => remote.handler("email new")).toThrow("cannot stand in a subject");
});

function signalled(): { readonly signalled: Promise<void>; readonly signal: () => void } {
  let signal = () => {};
  const whenSignalled = new Promise<void>((resolve) => {
    signal = resolve;
  });
  return { signalled: whenSignalled, signal };
}

/** The job as another process sees it. */
async function stateAt(url: string, id: string): Promise<JobSnapshot> {
  const service = await connect(mail, { url });
  onTestFinished(() => service.stop());
  return service.ref(id).get().orThrow();
}

function fail(): never {
  throw new Error("Nothing was asked.");
}
