// Completing chains over HTTP: only the job that was decided about, with one outcome, and with a remedy where there is no chain.
import { defineJob, defineService, openEngine } from "millrace";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import {
  type Answer,
  type Api,
  apiStores,
  around,
  freshPlace,
  freshService,
  openServer,
  sharedServers,
  sqlite,
} from "./api.js";

const payload = z.object({});
const result = z.object({}).loose();

const bake = { continueWith: { type: "bake", payload: {} } };
const reject = { result: { rejected: true } };

/** A chain that waits for somebody's decision, and continues with a job that could be given any result, too. */
async function openDecision(api: Api, service = freshService()) {
  const decide = defineJob({ payload, result, continuations: ["bake"] });
  await api.accept(defineService(service, { decide, bake: defineJob({ payload, result }) }));
  const { body } = await api.post("/v1/chains", { service, type: "decide", payload: {} });
  const id: string = body.id;
  const complete = (outcome: object, at = api) => at.post(`/v1/chains/${id}/complete`, outcome);
  return { service, id, path: `/v1/chains/${id}`, complete };
}

function told({ status, body }: Answer): readonly unknown[] {
  return [status, body.error?.code, body.error?.details, body.error?.message];
}

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("of many that decide at the same time, one is taken", async () => {
    const { api, other } = servers;
    const { id, path, complete } = await openDecision(api);
    const answers = await Promise.all(
      [bake, reject, bake, reject].map((outcome, place) =>
        complete({ ...outcome, jobId: id }, place < 2 ? api : other),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
    const taken = answers.find(({ status }) => status === 200);
    const { count, state } = taken?.body ?? {};
    expect((await api.get(path)).body).toMatchObject({ count, state });
  });

  it("a completion may name the job that it has decided about", async () => {
    const { api, other } = servers;
    const { id, path, complete } = await openDecision(api);
    const first = await complete({ ...bake, jobId: id }, other);
    const current: string = first.body.current.id;
    expect([first.status, first.body.current.type]).toEqual([200, "bake"]);
    for (const jobId of [id, "nobody"])
      expect(told(await complete({ ...reject, jobId }))).toEqual([
        ...[409, "conflict"],
        {
          ...{ reason: "job_not_current", field: "jobId", state: "pending" },
          ...{ currentJobId: current, currentType: "bake" },
        },
        `Chain ${id} has come to job ${current} (bake), and job ${jobId} is not its current one; look at the chain, and complete it with jobId ${current} if the outcome is meant for that.`,
      ]);
    expect((await api.get(path)).body).toMatchObject({ state: "pending", count: 2 });
    const wrong = await complete({ ...reject, jobId: 7 });
    expect([wrong.status, wrong.body.error.details.field]).toEqual([400, "jobId"]);
    const alone = await api.post(`/v1/jobs/${current}/complete`, { ...reject, jobId: current });
    expect([alone.status, alone.body.error.code]).toEqual([400, "invalid_argument"]);
    expect((await complete({ ...reject, jobId: current })).body.state).toBe("completed");
    const late = await complete({ ...bake, jobId: id });
    expect([late.status, late.body.error.details.reason]).toEqual([409, "already_completed"]);
  });
});

it("a completion that was overtaken does not go to the job that continues the chain", async () => {
  const store = await openEngine(await freshPlace(sqlite));
  onTestFinished(() => store.close());
  let overtake = async () => {};
  const engine = around(store, "append", async (go) => {
    const first = overtake;
    overtake = async () => {};
    await first();
    return go();
  });
  const [{ api }, other] = [await openServer({ engine }), await openServer({ engine: store })];
  const { id, path, complete } = await openDecision(api);
  overtake = async () => void (await complete(bake, other.api));
  const rejected = await complete(reject);
  const chain = await api.get(path);
  expect(chain.body).toMatchObject({ count: 2, current: { type: "bake", state: "pending" } });
  expect([rejected.status, rejected.body.error.details]).toEqual([
    409,
    {
      ...{ reason: "job_not_current", field: "jobId", state: "pending" },
      ...{ currentJobId: chain.body.current.id, currentType: "bake" },
    },
  ]);
  expect(rejected.body.error.message).toContain(`job ${id} is not its current one`);
});

describe("on SQLite alone", () => {
  const servers = sharedServers(sqlite);

  it("a completion with a result and a continuation is refused, of a chain and of a job", async () => {
    const { api } = servers;
    const { id, path, complete } = await openDecision(api);
    for (const answer of [
      await complete({ ...bake, ...reject }),
      await complete({ ...bake, result: null }),
      await api.post(`/v1/jobs/${id}/complete`, { ...bake, ...reject }),
    ])
      expect(told(answer)).toEqual([
        ...[400, "invalid_argument", { reason: "outcome_both_set", field: "result" }],
        "result and continueWith exclude each other; give one of them.",
      ]);
    expect((await api.get(path)).body).toMatchObject({ state: "pending", count: 1 });
  });

  it("says what to do with the id of a job that is no chain, or a part of one", async () => {
    const { api } = servers;
    const service = freshService();
    const lone = await api.create(service, "mail");
    const { id, complete } = await openDecision(api, service);
    const { body } = await complete(bake);
    const part: string = body.current.id;
    const asks = [
      { verb: "read", ask: (job: string) => api.get(`/v1/chains/${job}`) },
      { verb: "wait for", ask: (job: string) => api.get(`/v1/chains/${job}/wait?timeoutMs=0`) },
      { verb: "complete", ask: (job: string) => api.post(`/v1/chains/${job}/complete`, reject) },
      { verb: "delete", ask: (job: string) => api.delete(`/v1/chains/${job}`) },
    ];
    const missing = [404, "not_found", { reason: "job_not_found" }];
    for (const { verb, ask } of asks) {
      expect(told(await ask(lone))).toEqual([
        ...missing,
        `Job ${lone} is no chain; ${verb} it as a job.`,
      ]);
      expect(told(await ask(part))).toEqual([
        ...missing,
        `Job ${part} is a part of chain ${id}; ${verb} that.`,
      ]);
      expect(told(await ask("nobody"))).toEqual([
        ...missing,
        "There is no chain nobody; it may have been deleted.",
      ]);
    }
  });
});
