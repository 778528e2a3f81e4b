// A worker that is killed leaves nothing behind: no process, whatever it does, and no folder.
import { expect, it, onTestFinished } from "vitest";
import { runScript } from "../../support/process.js";
import { sqliteStore } from "../../transactions/shop-file.js";
import { childrenOf, gone, runs, tryFolders } from "./workplace.js";

it("leaves no process and no folder behind when it is killed", async () => {
  const { url } = await sqliteStore();
  const module = new URL("./fixtures/acting.mjs", import.meta.url).href;
  const worker = runScript(new URL("./killed-worker.ts", import.meta.url), url, module);
  const told = [await worker.nextLine(), await worker.nextLine(), await worker.nextLine()];
  // One is in an endless loop, one ignores its signals and has started a process, one has started one in another group.
  const handlers = told.flatMap((line) => JSON.parse(line) as number[]);
  const pids = new Set([...handlers, ...childrenOf(worker.child.pid ?? 0)]);
  // Should one of them be left, nobody else would end it.
  onTestFinished(() => {
    for (const pid of [...pids].filter(runs)) process.kill(pid, "SIGKILL");
  });
  expect(handlers.length).toBe(4);
  expect(pids.size).toBeGreaterThan(handlers.length);
  expect(tryFolders().length).toBeGreaterThan(1);
  worker.child.kill("SIGKILL");
  await worker.exited;
  await Promise.all([...pids].map(gone));
  expect([...pids].filter(runs)).toEqual([]);
  expect(tryFolders()).toEqual([]);
});
