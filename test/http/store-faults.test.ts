// Requests about many jobs while the store fails at some of them: what was done is told, and the fault where nothing was.
import { expect, it } from "vitest";
import { ownNats } from "../support/nats.js";
import { openServer } from "./api.js";

/** An API on a server that refuses whatever is done to jobs whose id is `stuck`, once they have died or wait. */
async function scene() {
  const denied = ["retried", "dismissed", "deleted"].flatMap((name) => {
    const subject = `millrace.jobs.*.*.stuck.${name}`;
    return [`"${subject}"`, `"${subject}.>"`];
  });
  const permissions = `permissions: { publish: { deny: [${denied.join(", ")}] } }`;
  const users = `{ user: op, password: op, ${permissions} }`;
  const server = await ownNats({ config: `authorization { users: [ ${users} ] }` });
  const url = `${server.url.replace("//", "//op:op@")}?projection=memory:`;
  const warnings: string[] = [];
  const logger = {
    info: () => {},
    error: () => {},
    warn: (_: object, message: string) => void warnings.push(message),
  };
  const { api } = await openServer({ url, logger });
  return { api, warnings };
}

it("many retries give the fault to the job that it is of", async () => {
  const { api } = await scene();
  const free = await api.deadJob("shop", "mail");
  await api.deadJob("shop", "mail", { id: "stuck" });
  const { body } = await api.post("/v1/jobs/retry", { ids: ["stuck", free] });
  expect(body.entries).toMatchObject([
    { id: "stuck", outcome: "refused", error: { code: "unavailable" } },
    { id: free, outcome: "retried", state: "pending" },
  ]);
  const alone = await api.post("/v1/jobs/retry", { ids: ["stuck"] });
  expect([alone.status, alone.body.error.message]).toEqual([
    503,
    expect.stringContaining("does not permit this"),
  ]);
});

it("dead letters are dismissed as far as the store takes it", async () => {
  const { api, warnings } = await scene();
  await api.deadJob("shop", "mail");
  await api.deadJob("shop", "mail", { id: "stuck" });
  const { body } = await api.post("/v1/dead-letters/dismiss");
  expect(body).toMatchObject({ matched: 2, done: 1, failed: 1, remaining: 1 });
  expect(warnings).toContain("The store failed at some jobs of a request.");
  expect((await api.post("/v1/dead-letters/dismiss")).status).toBe(503);
});

it("a queue is purged as far as the store takes it", async () => {
  const { api } = await scene();
  await api.create("shop", "mail");
  await api.create("shop", "mail", { id: "stuck" });
  const { body } = await api.post("/v1/queues/shop/mail/purge");
  expect(body).toMatchObject({ matched: 2, removed: 1, remaining: 1 });
  expect((await api.post("/v1/queues/shop/mail/purge")).status).toBe(503);
});
