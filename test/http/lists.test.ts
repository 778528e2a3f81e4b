// Lists of jobs over HTTP, on every store: filters, pages, counts, and lines that go on while jobs change.
import { describe, expect, it } from "vitest";
import { stateAliases } from "#millrace/server/http/state-aliases.js";
import {
  type Api,
  type ApiStore,
  apiStores,
  freshPlace,
  freshService,
  openServer,
  sharedServers,
} from "./api.js";
import { linesOf } from "./reading.js";

/** The ids that a list holds, in its order. */
async function idsOf(api: Api, path: string): Promise<readonly string[]> {
  const { status, body } = await api.get(path);
  expect(status, JSON.stringify(body)).toBe(200);
  return body.entries.map(({ id }: { id: string }) => id);
}

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("narrows by every filter", async () => {
    const { api } = servers;
    const service = freshService();
    const contract = { service, type: "ship", payload: {} };
    const mail = await api.create(service, "mail", { tags: ["blue"], id: `first-${service}` });
    const slow = await api.create(service, "mail", { queue: "slow" });
    const { body: chain } = await api.post("/v1/chains", contract);
    const { body: first } = await api.get(`/v1/jobs/${mail}`);
    const { body: last } = await api.get(`/v1/jobs/${chain.id}`);
    const later = new Date(Date.parse(last.createdAt) + 1).toISOString();
    const list = (query: string) => idsOf(api, `/v1/jobs?service=${service}&${query}`);
    expect(await list("")).toEqual([chain.id, slow, mail]);
    expect(await list("type=ship")).toEqual([chain.id]);
    expect(await list("queue=slow")).toEqual([slow]);
    expect(await list("tag=blue")).toEqual([mail]);
    expect(await list(`text=first-${service}`)).toEqual([mail]);
    expect(await list(`chainId=${chain.id}`)).toEqual([chain.id]);
    expect(await list("parentId=nobody")).toEqual([]);
    expect(await list(`until=${first.createdAt}`)).toEqual([]);
    expect(await list(`since=${first.createdAt}&until=${later}`)).toHaveLength(3);
    expect(await list(`since=${later}`)).toEqual([]);
    expect(await list("state=active")).toEqual([]);
    expect(await idsOf(api, `/v1/jobs?service=${freshService()}`)).toEqual([]);
  });

  it("takes several states, and other systems' words for them", async () => {
    const { api } = servers;
    const service = freshService();
    const done = await api.create(service, "mail");
    await api.post(`/v1/jobs/${done}/complete`, {});
    const waiting = await api.create(service, "mail");
    const list = (query: string) => idsOf(api, `/v1/jobs?service=${service}&${query}`);
    expect(await list("state=completed&state=pending")).toEqual([waiting, done]);
    expect(await list("state=completed,active")).toEqual([done]);
    expect(await list("state=succeeded")).toEqual([done]);
    expect(await list("state=queued,running")).toEqual([waiting]);
    for (const [word, state] of Object.entries(stateAliases))
      expect(await list(`state=${word}`)).toEqual(await list(`state=${state}`));
    const { status, body } = await api.get("/v1/jobs?state=finished");
    expect([status, body.error.details.field]).toEqual([400, "state.0"]);
  });

  it("pages by offset and by cursor, each with a link to the next page", async () => {
    const { api } = servers;
    const service = freshService();
    const jobs = Array.from({ length: 25 }, () => ({ service, type: "mail", payload: {} }));
    await api.post("/v1/jobs/batch", { jobs });
    const all = await idsOf(api, `/v1/jobs?service=${service}&limit=100`);
    expect(new Set(all).size).toBe(25);
    const cursorOf = (await api.get(`/v1/jobs?service=${service}&limit=1`)).body.nextCursor;
    const walks = { offset: "limit=10&offset=0", cursor: `limit=10&cursor=${cursorOf}` };
    for (const [by, query] of Object.entries(walks)) {
      const walked: string[] = [];
      let next: string | undefined = `/v1/jobs?service=${service}&${query}`;
      for (let pages = 0; next !== undefined && pages < 10; pages++) {
        const { body, headers } = await api.get(next);
        expect([body.count, body.limit]).toEqual([25, 10]);
        walked.push(...body.entries.map(({ id }: { id: string }) => id));
        next = /^<([^>]+)>; rel="next"$/.exec(headers.get("link") ?? "")?.[1];
        if (next !== undefined) expect(next).toContain(`${by}=`);
      }
      expect(walked).toEqual(by === "offset" ? all : all.slice(1));
    }
  });

  it("has ten to a page, at most a hundred, and refuses what is not a page", async () => {
    const { api } = servers;
    expect((await api.get("/v1/jobs")).body.limit).toBe(10);
    const wrong = ["limit=0", "limit=101", "limit=ten", "offset=-1", "cursor=x", "limit=1&limit=2"];
    const times = ["since=yesterday", "since=2030-02-30T00:00:00Z", "until=2030-04-31T00:00:00Z"];
    for (const query of [...wrong, ...times, "offset=1&cursor=1", "pages=2"])
      expect((await api.get(`/v1/jobs?${query}`)).status, query).toBe(400);
  });

  it("counts by type, queue and state", async () => {
    const { api } = servers;
    const service = freshService();
    await api.create(service, "mail");
    const done = await api.create(service, "mail", { tags: ["blue"] });
    await api.post(`/v1/jobs/${done}/complete`, {});
    const { body } = await api.get(`/v1/jobs/counts?service=${service}`);
    const row = { service, type: "mail", queue: "mail", count: 1 };
    expect(body.total).toBe(2);
    expect(body.entries).toEqual(
      expect.arrayContaining([
        { ...row, state: "pending" },
        { ...row, state: "completed" },
      ]),
    );
    const tagged = await api.get(`/v1/jobs/counts?service=${service}&tag=blue`);
    expect(tagged.body).toEqual({ entries: [{ ...row, state: "completed" }], total: 1 });
  });

  it("streams jobs as lines, and then each change", async () => {
    const { api, other } = servers;
    const service = freshService();
    const id = await api.create(service, "mail");
    await using lines = await linesOf(api, `/v1/jobs?service=${service}&stream=ndjson`);
    expect(JSON.parse(await lines.next())).toMatchObject({ id, state: "pending" });
    const second = await other.create(service, "mail");
    expect(JSON.parse(await lines.next())).toMatchObject({ id: second, state: "pending" });
    await other.post(`/v1/jobs/${id}/cancel`);
    expect(JSON.parse(await lines.next())).toMatchObject({ id, state: "cancelled" });
  });
});

describe.each(apiStores)("alone on $name", (store: ApiStore) => {
  it("ends its streams when it stops", async () => {
    const { api, stop } = await openServer({ url: await freshPlace(store) });
    const lines = await linesOf(api, "/v1/jobs?stream=ndjson");
    await stop();
    await expect(lines.next()).rejects.toThrow("ended");
  });
});
