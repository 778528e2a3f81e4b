// What a store without transactions may leave in its log is no breach of the rules, and everything else is.

import { defineJob, defineService, type JobEvent } from "millrace";
import { testService } from "millrace/testing";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { LooseLog } from "#millrace/cli/loose-log.js";
import { LogChecker } from "#millrace/conformance/checker.js";

const mill = defineService("mill", { grind: defineJob({ payload: z.object({}) }) });

/** The log of a job that ran, told its progress, and was deleted or not. */
async function logOf(isDeleted: boolean): Promise<readonly JobEvent[]> {
  const test = await testService(mill);
  const { service } = test;
  onTestFinished(() => service.stop());
  service.jobs.grind.handle(async ({ progress }) => {
    await progress({ current: 1 });
  });
  const ref = await service.jobs.grind.create({}).orThrow();
  await test.drain();
  const events = [...(await ref.events().orThrow())];
  if (!isDeleted) return events;
  const last = events.at(-1);
  if (last === undefined) throw new Error("A job without events was made.");
  const deleted = { ...last, id: "d", name: "deleted", reason: "test", version: last.version + 1 };
  return [...events, deleted as unknown as JobEvent];
}

function rulesBroken(events: readonly JobEvent[]): readonly string[] {
  const log = new LooseLog(new LogChecker());
  for (const event of events) log.see(event);
  return log.finish().map(({ rule }) => rule);
}

it("a whole log is in order", async () => {
  expect(rulesBroken(await logOf(false))).toEqual([]);
  expect(rulesBroken(await logOf(true))).toEqual([]);
});

it("a note after the end means nothing", async () => {
  const events = await logOf(false);
  const note = events.find(({ name }) => name === "progress");
  expect(rulesBroken([...events, ...(note ? [note] : [])])).toEqual([]);
});

it("what is left of a removed job means nothing, and what is left of one that was not does", async () => {
  expect(rulesBroken((await logOf(true)).slice(1))).toEqual([]);
  expect(rulesBroken((await logOf(false)).slice(1))).not.toEqual([]);
});

it("a second end is a breach", async () => {
  const events = await logOf(false);
  expect(rulesBroken([...events, ...events.slice(-1)])).toContain("one_terminal_per_run");
});
