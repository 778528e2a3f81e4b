// The text that a signature covers is the same in every language and every version.
import { expect, it } from "vitest";
import { signedText } from "#millrace/core/signature.js";

const job = {
  service: "shop",
  type: "charge",
  typeVersion: 2,
  id: "job-1",
  payload: { to: "a@b.example", cents: 5 },
};

it("is canonical JSON of the job's names, its payload's hash and the times", () => {
  // The hash is that of {"cents":5,"to":"a@b.example"}.
  const payload = "1ac00184f1ba4052ffc52c70f6ccce8c2d863ace3793b1f43bec801528b0f036";
  expect(signedText(job, { createdAt: 1_000, expiresAt: 2_000 })).toBe(
    `{"createdAt":1000,"expiresAt":2000,"id":"job-1","payload":"${payload}","service":"shop","signed":"millrace-job-1","type":"charge","version":2}`,
  );
});

it("changes with everything that it covers", () => {
  const times = { createdAt: 1_000 };
  const text = signedText(job, times);
  const changes = [
    { service: "bank" },
    { type: "refund" },
    { typeVersion: 3 },
    { id: "job-2" },
    { payload: { to: "a@b.example", cents: 6 } },
  ];
  for (const change of changes) expect(signedText({ ...job, ...change }, times)).not.toBe(text);
  expect(signedText(job, { createdAt: 1_001 })).not.toBe(text);
  expect(signedText(job, { createdAt: 1_000, expiresAt: 5_000 })).not.toBe(text);
});
