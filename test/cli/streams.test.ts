// Streams: they end cleanly on Ctrl-C, when their reader has seen enough, and go on when a server comes back.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { openServer } from "../http/api.js";
import { freshPlace, json, main, onTerminal, type Place, run, start } from "./millrace.js";

async function freshStore(): Promise<Place> {
  const { folder } = await freshPlace();
  return { folder, environment: { MILLRACE_URL: `file:${join(folder, "jobs.db")}` } };
}

it("watching ends with 130 and without a word on Ctrl-C", async () => {
  const place = await freshStore();
  const steps = [{ after: "until Ctrl-C:", type: "\u0003" }];
  const { code, text } = await onTerminal(place, ["job", "watch"], { steps });
  expect({ code, text: text.replace("^C", "") }).toEqual({
    code: 130,
    text: `What happens at ${place.environment?.MILLRACE_URL}, until Ctrl-C:\n`,
  });
});

it("following gives lines of JSON as things happen, and ends with a signal", async () => {
  const place = await freshStore();
  const { id } = await json<{ id: string }>(place, "job", "create", "shop", "pack", "{}");
  const following = start(place, ["job", "events", id, "--follow", "--ndjson"]);
  await following.says('"name":"created"');
  await json(place, "job", "cancel", id);
  await following.says('"name":"cancelled"');
  following.child.kill("SIGINT");
  const { code, out, err } = await following.ended;
  const names = out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).name);
  expect({ code, err, names }).toEqual({ code: 130, err: "", names: ["created", "cancelled"] });
});

it("a long history and a long log are shown whole", async () => {
  const { folder } = await freshPlace();
  const { api, url } = await openServer({ url: `file:${join(folder, "jobs.db")}`, keeper: false });
  const place = { folder, environment: { MILLRACE_SERVER: url } };
  const id = await api.create("shop", "pack");
  const { token } = await api.claimOne("shop", "pack");
  const entries = Array.from({ length: 60 }, (_, index) => ({ message: `line ${index}` }));
  for (let times = 0; times < 2; times++)
    await api.post(`/v1/work/jobs/${id}/logs`, { token, entries });
  const steps = Array.from({ length: 120 }, (_, current) => ({ token, progress: { current } }));
  await Promise.all(steps.map((step) => api.post(`/v1/work/jobs/${id}/progress`, step)));
  const history = await json<{ entries: unknown[] }>(place, "job", "events", id);
  expect(history.entries).toHaveLength(2 + 2 + steps.length);
  const logs = await json<{ entries: unknown[] }>(place, "job", "logs", id);
  expect(logs.entries).toMatchObject([...entries, ...entries]);
});

it("a reader that has seen enough is no failure", async () => {
  const place = await freshStore();
  for (const type of ["pack", "send"]) await json(place, "job", "create", "shop", type, "{}");
  const script = `set -o pipefail; "${process.execPath}" "${main}" job list --all --ndjson | true`;
  const options = { cwd: place.folder, env: { ...process.env, ...place.environment } };
  const { stderr } = await promisify(execFile)("bash", ["-c", script], options);
  expect(stderr).toBe("");
});

it("a stream goes on where it was when the server comes back", async () => {
  const { folder } = await freshPlace();
  const serve = ["server", "--url", `file:${join(folder, "jobs.db")}`, "--bind"];
  const first = start({ folder }, [...serve, "127.0.0.1:0"]);
  const address = await first.says(/(http:\/\/127\.0\.0\.1:\d+)/);
  const place = { folder, environment: { MILLRACE_SERVER: address } };
  const { id } = await json<{ id: string }>(place, "job", "create", "shop", "pack", "{}");
  const watching = start(place, ["job", "watch", id, "--ndjson"]);
  await watching.says('"name":"created"');
  first.child.kill("SIGKILL");
  await first.ended;
  const second = start({ folder }, [...serve, address.replace("http://", "")]);
  await second.says(address);
  await json(place, "job", "cancel", id);
  const { code, out } = await watching.ended;
  const names = out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).name);
  expect({ code, names }).toEqual({ code: 6, names: ["created", "cancelled"] });
});

it("payloads come inline, from a file, and from stdin", async () => {
  const place = await freshStore();
  const create = ["job", "create", "shop", "pack"];
  const created = await run(place, [...create, "-"], '{"boxes":3}');
  expect(await json(place, "job", "get", created.out.trim())).toMatchObject({
    payload: { boxes: 3 },
  });
  expect(await run(place, [...create, "@none.json"])).toMatchObject({ code: 2, out: "" });
  expect(await run(place, [...create, "{boxes"])).toMatchObject({ code: 2, out: "" });
});

it("tables fit the terminal, and say everything in a pipe", async () => {
  const place = await freshStore();
  const tag = "a-tag-that-is-rather-long-".repeat(4);
  await json(place, "job", "create", "shop", "pack", "{}", "--tag", tag);
  const narrow = await onTerminal(place, ["job", "list"], { columns: 90 });
  expect(narrow.raw).toContain("\u001b[");
  expect(Math.max(...narrow.text.split("\n").map(({ length }) => length))).toBeLessThanOrEqual(90);
  expect(narrow.text).toContain("…");
  const plain = await onTerminal(place, ["job", "list", "--no-color"], { columns: 90 });
  expect(plain.raw).not.toContain("\u001b[");
  const piped = await run(place, ["job", "list"]);
  expect(piped.out).toContain(tag);
  expect(piped.out).not.toContain("\u001b[");
});

it("a person who says no, or thinks better of it, has nothing destroyed", async () => {
  const place = await freshStore();
  const { id } = await json<{ id: string }>(place, "job", "create", "shop", "pack", "{}");
  const words = ["job", "delete", id];
  const no = await onTerminal(place, words, { steps: [{ after: "?", type: "n" }] });
  expect(no.code).toBe(1);
  expect(no.text).toContain("Nothing was done.");
  const gone = await onTerminal(place, words, { steps: [{ after: "?", type: "\u0003" }] });
  expect(gone.code).toBe(130);
  expect(await json(place, "job", "get", id)).toMatchObject({ id });
});
