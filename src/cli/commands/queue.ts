/**
 * `millrace queue`: the queues of services, their limits and pauses.
 */
import type { Command } from "commander";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import type { Session } from "../session.js";
import type { Column } from "../table.js";
import { limitOrNone, wholeNumber } from "../values.js";

interface QueueAnswer {
  readonly service: string;
  readonly queue: string;
  readonly paused: boolean;
  readonly maxActive?: number;
  readonly waiting: number;
  readonly active: number;
}

interface PurgeAnswer {
  readonly matched: number;
  readonly removed: number;
  readonly remaining: number;
}

const columns: readonly Column<QueueAnswer>[] = [
  { title: "service", value: ({ service }) => service },
  { title: "queue", value: ({ queue }) => queue },
  {
    title: "state",
    value: ({ paused }) => (paused ? "paused" : "open"),
    paint: (text, { paused }, colors) => (paused ? colors.yellow(text) : text),
  },
  { title: "waiting", value: ({ waiting }) => waiting },
  { title: "active", value: ({ active }) => active },
  { title: "limit", value: ({ maxActive }) => maxActive },
];

/** Adds the commands. */
export function addQueue(program: Command, run: Run): void {
  const queue = group(program, "queue", "queues: list, create, limit, pause, purge");
  define<{ service?: string }>(queue, run, {
    words: "list",
    says: "list queues",
    examples: ["millrace queue list --service shop"],
    options: [option("--service <name>", "of this service")],
    run: async (session, { options: { service } }) => {
      const api = await session.api();
      const query = { service };
      const answer = await ask<{ entries: QueueAnswer[] }>(api, "GET", "/v1/queues", { query });
      session.output.list(answer, columns);
    },
  });
  define(queue, run, {
    words: "get <service> <queue>",
    says: "show a queue",
    examples: ["millrace queue get shop sendReceipt"],
    run: (session, { args }) => request(session, "GET", args),
  });
  define<{ maxActive?: number; paused?: boolean }>(queue, run, {
    words: "create <service> <queue>",
    says: "create a queue with settings, before the first job is in it",
    examples: ["millrace queue create shop mail --max-active 5"],
    options: [
      option("--max-active <number>", "how many of its jobs may run at once", wholeNumber(1)),
      option("--paused", "paused from the beginning"),
    ],
    run: async (session, { args: [service = "", queue = ""], options }) => {
      const body = { service, queue, ...options };
      print(session, await ask<QueueAnswer>(await session.api(), "POST", "/v1/queues", { body }));
    },
  });
  define<{ maxActive?: number | "none" }>(queue, run, {
    words: "set <service> <queue>",
    says: "change a queue's limit",
    examples: [
      "millrace queue set shop mail --max-active 10",
      "millrace queue set shop mail --max-active none",
    ],
    options: [
      option("--max-active <number>", "how many of its jobs may run at once, or none", limitOrNone),
    ],
    run: async (session, { args, options: { maxActive } }) => {
      if (maxActive === undefined) throw new Failure("usage", "Say what to set: --max-active.");
      await request(session, "PATCH", args, "", {
        maxActive: maxActive === "none" ? null : maxActive,
      });
    },
  });
  for (const verb of ["pause", "resume"] as const) {
    define(queue, run, {
      words: `${verb} <service> <queue>`,
      says: verb === "pause" ? "start no more of its jobs" : "go on with a paused queue",
      examples: [`millrace queue ${verb} shop mail`],
      run: (session, { args }) => request(session, "POST", args, `/${verb}`, {}),
    });
  }
  defineRemovals(queue, run);
}

function defineRemovals(queue: Command, run: Run): void {
  define<{ preview?: boolean }>(queue, run, {
    words: "purge <service> <queue>",
    says: "delete the jobs that wait in a queue; running ones stay",
    examples: ["millrace queue purge shop mail --preview", "millrace queue purge shop mail --yes"],
    destroys: true,
    options: [option("--preview", "only say how many there are")],
    run: (session, { args, options }) => purge(session, args, options.preview === true),
  });
  define<{ force?: boolean }>(queue, run, {
    words: "delete <service> <queue>",
    says: "delete a queue's settings; it must be empty",
    examples: ["millrace queue delete shop mail --yes"],
    destroys: true,
    options: [option("--force", "also if jobs are in it, which stay")],
    run: async (session, { args, options: { force } }) => {
      await session.confirm(`Delete the queue ${args.join("/")}?`);
      await ask(await session.api(), "DELETE", routeOf(args), { query: { force } });
      session.output.document({ deleted: true }, () => `${args.join("/")} deleted`);
    },
  });
}

async function purge(session: Session, args: readonly string[], isPreview: boolean): Promise<void> {
  const { output } = session;
  const api = await session.api();
  const round = (preview: boolean) => {
    const options = { body: { preview }, signal: session.signal };
    return ask<PurgeAnswer>(api, "POST", `${routeOf(args)}/purge`, options);
  };
  const { matched } = await round(true);
  if (isPreview) {
    output.document({ matched, preview: true }, () => `${matched} jobs wait.`);
    return;
  }
  await session.confirm(`Delete the ${matched} jobs that wait in ${args.join("/")}?`);
  let removed = 0;
  for (;;) {
    const answer = await round(false);
    removed += answer.removed;
    output.progress(`${removed} of ${matched}`);
    if (answer.remaining === 0 || answer.removed === 0) break;
  }
  output.document({ matched, removed }, () => `${removed} jobs deleted.`);
}

async function request(
  session: Session,
  method: string,
  args: readonly string[],
  action = "",
  body?: object,
): Promise<void> {
  const route = `${routeOf(args)}${action}`;
  const options = body === undefined ? {} : { body };
  print(session, await ask<QueueAnswer>(await session.api(), method, route, options));
}

function print({ output }: Session, queue: QueueAnswer): void {
  output.document(queue, () => output.table([queue], columns));
}

function routeOf([service = "", queue = ""]: readonly string[]): string {
  return path`/v1/queues/${service}/${queue}`;
}
