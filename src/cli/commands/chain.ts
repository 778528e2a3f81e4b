/**
 * `millrace chain`: jobs that continue one another, as one.
 */
import type { Command } from "commander";
import { ask, path } from "../api.js";
import { type ChainAnswer, chainText } from "../chain-text.js";
import { define, group, option, type Run } from "../define.js";
import { type FilterOptions, filterQuery } from "../filters.js";
import { type ListOptions, listOptions, printList } from "../lists.js";
import type { Column } from "../table.js";
import { durationMs, list, timeOrAgo } from "../values.js";
import { awaitChainEnd, checkTimeout, type WaitOptions, waitOptions } from "../wait.js";
import { ago, paintState } from "../words.js";
import { type CompleteOptions, complete, completeOptions } from "./job-complete.js";
import { defineChainStart } from "./job-create.js";

interface ChainRowAnswer {
  readonly id: string;
  readonly service: string;
  readonly type: string;
  readonly state: string;
  readonly currentType: string;
  readonly currentJobId: string;
  readonly createdAt: string;
}

const columns: readonly Column<ChainRowAnswer>[] = [
  { title: "id", value: ({ id }) => id },
  { title: "service", value: ({ service }) => service },
  { title: "type", value: ({ type }) => type },
  {
    title: "state",
    value: ({ state }) => state,
    paint: (text, { state }, colors) => paintState(text, state, colors),
  },
  { title: "now at", value: ({ currentType }) => currentType },
  { title: "created", value: ({ createdAt }) => ago(createdAt) },
];

/** Adds the commands. */
export function addChain(program: Command, run: Run): void {
  const chain = group(program, "chain", "chains of jobs: start, list, wait, complete, delete");
  defineChainStart(chain, run);
  define<FilterOptions & ListOptions>(chain, run, {
    words: "list",
    says: "list chains, newest first",
    examples: ["millrace chain list --service shop --state blocked"],
    options: [
      option("--service <name>", "of this service"),
      option("--type <name>", "whose first job is of this type"),
      option("--state <states>", "whose current job is in one of these states", list),
      option("--tag <tag>", "with this tag"),
      option("--since <time>", "started at or after this time, or this long ago", timeOrAgo),
      option("--until <time>", "started before this time, or this long ago", timeOrAgo),
      option("--text <part>", "with this in the id"),
      ...listOptions(),
    ],
    run: (session, { options }) =>
      printList(session, "/v1/chains", filterQuery(options), options, columns),
  });
  define(chain, run, {
    words: "get <id>",
    says: "show a chain and its jobs",
    examples: ["millrace chain get 01HZX…"],
    run: async (session, { args: [id = ""] }) => {
      const found = await ask<ChainAnswer>(await session.api(), "GET", path`/v1/chains/${id}`);
      session.output.document(found, () => chainText(found, session.output));
    },
  });
  define<{ timeout?: number }>(chain, run, {
    words: "wait <id>",
    says: "follow a chain to its end and print its output",
    examples: ["millrace chain wait 01HZX… --timeout 1h"],
    options: [option("--timeout <duration>", "how long to wait (default: for ever)", durationMs)],
    run: (session, { args: [id = ""], options }) => awaitChainEnd(session, id, options.timeout),
  });
  defineChanges(chain, run);
}

function defineChanges(chain: Command, run: Run): void {
  define<CompleteOptions & WaitOptions & { job?: string }>(chain, run, {
    words: "complete <id>",
    says: "complete a chain's current job without a worker",
    examples: [
      `millrace chain complete 01HZX… --result '{"approved":true}'`,
      `millrace chain complete 01HZX… --job 01HZY… --result '{"approved":true}'`,
      "millrace chain complete 01HZX… --continue-with ship --payload @order.json --delay 1h --wait",
    ],
    options: [
      option("--job <id>", "the job that this decides about; refused when the chain is at another"),
      ...waitOptions("the chain", "output"),
      ...completeOptions(),
    ],
    run: async (session, { args: [id = ""], options }) => {
      checkTimeout(options);
      const route = path`/v1/chains/${id}/complete`;
      const api = await session.api();
      const answer = await complete<{ state?: string }>(api, route, options, options.job);
      if (options.wait) return awaitChainEnd(session, id, options.timeout);
      session.output.document(answer, () => `${id} ${answer.state ?? "completed"}`);
    },
  });
  define<{ force?: boolean }>(chain, run, {
    words: "delete <id>",
    says: "delete all jobs of a chain",
    examples: ["millrace chain delete 01HZX… --yes"],
    destroys: true,
    options: [option("--force", "also if one of them is running")],
    run: async (session, { args: [id = ""], options: { force } }) => {
      await session.confirm(`Delete the chain ${id} with all its jobs?`);
      const route = path`/v1/chains/${id}`;
      const query = { force };
      const answer = await ask<{ deleted: unknown }>(await session.api(), "DELETE", route, {
        query,
      });
      session.output.document(answer, () => `${id} deleted`);
    },
  });
}
