// Where the view of a JetStream store lies: in its URL, else in the environment.
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openEngine } from "millrace";
import { expect, it, onTestFinished, vi } from "vitest";
import { freshPrefix } from "../support/nats.js";

it("lies where MILLRACE_PROJECTION_URL says, unless the URL says otherwise", async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-place-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const [variable, own] = [join(folder, "variable.db"), join(folder, "own.db")];
  vi.stubEnv("MILLRACE_PROJECTION_URL", `file:${variable}`);
  onTestFinished(() => void vi.unstubAllEnvs());
  const { storeUrl } = await freshPrefix();
  const ask = async (url: string) => {
    const engine = await openEngine(url);
    await engine.query("counts", {});
    await engine.close();
  };
  await ask(`${storeUrl}&projection=file:${own}`);
  expect([existsSync(own), existsSync(variable)]).toEqual([true, false]);
  await ask(storeUrl);
  expect(existsSync(variable)).toBe(true);
});
