// A worker process of the benchmark. The parent asks by messages; see calls.ts.
import type { Watch, WorkerCalls } from "./calls.js";
import type { HostName, HostOpener } from "./host.js";
import { createWorker } from "./worker.js";

/** A question of the parent. Answers come in the order of the questions. */
export type Question = keyof WorkerCalls;

/** Only the system that is measured is loaded. */
const hosts: Readonly<Record<HostName, () => Promise<{ readonly openHost: HostOpener }>>> = {
  millrace: () => import("../millrace/worker-host.js"),
  "graphile-worker": () => import("../peers/graphile-worker/worker-host.js"),
  "pg-boss": () => import("../peers/pg-boss/worker-host.js"),
};

const [, , name, url, watch] = process.argv;
if (name === undefined || url === undefined || watch === undefined || process.send === undefined) {
  throw new Error("this file is started by the benchmark, with a system and the URL of its store");
}

const { openHost } = await hosts[name as HostName]();
const worker = createWorker(openHost, url, watch as Watch, {
  onEntry: (entry) => say({ kind: "entry", entry }),
  onCount: (count) => say({ kind: "count", count }),
});

process.on("message", (question: Question) => {
  void worker[question]().then(
    (value) => say({ kind: "answer", value }),
    (error: unknown) => say({ kind: "failure", message: String(error) }),
  );
});
// Ctrl-C reaches the whole group of processes; the parent decides when its workers end.
process.on("SIGINT", () => {});
process.on("disconnect", () => process.exit());
say({ kind: "answer", value: undefined });

function say(message: object): void {
  process.send?.(message);
}
