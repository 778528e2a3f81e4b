/**
 * `millrace audit`: who changed settings.
 */
import type { Command } from "commander";
import { define, group, option, type Run } from "../define.js";
import { type ListOptions, listOptions, printList } from "../lists.js";
import type { Column } from "../table.js";
import { timeOrAgo } from "../values.js";
import { ago } from "../words.js";

interface AuditAnswer {
  readonly id: string;
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly service?: string;
  readonly target: string;
  readonly details?: object;
}

interface AuditOptions extends Omit<ListOptions, "offset"> {
  readonly service?: string;
  readonly action?: string;
  readonly actor?: string;
  readonly target?: string;
  readonly since?: string;
  readonly until?: string;
}

const columns: readonly Column<AuditAnswer>[] = [
  { title: "when", value: ({ at }) => ago(at) },
  { title: "actor", value: ({ actor }) => actor },
  { title: "action", value: ({ action }) => action },
  { title: "service", value: ({ service }) => service },
  { title: "target", value: ({ target }) => target, cuts: true },
  {
    title: "details",
    value: ({ details }) => (details === undefined ? "" : JSON.stringify(details)),
    cuts: true,
  },
];

/** Adds the commands. */
export function addAudit(program: Command, run: Run): void {
  const audit = group(program, "audit", "who changed settings");
  define<AuditOptions>(audit, run, {
    words: "list",
    says: "list who changed queues, keys, schedules, webhooks, contracts and tokens, newest first",
    examples: [
      "millrace audit list --service shop --since 7d",
      "millrace audit list --action queue.pause --json",
    ],
    options: [
      option("--service <name>", "of this service"),
      option("--action <name>", "of this kind, such as queue.pause"),
      option("--actor <name>", "by this actor, such as admin:anna"),
      option("--target <name>", "of this queue, schedule, webhook, token or key"),
      option("--since <time>", "at or after this time, or this long ago (1h)", timeOrAgo),
      option("--until <time>", "before this time, or this long ago", timeOrAgo),
      ...listOptions("cursor"),
    ],
    run: (session, { options }) => {
      const { service, action, actor, target, since, until } = options;
      const filter = { service, action, actor, target, since, until };
      return printList(session, "/v1/audit", filter, options, columns);
    },
  });
}
