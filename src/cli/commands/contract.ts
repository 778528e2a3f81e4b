/**
 * `millrace contract`: the accepted contracts of services, and how a module's own stands to them.
 */
import type { Command } from "commander";
import type { ContractDiff } from "../../contract/diff.js";
import { manifest } from "../../contract/manifest.js";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import type { Session } from "../session.js";
import { ago } from "../words.js";
import { loadContract } from "../worker-module.js";

interface ContractRow {
  readonly service: string;
  readonly signature: string;
  readonly acceptedAt: string;
  readonly acceptedBy: string;
  readonly jobs: number;
}

interface DiffAnswer {
  readonly standing: "first" | "accepted" | "earlier" | "unreadable" | "update" | "migration";
  readonly diff?: ContractDiff;
  readonly migration?: string;
}

const standingTexts: { readonly [Standing in DiffAnswer["standing"]]: string } = {
  first: "No contract was accepted yet; this one would be the first.",
  accepted: "It is the accepted contract.",
  earlier: "It was accepted before the present one.",
  unreadable: "The accepted contract was written by a newer version of Millrace.",
  update: "It is an update: nobody has to be asked.",
  migration: "It is a migration: somebody has to accept it.",
};

/** Adds the commands. */
export function addContract(program: Command, run: Run): void {
  const contract = group(program, "contract", "contracts: export, compare, accept");
  define(contract, run, {
    words: "list",
    says: "list accepted contracts",
    examples: ["millrace contract list"],
    run: async (session) => {
      const answer = await ask<{ entries: ContractRow[] }>(
        await session.api(),
        "GET",
        "/v1/contracts",
      );
      session.output.list(answer, [
        { title: "service", value: ({ service }) => service },
        { title: "jobs", value: ({ jobs }) => jobs },
        { title: "accepted", value: ({ acceptedAt }) => ago(acceptedAt) },
        { title: "by", value: ({ acceptedBy }) => acceptedBy },
        { title: "signature", value: ({ signature }) => signature, cuts: true },
      ]);
    },
  });
  define(contract, run, {
    words: "get <service>",
    says: "print the accepted contract of a service as JSON",
    examples: ["millrace contract get shop"],
    run: async (session, { args: [service = ""] }) => {
      const found = await ask<object>(await session.api(), "GET", path`/v1/contracts/${service}`);
      session.output.document(found, () => JSON.stringify(found, null, 2));
    },
  });
  define(contract, run, {
    words: "export <module>",
    says: "print the contract of a module as JSON",
    examples: ["millrace contract export ./worker.ts > contract.json"],
    run: async ({ output }, { args: [module = ""] }) => {
      const own = manifest(await loadContract(module));
      output.document(own, () => JSON.stringify(own, null, 2));
    },
  });
  define(contract, run, {
    words: "diff <module>",
    says: "compare a module's contract with the accepted one; fails if it is a migration",
    examples: ["millrace contract diff ./worker.ts --server https://jobs.example"],
    run: async (session, { args: [module = ""] }) => diff(session, module),
  });
  define<{ migration?: string }>(contract, run, {
    words: "accept <module>",
    says: "make a module's contract the accepted one",
    examples: [
      "millrace contract accept ./worker.ts",
      "millrace contract accept ./worker.ts --migration 3f2a9c",
    ],
    options: [option("--migration <name>", "the name of the migration, as diff tells it")],
    run: async (session, { args: [module = ""], options: { migration } }) => {
      const own = manifest(await loadContract(module));
      const route = path`/v1/contracts/${own.service}/accept`;
      const body = { manifest: own, ...(migration !== undefined && { migration }) };
      const accepted = await ask<object>(await session.api(), "POST", route, { body });
      session.output.document(accepted, () => `The contract of ${own.service} was accepted.`);
    },
  });
}

async function diff(session: Session, module: string): Promise<void> {
  const own = manifest(await loadContract(module));
  const { output } = session;
  const route = path`/v1/contracts/${own.service}/diff`;
  const body = { manifest: own };
  const answer = await ask<DiffAnswer>(await session.api(), "POST", route, { body });
  output.document(answer, () => diffText(answer));
  if (answer.standing !== "migration") return;
  throw new Failure(
    "conflict",
    `Accept it with: millrace contract accept ${module} --migration ${answer.migration}`,
  );
}

function diffText({ standing, diff }: DiffAnswer): string {
  const changes = diff?.changes ?? [];
  return [
    standingTexts[standing],
    ...changes.map(({ kind, sentence }) => `- ${kind}: ${sentence}`),
  ].join("\n");
}
