// Receivers over TLS: only those that an authority vouches for which is trusted, under the name that is asked for.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { startChild } from "../crash/children.js";
import { makeAuthority, makeCertificate } from "../support/certificates.js";
import { Receiver } from "./receiver.js";

it("a receiver is told nothing unless its authority is trusted and its name fits", async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-tls-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await makeAuthority(folder, "ours");
  await makeCertificate(folder, "ours", "server");
  const read = (name: string) => readFile(join(folder, name), "utf8");
  const receiver = await Receiver.open({
    cert: await read("server.pem"),
    key: await read("server.key"),
  });
  const { port } = new URL(receiver.url);
  const other = `https://other.example:${port}`;

  const strangers = await startChild("../webhooks/tls-child.ts", [receiver.url, other]).ended;
  expect(strangers.lines).toEqual([
    "unable to verify the first certificate",
    "unable to verify the first certificate",
  ]);
  expect(receiver.received).toEqual([]);

  const environment = { NODE_EXTRA_CA_CERTS: join(folder, "ours.pem") };
  const urls = [receiver.url, other];
  const trusting = await startChild("../webhooks/tls-child.ts", urls, { environment }).ended;
  expect(trusting.lines).toEqual([
    "delivered",
    expect.stringContaining("does not match certificate's altnames"),
  ]);
  expect(receiver.received).toHaveLength(1);
});
