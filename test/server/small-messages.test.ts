// The admin calls on a NATS server that takes small messages only: a caller who sends what is long ends nobody else's calls.
import { expect, it, onTestFinished } from "vitest";
import { openEngine } from "#millrace/engine/open.js";
import { JobsClient } from "#millrace/server/jobs-client.js";
import { JobsServer } from "#millrace/server/jobs-server.js";
import { natsConnection, ownNats } from "../support/nats.js";

/** The calls served over a server of the test's own, and a connection to ask on. */
async function smallScene(maxPayload: number, timeoutMs = 10_000) {
  const { url } = await ownNats({ config: `max_payload: ${maxPayload}` });
  const engine = await openEngine("memory:");
  onTestFinished(() => engine.close());
  const server = new JobsServer({ connection: await natsConnection(url), engine });
  onTestFinished(() => server.stop());
  await server.start();
  const caller = await natsConnection(url);
  return { caller, jobs: new JobsClient(caller, { timeoutMs }) };
}

it("refusals fit into a message, whatever they repeat", async () => {
  const { caller, jobs } = await smallScene(8_192);
  const long = "x".repeat(5_000);
  const refused = async (call: string, input: object) => {
    const answer = await caller.request(`millrace.rpc.Jobs.${call}`, JSON.stringify(input));
    return answer.json<Record<string, unknown>>();
  };
  expect(await refused("Get", { id: long })).toMatchObject({
    type: "ValidationError",
    field: "id",
    message: expect.stringMatching(/^id: "x+…$/),
  });
  expect(await refused("GetKey", { service: "shop", type: "mail", key: long })).toMatchObject({
    type: "NotFoundError",
    id: `${"x".repeat(499)}…`,
  });
  expect(await refused("Health", { [long]: true })).toMatchObject({ type: "ValidationError" });
  expect((await jobs.health().orThrow()).status).toBe("healthy");
});

it("an answer that does not fit at all ends nothing but itself", async () => {
  const { caller, jobs } = await smallScene(512, 500);
  const asked = caller.request("$SRV.INFO.millrace-jobs", "", { timeout: 500 });
  await expect(asked).rejects.toThrow("timeout");
  const refused = await jobs.getKey({ service: "shop", type: "mail", key: "k".repeat(400) });
  expect(refused.isErr() && refused.error._tag).toBe("UnavailableError");
  const ping = await caller.request("$SRV.PING.millrace-jobs");
  expect(ping.json()).toMatchObject({ name: "millrace-jobs" });
});
