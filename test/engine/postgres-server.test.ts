// Which servers are taken: PostgreSQL 13 and newer.
import { openEngine } from "millrace";
import { expect, it, onTestFinished } from "vitest";
import { openOutbox } from "#millrace/engine/open.js";
import { execute, freshSchema } from "../support/postgres.js";
import { postgresWay } from "../support/postgres-proxy.js";

/** A way to a server that says it is of another version, which has as many digits. */
async function serverOfVersion(url: string, version: string): Promise<string> {
  const [row] = await execute(url, "SHOW server_version_num");
  const { server_version_num: own } = row as { server_version_num: string };
  return (await postgresWay(url, (said) => said.replaceAll(own, version))).url;
}

it("a server that is too old is refused with a remedy, by stores and outboxes", async () => {
  const { storeUrl } = await freshSchema();
  const url = await serverOfVersion(storeUrl, "120022");
  const refused = {
    _tag: "StoreUnavailable",
    message: expect.stringMatching(/is PostgreSQL 12, and Millrace needs 13 or newer. Upgrade/),
  };
  await expect(openEngine(url)).rejects.toMatchObject(refused);
  const outbox = await openOutbox(url);
  onTestFinished(() => outbox.close());
  await expect(outbox.provision()).rejects.toMatchObject(refused);
});

it("the oldest one is taken", async () => {
  const { storeUrl } = await freshSchema();
  const engine = await openEngine(await serverOfVersion(storeUrl, "130000"));
  await engine.close();
});
