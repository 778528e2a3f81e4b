// A worker process of the benchmark. The parent asks by messages; see worker-calls.ts.
import { openService } from "./stage.js";
import type { WorkerCalls } from "./worker-calls.js";
import { createWorkerHost } from "./worker-host.js";

/** A question of the parent, and its answer. Answers come in the order of the questions. */
export interface Question {
  readonly name: keyof WorkerCalls;
  readonly jobs: number;
}

const url = process.argv[2];
if (url === undefined || process.send === undefined) {
  throw new Error("this file is started by the benchmark, with the URL of an engine");
}

const host = createWorkerHost(await openService(url), (entry) => say({ kind: "entry", entry }));

process.on("message", (question: Question) => {
  void answer(question).then(
    (value) => say({ kind: "answer", value }),
    (error: unknown) => say({ kind: "failure", message: String(error) }),
  );
});
// Ctrl-C reaches the whole group of processes; the parent decides when its workers end.
process.on("SIGINT", () => {});
process.on("disconnect", () => process.exit());
say({ kind: "answer", value: undefined });

function answer({ name, jobs }: Question): Promise<unknown> {
  return name === "drain" ? host.drain(jobs) : host[name]();
}

function say(message: object): void {
  process.send?.(message);
}
