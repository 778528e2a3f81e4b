/**
 * `millrace key`: concurrency keys, who holds them and who waits.
 */
import type { Command } from "commander";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import { type ListOptions, listOptions, printList } from "../lists.js";
import type { Column } from "../table.js";
import { fields } from "../words.js";

interface KeyAnswer {
  readonly service: string;
  readonly type: string;
  readonly key: string;
  readonly hash: string;
  readonly maxActive: number;
  readonly maxQueued: number;
  readonly whenFull: string;
  readonly active: readonly {
    readonly jobId: string;
    readonly state: string;
    readonly worker?: string;
  }[];
  readonly queued: readonly string[];
  readonly queuedCount: number;
  readonly blocked: boolean;
  readonly takeovers: number;
}

const columns: readonly Column<KeyAnswer>[] = [
  { title: "hash", value: ({ hash }) => hash },
  { title: "service", value: ({ service }) => service },
  { title: "type", value: ({ type }) => type },
  { title: "key", value: ({ key }) => key, cuts: true },
  { title: "active", value: ({ active, maxActive }) => `${active.length}/${maxActive}` },
  { title: "queued", value: ({ queuedCount, maxQueued }) => `${queuedCount}/${maxQueued}` },
  {
    title: "state",
    value: ({ blocked }) => (blocked ? "blocked" : ""),
    paint: (text, _, colors) => colors.red(text),
  },
];

/** Adds the commands. */
export function addKey(program: Command, run: Run): void {
  const key = group(program, "key", "concurrency keys: list them, release a blocked one");
  define<{ service?: string; type?: string } & ListOptions>(key, run, {
    words: "list",
    says: "list keys",
    examples: ["millrace key list --service shop"],
    options: [
      option("--service <name>", "of this service"),
      option("--type <name>", "of this type"),
      ...listOptions(),
    ],
    run: (session, { options }) => {
      const { service, type } = options;
      return printList(session, "/v1/keys", { service, type }, options, columns);
    },
  });
  define(key, run, {
    words: "get <hash>",
    says: "show who holds a key and who waits for it",
    examples: ["millrace key get 3f2a…"],
    run: async (session, { args: [hash = ""] }) => {
      const found = await ask<KeyAnswer>(await session.api(), "GET", path`/v1/keys/${hash}`);
      session.output.document(found, () => keyText(found, session.output.colors));
    },
  });
  define(key, run, {
    words: "release <hash>",
    says: "give a blocked key free, whose worker was lost",
    examples: ["millrace key release 3f2a… --yes"],
    destroys: true,
    run: async (session, { args: [hash = ""] }) => {
      await session.confirm(`Release the key ${hash}? The lost worker may still be at work.`);
      const route = path`/v1/keys/${hash}/release`;
      const answer = await ask<{ released: string[] }>(await session.api(), "POST", route, {
        body: {},
      });
      session.output.document(answer, () => answer.released.join("\n") || "Nothing held it.");
    },
  });
}

function keyText(key: KeyAnswer, colors: Parameters<typeof fields>[1]): string {
  const holders = key.active.map(
    ({ jobId, state, worker }) => `${jobId} (${state}${worker ? ` on ${worker}` : ""})`,
  );
  return fields(
    [
      ["key", key.key],
      ["hash", key.hash],
      ["job", `${key.service}/${key.type}`],
      ["state", key.blocked ? colors.red("blocked") : "open"],
      ["limit", `${key.maxActive} at once, ${key.maxQueued} waiting, when full ${key.whenFull}`],
      ["active", holders.join(", ") || "none"],
      ["queued", key.queued.join(", ") || "none"],
      ["takeovers", key.takeovers],
    ],
    colors,
  );
}
