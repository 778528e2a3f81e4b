// Encryption on the command line: keys in files, on a store directly and through a server.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { connect, defineJob, defineService, generateEncryptionKey } from "millrace";
import { expect, it } from "vitest";
import { z } from "zod";
import { freshPlace, run, start } from "./millrace.js";

const clinic = defineService("clinic", {
  report: defineJob({ payload: z.object({ patient: z.string() }) }),
});

it("creates jobs of an encrypted service with keys, and is refused without", async () => {
  const place = await freshPlace();
  const key = generateEncryptionKey();
  await writeFile(join(place.folder, "ring.key"), `${key}\n`);
  const keys = [{ id: "k1", key }];
  const url = `file:${join(place.folder, "jobs.db")}`;
  const service = await connect(clinic, { url, encryption: { keys } });
  await service.start();
  const create = ["job", "create", "clinic", "report", '{"patient":"no-4242"}'];
  const direct = [...create, "--url", "file:jobs.db", "--json"];
  const refused = await run(place, direct);
  expect(refused).toMatchObject({ code: 4, err: expect.stringContaining("has no keys") });
  const strange = await run(place, [...direct, "--encryption-keys", "ring.key"]);
  expect(strange).toMatchObject({ code: 2, err: expect.stringContaining("name=key") });
  const flags = ["--encryption-keys", "k1=ring.key"];
  const server = start(place, [
    "server",
    "--url",
    "file:jobs.db",
    "--bind",
    "127.0.0.1:0",
    ...flags,
  ]);
  const address = await server.says(/(http:\/\/127\.0\.0\.1:\d+)/);
  const made = [
    await run(place, [...direct, ...flags]),
    await run(place, [...create, "--server", address, "--json"]),
  ];
  for (const { code, out } of made) {
    expect(code).toBe(0);
    const { id } = JSON.parse(out);
    expect((await service.ref(id).get().orThrow()).payload).toEqual({ patient: "no-4242" });
    expect(JSON.stringify(await service.engine.load([id]))).not.toContain("no-4242");
    const shown = await run(place, ["job", "get", id, "--url", "file:jobs.db", "--json", ...flags]);
    expect(JSON.parse(shown.out).payload).toBe("[encrypted]");
  }
  await service.stop();
}, 60_000);
