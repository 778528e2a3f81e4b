// The doctor finds what is wrong with a machine, a store and a server, and names the remedy.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { clockFinding, schemaFinding } from "#millrace/cli/doctor/finding.js";
import {
  driverFinding,
  kindFinding,
  nodeFinding,
  roomFinding,
  sqliteDriverFinding,
} from "#millrace/cli/doctor/machine.js";
import { freshStoreUrl, ownNats } from "../support/nats.js";
import { execute, freshDatabase } from "../support/postgres.js";
import { freshPlace, json, onTerminal, type Place, run, start } from "./millrace.js";

interface Findings {
  readonly entries: readonly {
    readonly check: string;
    readonly status: string;
    readonly says: string;
  }[];
}

async function doctor(place: Place, ...words: readonly string[]) {
  const { code, out } = await run(place, ["doctor", "--json", ...words]);
  const { entries } = JSON.parse(out) as Findings;
  const bad = entries.filter(({ status }) => status === "warning" || status === "failed");
  return { code, entries, bad: bad.map(({ check, status }) => `${check} ${status}`) };
}

describe("a finding", () => {
  it.for([
    { finding: nodeFinding("18.19.0"), status: "failed" },
    { finding: nodeFinding("20.20.0"), status: "ok" },
    { finding: sqliteDriverFinding("13.0.1", 9), status: "failed" },
    { finding: sqliteDriverFinding("13.0.1", 10), status: "ok" },
    { finding: sqliteDriverFinding(null), status: "failed" },
    { finding: driverFinding("a-driver-that-nobody-has"), status: "failed" },
    { finding: kindFinding(0x6969), status: "failed" },
    { finding: kindFinding(0xff534d42 | 0), status: "failed" },
    { finding: kindFinding(0xef53), status: "ok" },
    { finding: roomFinding(1024), status: "failed" },
    { finding: roomFinding(500 * 1024 ** 2), status: "warning" },
    { finding: clockFinding(-30_000), status: "failed" },
    { finding: clockFinding(2_000), status: "warning" },
    { finding: schemaFinding(99, 2), status: "failed" },
    { finding: schemaFinding(1, 2), status: "note" },
  ])("says $finding.says", ({ finding, status }) => {
    expect(finding.status).toBe(status);
    expect(status === "ok" || status === "note" || finding.remedy !== undefined).toBe(true);
  });
});

it("a file that is sound, not there, another's, or damaged", async () => {
  const place = await freshPlace();
  expect(await doctor(place)).toMatchObject({ code: 0, bad: [] });
  await json(place, "job", "create", "shop", "pack", "{}");
  const sound = await doctor(place);
  expect(sound).toMatchObject({ code: 0, bad: [] });
  expect(sound.entries.map(({ check }) => check)).toEqual(
    expect.arrayContaining(["node", "driver", "filesystem", "schema", "integrity", "durability"]),
  );
  await writeFile(join(place.folder, "text.db"), "no database".repeat(1_000));
  expect(await doctor(place, "--url", "file:text.db")).toMatchObject({
    code: 1,
    bad: ["store failed"],
  });
  const missing = await doctor(place, "--url", "file:none/jobs.db");
  expect(missing).toMatchObject({ code: 1, bad: ["folder failed"] });
  const { code, text } = await onTerminal(place, ["doctor"]);
  expect(code).toBe(0);
  expect(text).toContain("✓ integrity");
});

it("PostgreSQL: durability and schema", async () => {
  const place = await freshPlace();
  const url = await freshDatabase();
  expect((await doctor(place, "--url", url)).code).toBe(0);
  const database = new URL(url).pathname.slice(1);
  await execute(url, `ALTER DATABASE "${database}" SET synchronous_commit = off`);
  expect((await doctor(place, "--url", url)).bad).toContain("durability warning");
  await json(place, "job", "create", "shop", "pack", "{}", "--url", url);
  await execute(url, "UPDATE millrace.store SET version = 99");
  expect(await doctor(place, "--url", url)).toMatchObject({ code: 1 });
  const away = await doctor(place, "--url", "postgres://127.0.0.1:9/none");
  expect(away).toMatchObject({ code: 1, bad: ["server failed"] });
});

it("NATS: version, JetStream, and how often the server fsyncs", async () => {
  const place = await freshPlace();
  const shared = await doctor(place, "--url", await freshStoreUrl());
  expect(shared.code).toBe(0);
  expect(shared.entries.find(({ check }) => check === "durability")?.status).toBe("note");
  const server = await ownNats();
  const { http_port: port } = (await server.monitor("varz")) as { http_port: number };
  const own = ["--url", server.url, "--monitor", `http://127.0.0.1:${port}`];
  expect((await doctor(place, ...own)).bad).toContain("durability warning");
  const away = await doctor(place, "--url", "nats://127.0.0.1:9");
  expect(away).toMatchObject({ code: 1, bad: ["server failed"] });
});

it("a server that answers, and one that does not", async () => {
  const place = await freshPlace();
  const server = start(place, ["server", "--bind", "127.0.0.1:0"]);
  const address = await server.says(/(http:\/\/127\.0\.0\.1:\d+)/);
  expect(await doctor(place, "--server", address)).toMatchObject({ code: 0, bad: [] });
  const away = await doctor(place, "--server", "http://127.0.0.1:1");
  expect(away).toMatchObject({ code: 1, bad: ["server failed"] });
});
