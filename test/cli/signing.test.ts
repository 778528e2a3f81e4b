// Signing on the command line: keys in files, a server that counts them, creates that bear a signature.
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { freshPlace, run, start } from "./millrace.js";

it("makes keys, signs creates, and is refused without a signature", async () => {
  const place = await freshPlace();
  const made = await run(place, ["signing", "generate", "--out", "office.key"]);
  expect(made).toMatchObject({ code: 0, out: expect.stringMatching(/^[0-9a-f]{64}\n$/) });
  expect((await stat(join(place.folder, "office.key"))).mode & 0o777).toBe(0o600);
  const again = await run(place, ["signing", "generate", "--out", "office.key"]);
  expect(again).toMatchObject({ code: 2, err: expect.stringContaining("cannot be written") });

  const words = ["server", "--url", "file:jobs.db", "--bind", "127.0.0.1:0"];
  const server = start(place, [...words, "--verify", "office.key.pub"]);
  const url = await server.says(/(http:\/\/127\.0\.0\.1:\d+)/);
  const create = ["job", "create", "bakery", "bake", '{"loaves":2}', "--server", url];
  const unsigned = await run(place, create);
  expect(unsigned.code).not.toBe(0);
  expect(unsigned.err).toContain("needs a signature");
  const signed = await run(place, [...create, "--sign", "office.key", "--json"]);
  expect(signed).toMatchObject({ code: 0 });
  const { id } = JSON.parse(signed.out);
  const shown = await run(place, ["job", "get", id, "--server", url, "--json"]);
  expect(JSON.parse(shown.out).signature.value).toMatch(/^[0-9a-f]{128}$/);
  const wrong = await run(place, ["signing", "generate", "--json"]);
  const { privateKey } = JSON.parse(wrong.out);
  const foreign = await run(place, [...create, "--sign", privateKey]);
  expect(foreign.err).toContain("is not that of a key that counts here");
}, 60_000);
