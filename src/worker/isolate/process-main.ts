/**
 * The process of one try: loads the handler's module, says that it is ready, runs the handler once and is ended.
 * It dies with its worker. What most tries do not need is imported when it is needed, because every try pays for it.
 */
import { Socket } from "node:net";
import type { IsolatedJob } from "./isolated-job.js";
import { ProcessChannel } from "./process-job.js";
import {
  channelDescriptor,
  folderVariable,
  type JobData,
  Lines,
  type Thrown,
  type ToProcess,
} from "./protocol.js";

type ModuleHandler = (job: IsolatedJob<unknown>) => unknown;

/** The longest message and stack that are told of an error. */
const textLengthMax = 8_192;

const socket = new Socket({ fd: channelDescriptor, readable: true, writable: true });
const channel = new ProcessChannel(socket);
let handler: ModuleHandler | undefined;
let jobId = "";

const lines = new Lines((line) => obey(JSON.parse(line) as ToProcess));
socket.setEncoding("utf8");
socket.on("data", (text: string) => lines.take(text));
socket.on("error", dieWithWorker);
socket.on("close", dieWithWorker);
process.on("uncaughtExceptionMonitor", (error) => {
  channel.send({ say: "crashed", error: thrown(error) });
});
// Until here the folder was the worker's, in which Node finds what it preloads.
process.chdir(process.env[folderVariable] ?? ".");
void load(process.argv[2] ?? "");

async function load(url: string): Promise<void> {
  try {
    const { default: given } = (await import(url)) as { readonly default?: unknown };
    if (typeof given !== "function") {
      throw new TypeError("It has no function as its default export.");
    }
    handler = given as ModuleHandler;
    channel.send({ say: "ready" });
  } catch (error) {
    channel.send({ say: "unloadable", error: thrown(error) });
  }
}

function obey(message: ToProcess): void {
  switch (message.say) {
    case "run":
      jobId = message.job.id;
      void run(message.job);
      return;
    case "abort":
      void channel.abort(jobId, message.reason);
      return;
    case "answer":
      channel.answered(message);
      return;
  }
}

async function run(data: JobData): Promise<void> {
  try {
    await report(await handler?.(channel.job(data)));
  } catch (error) {
    await Promise.all([process.stdout, process.stderr].map(flushed));
    if (!reportOutcome(error)) channel.send({ say: "threw", error: thrown(error) });
  }
}

async function report(value: unknown): Promise<void> {
  await Promise.all([process.stdout, process.stderr].map(flushed));
  if (reportOutcome(value)) return;
  if (value === undefined) return channel.send({ say: "returned" });
  const { jsonText } = await import("../../core/json.js");
  const json = jsonText(value);
  if (json.ok) return channel.send({ say: "returned", value: JSON.parse(json.text) });
  const { path, message } = json.problem;
  channel.send({
    say: "unfit",
    message: `The result cannot be stored: ${path || "it"} ${message}.`,
  });
}

/** The process is ended as soon as it has given its verdict, so that what it printed has to be out before. */
function flushed(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    if (stream.writableLength === 0) resolve();
    else stream.write("", () => resolve());
  });
}

/** Outcomes are told by their tag, so that one of another copy of the package counts as well. */
function reportOutcome(value: unknown): boolean {
  if (!(value instanceof Error) || !("_tag" in value)) return false;
  const { _tag: tag, message } = value;
  if (tag === "Terminate") channel.send({ say: "terminate", message });
  else if (tag === "Skip") channel.send({ say: "skip", message });
  else if (tag === "Snooze") {
    const { delayMs, reason } = value as { readonly delayMs?: number; readonly reason?: string };
    const snooze = { say: "snooze", delayMs: Number(delayMs) } as const;
    channel.send(reason === undefined ? snooze : { ...snooze, reason });
  } else return false;
  return true;
}

function thrown(value: unknown): Thrown {
  if (!(value instanceof Error)) return { message: text(value) };
  const { name, message, stack } = value;
  const code = "code" in value ? { code: text(value.code) } : null;
  return { message: text(message), name: text(name), ...code, stack: text(stack) };
}

function text(value: unknown): string {
  return String(value).slice(0, textLengthMax);
}

/** Ends the whole group, because nobody else would. */
function dieWithWorker(): void {
  try {
    process.kill(-process.pid, "SIGKILL");
  } finally {
    process.exit(1);
  }
}
