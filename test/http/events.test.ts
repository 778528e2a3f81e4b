// Events over HTTP, on every store: the history of a job and the feed, as JSON and as streams that are taken up again.
import { describe, expect, it } from "vitest";
import { apiStores, freshPlace, freshService, openServer, sharedServers } from "./api.js";
import { eventsOf } from "./reading.js";

/** The names of lifecycle events; a ticket (`ready`) comes whenever a store needs one. */
function namesOf(entries: readonly { readonly name: string }[]): readonly string[] {
  return entries.map(({ name }) => name).filter((name) => name !== "ready");
}

describe.each(apiStores)("on $name", (store) => {
  const servers = sharedServers(store);

  it("gives the history of a job", async () => {
    const { api } = servers;
    const id = await api.create(freshService(), "mail");
    await api.post(`/v1/jobs/${id}/complete`, { result: 1 });
    const { body } = await api.get(`/v1/jobs/${id}/events`);
    expect(namesOf(body.entries)).toEqual(["created", "completed"]);
    expect(body.entries[0]).toMatchObject({ jobId: id, state: "pending", previousState: null });
    expect(body.entries[0].at).toMatch(/^\d{4}-.*Z$/);
  });

  it("gives the history and the log lines of a job in parts, each with the way to the next", async () => {
    const { api, other } = servers;
    const service = freshService();
    const id = await api.create(service, "mail");
    const { token } = await api.claimOne(service, "mail");
    const messages = ["one", "two", "three", "four", "five"];
    const entries = messages.map((message) => ({ message }));
    await api.post(`/v1/work/jobs/${id}/logs`, { token, entries });
    await api.settle(id, token, { outcome: "completed" });
    const readParts = async (path: string) => {
      const parts: { readonly name: string; readonly message: string }[][] = [];
      for (let next: string | undefined = path; next !== undefined; ) {
        const { body, headers } = await other.get(next);
        parts.push(body.entries);
        const [, linked] = /^<(.+)>; rel="next"$/.exec(headers.get("link") ?? "") ?? [];
        expect(linked?.includes(`cursor=${body.nextCursor}`)).toBe(linked && true);
        next = linked;
      }
      return parts;
    };
    const lines = await readParts(`/v1/jobs/${id}/logs?limit=2`);
    expect(lines.map((part) => part.map(({ message }) => message))).toEqual([
      ...[["one", "two"], ["three", "four"], ["five"]],
    ]);
    const events = await readParts(`/v1/jobs/${id}/events?limit=1`);
    expect(events.every((part) => part.length === 1)).toBe(true);
    expect(namesOf(events.flat())).toEqual(["created", "started", "logged", "completed"]);
    for (const limit of [0, 1_001])
      expect((await api.get(`/v1/jobs/${id}/events?limit=${limit}`)).status).toBe(400);
    const beyond = await api.get(`/v1/jobs/${id}/logs?cursor=99`);
    expect([beyond.body, beyond.headers.get("link")]).toEqual([{ entries: [] }, null]);
  });

  it("streams a job's events, and goes on after the last one that was seen", async () => {
    const { api, other } = servers;
    const id = await api.create(freshService(), "mail");
    await using whole = await eventsOf(api, `/v1/jobs/${id}/events`);
    const created = await whole.next();
    expect([created.event, created.data.jobId]).toEqual(["created", id]);
    await other.post(`/v1/jobs/${id}/cancel`, { reason: "no" });
    const cancelled = await whole.next();
    expect([cancelled.event, cancelled.data.reason]).toEqual(["cancelled", "no"]);
    await using rest = await eventsOf(other, `/v1/jobs/${id}/events`, created.id);
    expect((await rest.next()).id).toBe(cancelled.id);
    await api.post(`/v1/jobs/${id}/retry`, {});
    expect([(await whole.next()).event, (await rest.next()).event]).toEqual(["retried", "retried"]);
  });

  it("gives the feed as pages, by service, type and name", async () => {
    const { api } = servers;
    const service = freshService();
    const [first] = [await api.create(service, "mail"), await api.create(service, "ship")];
    await api.post(`/v1/jobs/${first}/complete`, {});
    const feed = async (query: string) => (await api.get(`/v1/events?${query}`)).body;
    const own = `service=${service}&limit=1000`;
    const { entries } = await feed(own);
    const events = entries.map(({ event }: { event: { name: string } }) => event);
    expect(namesOf(events)).toEqual(["created", "created", "completed"]);
    const named = await feed(`${own}&name=completed`);
    expect(named.entries).toHaveLength(1);
    expect((await feed(`${own}&type=ship&name=created`)).entries).toHaveLength(1);
    const page = await feed(`service=${service}&limit=1`);
    expect(page.entries).toEqual([entries[0]]);
    const next = await feed(`${own}&cursor=${page.nextCursor}`);
    expect(next.entries).toEqual(entries.slice(1));
    const end = await feed(`${own}&cursor=${next.nextCursor}`);
    expect(end.entries).toEqual([]);
    expect((await api.get("/v1/events?cursor=-1")).status).toBe(400);
  });

  it("refuses a page after a place that is none of the feed", async () => {
    const { api } = servers;
    await api.create(freshService(), "mail");
    const refused = async (cursor: string) => {
      const { status, body } = await api.get(`/v1/events?cursor=${cursor}`);
      return [status, body.error?.details.reason, body.error?.details.field];
    };
    const foreign = store.name === "PostgreSQL" ? "17" : "1:2:3";
    expect(await refused(foreign)).toEqual([400, "cursor_invalid", "cursor"]);
    if (store.name === "PostgreSQL") return;
    expect(await refused("999999")).toEqual([400, "cursor_beyond_end", "cursor"]);
  });

  it("streams the feed from now on, from the beginning, or after a cursor", async () => {
    const { api, other } = servers;
    const service = freshService();
    const path = `/v1/events?service=${service}&name=created`;
    const before = await api.create(service, "mail");
    await using live = await eventsOf(api, path);
    await using whole = await eventsOf(api, `${path}&cursor=start`);
    const first = await whole.next();
    expect(first.data.jobId).toBe(before);
    const after = await other.create(service, "mail");
    const [heard, read] = [await live.next(), await whole.next()];
    expect([heard.data.jobId, read.data.jobId, read.id]).toEqual([after, after, heard.id]);
    await using rest = await eventsOf(other, path, first.id);
    expect((await rest.next()).id).toBe(heard.id);
  });

  it("refuses a stream from a place that is none of the feed, before it begins", async () => {
    const { api } = servers;
    await api.create(freshService(), "mail");
    const foreign = store.name === "PostgreSQL" ? "17" : "1:2:3";
    const refused = async (path: string, headers: { readonly [name: string]: string } = {}) => {
      const accepts = { Accept: "text/event-stream", ...headers };
      const { status, body } = await api.get(path, { headers: accepts });
      const { reason, field } = body.error.details;
      return [status, reason, field];
    };
    for (const last of ["abc", "-1", foreign]) {
      const seen = await refused("/v1/events", { "Last-Event-ID": last });
      expect(seen).toEqual([400, "cursor_invalid", "last-event-id"]);
    }
    const asked = await refused(`/v1/events?cursor=${foreign}`);
    expect(asked).toEqual([400, "cursor_invalid", "cursor"]);
    if (store.name === "PostgreSQL") return;
    const beyond = await refused("/v1/events", { "Last-Event-ID": "999999" });
    expect(beyond).toEqual([400, "cursor_beyond_end", "last-event-id"]);
  });
});

