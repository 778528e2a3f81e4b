// A claim belongs to the holder of the client certificate that made it, also after that was renewed; under another
// certificate its lease is as good as lost.
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { beforeAll, expect, it } from "vitest";
import { makeAuthority, makeCertificate } from "../../support/certificates.js";
import { openServer } from "../api.js";

let folder: string;

/** Two workers of one name in two teams, and a newer certificate of the first. */
const subjects = {
  server: "/CN=server",
  packing: "/O=packing/CN=worker",
  "packing renewed": "/O=packing/CN=worker",
  shipping: "/O=shipping/CN=worker",
};

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "millrace-tls-"));
  await makeAuthority(folder, "ours");
  for (const [name, subject] of Object.entries(subjects))
    await makeCertificate(folder, "ours", name, subject);
  return () => rm(folder, { recursive: true, force: true });
});

const file = (name: string) => join(folder, name);

it("binds claims to the subject of the certificate", async () => {
  const { url } = await openServer({
    ...{ url: "memory:", tlsCert: file("server.pem"), tlsKey: file("server.key") },
    tlsClientCa: file("ours.pem"),
  });
  const post = async (name: keyof typeof subjects, path: string, body: object) => {
    const [ca, cert, key] = await Promise.all(
      ["ours.pem", `${name}.pem`, `${name}.key`].map((of) => readFile(file(of))),
    );
    const headers = { "Content-Type": "application/json" };
    const sent = request(`${url}${path}`, {
      ...{ agent: false, method: "POST", headers },
      ...{ ca: String(ca), cert: String(cert), key: String(key) },
    });
    sent.end(JSON.stringify(body));
    const [response] = await once(sent, "response");
    return JSON.parse(await text(response));
  };
  const renew = (name: keyof typeof subjects, jobId: string) =>
    post(name, "/v1/work/renewals", { leases: [{ jobId, token: 1 }] });

  const { id } = await post("packing", "/v1/jobs", { service: "shop", type: "mail", payload: {} });
  const ask = { service: "shop", worker: "w-1", types: [{ type: "mail" }], waitMs: 20_000 };
  const { jobs } = await post("packing", "/v1/work/claims", ask);
  expect(jobs).toMatchObject([{ job: { id }, token: 1 }]);
  expect(jobs[0].job.worker).toMatch(/^w-1@certificate-[0-9a-f]{24}$/);

  expect((await renew("shipping", id)).entries).toEqual([{ jobId: id, outcome: "lost" }]);
  const settle = `/v1/work/jobs/${id}/settle`;
  const outcome = { token: 1, outcome: "completed" };
  const refused = await post("shipping", settle, outcome);
  expect(refused.error.details.reason).toBe("stale_token");

  expect((await renew("packing renewed", id)).entries).toMatchObject([{ outcome: "held" }]);
  expect(await post("packing renewed", settle, outcome)).toMatchObject({ state: "completed" });
});
