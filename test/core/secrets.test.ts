// What people may see of jobs and events: everything but what is marked as secret, and nothing that is encrypted.
import { expect, it } from "vitest";
import type { JobEvent } from "#millrace/core/event.js";
import { pointerProblem, redact, redactEvent, redactJob } from "#millrace/core/secrets.js";

const payload = {
  card: { number: "4242", "ex/p": "12/30" },
  items: [
    { code: "a", n: 1 },
    { code: "b", n: 2 },
  ],
  note: null,
};

it("replaces what pointers lead to, and leaves all else as it is", () => {
  expect(redact(payload, ["/card/number", "/items/1/code"])).toEqual({
    card: { number: "[redacted]", "ex/p": "12/30" },
    items: [
      { code: "a", n: 1 },
      { code: "[redacted]", n: 2 },
    ],
    note: null,
  });
  expect(redact(payload, ["/card/ex~1p"])).toMatchObject({ card: { "ex/p": "[redacted]" } });
  expect(redact(payload, ["/items/*/code"])).toMatchObject({
    items: [
      { code: "[redacted]", n: 1 },
      { code: "[redacted]", n: 2 },
    ],
  });
  expect(redact(payload, ["/card/*"])).toMatchObject({
    card: { number: "[redacted]", "ex/p": "[redacted]" },
  });
  expect(redact(payload, [""])).toBe("[redacted]");
  // The value that was given is not changed.
  expect(payload.card.number).toBe("4242");
});

it("does nothing where a pointer leads nowhere", () => {
  for (const pointer of ["/cards", "/card/number/x", "/items/7/code", "/note/x", "/toString"])
    expect(redact(payload, [pointer])).toEqual(payload);
});

it("hides the parts of a job and of its events", () => {
  const secret = { payload: ["/card"], result: ["/token"] };
  const job = {
    id: "1",
    payload: { card: "4242", n: 1 },
    result: { token: "t", ok: true },
    secret,
  };
  expect(redactJob(job)).toEqual({
    ...job,
    payload: { card: "[redacted]", n: 1 },
    result: { token: "[redacted]", ok: true },
  });
  const created = { name: "created", payload: job.payload, secret } as unknown as JobEvent;
  expect(redactEvent(created)).toMatchObject({ payload: { card: "[redacted]", n: 1 } });
  const completed = { name: "completed", result: job.result, secret } as unknown as JobEvent;
  expect(redactEvent(completed)).toMatchObject({ result: { token: "[redacted]" } });
});

it("shows nothing of what is encrypted, and gives everything else as the very thing", () => {
  const sealed = { $sealed: 1, key: "k1", data: "AAAA" } as const;
  expect(redactJob({ payload: sealed, result: sealed })).toEqual({
    payload: "[encrypted]",
    result: "[encrypted]",
  });
  const created = { name: "created", payload: sealed } as unknown as JobEvent;
  expect(redactEvent(created)).toMatchObject({ payload: "[encrypted]" });
  const plain = { payload };
  expect(redactJob(plain)).toBe(plain);
  const started = { name: "started" } as unknown as JobEvent;
  expect(redactEvent(started)).toBe(started);
});

it("knows a pointer from what is none", () => {
  expect(["", "/a", "/a~1b/~0", "/*"].map(pointerProblem)).toEqual([null, null, null, null]);
  for (const bad of ["a", "/a~2", 5, null]) expect(pointerProblem(bad)).not.toBeNull();
});
