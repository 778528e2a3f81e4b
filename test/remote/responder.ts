// Remote handlers for tests: a responder through the client library, and the one of the examples in Python.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { headers, type Msg, type NatsConnection } from "@nats-io/transport-node";
import { onTestFinished } from "vitest";
import { natsConnection } from "../support/nats.js";

const pythonExample = fileURLToPath(
  new URL("../../examples/python/remote_handler.py", import.meta.url),
);

/** The task of a request, as far as tests look at it. */
export interface Task {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly payload: string;
  readonly state: string;
  readonly created: string;
  readonly tried: string;
  readonly tries: number;
  readonly max_tries: number;
  readonly deadline?: string;
  readonly dependencies?: readonly string[];
  readonly dependency_results?: Readonly<Record<string, { readonly payload: unknown }>>;
}

/** A request as a responder gets it. */
export interface Asked {
  readonly message: Msg;
  readonly task: Task;
  /** The payload of the task, decoded. */
  readonly payload: unknown;
}

/** What a responder says. */
export interface Said {
  readonly body?: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Listens on a subject in a queue group and replies, unless `reply` gives `null`. Gives the connection that it uses. */
export async function respond(
  url: string,
  subject: string,
  reply: (asked: Asked) => Said | null | Promise<Said | null>,
): Promise<NatsConnection> {
  const connection = await natsConnection(url);
  const answer = async (message: Msg) => {
    const task = message.json<Task>();
    const payload = JSON.parse(Buffer.from(task.payload, "base64").toString());
    const said = await reply({ message, task, payload });
    if (said === null) return;
    const told = headers();
    for (const [name, value] of Object.entries(said.headers ?? {})) told.set(name, value);
    message.respond(said.body ?? "", { headers: told });
  };
  connection.subscribe(subject, {
    queue: "handlers",
    callback: (_error, message) => void answer(message),
  });
  await connection.flush();
  return connection;
}

/** Starts the example in Python, which listens when this resolves. */
export async function respondInPython(url: string, subject: string): Promise<void> {
  const child = spawn("python3", [pythonExample, url], {
    env: { ...process.env, REMOTE_SUBJECT: subject },
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  if (value !== `listening on ${subject}`) throw new Error(`The responder said ${value}.`);
}