describe.each(apiStores)("across restarts on $name", (store) => {
  it("loses no event and gives none twice", async () => {
    const url = await freshPlace(store);
    const total = 40;
    const writer = (await openServer({ url, keeper: false })).api;
    const seen: string[] = [];
    let last: string | undefined = "start";
    let made = 0;
    for (let round = 0; round < 4; round++) {
      const { api, stop } = await openServer({ url, keeper: false });
      const path: string = last === "start" ? "/v1/events?cursor=start" : "/v1/events";
      const reading = await eventsOf(api, path, last === "start" ? undefined : last);
      const create = async () => {
        for (let index = 0; index < total / 4; index++, made++)
          await writer.create("shop", "mail", { id: `j-${made}` });
      };
      const creating = create();
      // The server goes away in the middle of what is written.
      for (let index = 0; index < 5 + round; index++) {
        const { id, event, data } = await reading.next();
        last = id;
        if (event === "created") seen.push(data.jobId);
      }
      await stop();
      await creating;
    }
    await using rest = await eventsOf(writer, "/v1/events", last);
    while (seen.length < total) {
      const { event, data } = await rest.next();
      if (event === "created") seen.push(data.jobId);
    }
    expect(seen).toEqual(Array.from({ length: total }, (_, index) => `j-${index}`));
  });
});
