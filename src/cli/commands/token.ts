/**
 * `millrace token`: who may use a server.
 */
import type { Command } from "commander";
import { ask, path } from "../api.js";
import { define, group, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import { printList } from "../lists.js";
import type { Column } from "../table.js";
import { durationMs, list } from "../values.js";
import { ago } from "../words.js";

interface TokenAnswer {
  readonly id: string;
  readonly name: string;
  readonly capabilities: readonly string[];
  readonly createdAt: string;
  readonly expiresAt?: string;
  readonly agent?: string;
}

const columns: readonly Column<TokenAnswer>[] = [
  { title: "id", value: ({ id }) => id },
  { title: "name", value: ({ name }) => name, cuts: true },
  { title: "may", value: ({ capabilities }) => capabilities.join(", "), cuts: true },
  { title: "created", value: ({ createdAt }) => ago(createdAt) },
  { title: "expires", value: ({ expiresAt }) => (expiresAt ? ago(expiresAt) : "never") },
  { title: "agent", value: ({ agent }) => agent },
];

/** Adds the commands. */
export function addToken(program: Command, run: Run): void {
  const token = group(program, "token", "tokens of the HTTP API: create, list, revoke");
  define<{ may?: readonly string[]; expires?: number; agent?: string }>(token, run, {
    words: "create <name>",
    says: "create a token; its secret is printed once and never again",
    examples: [
      "millrace token create dashboard --may admin.read,admin.stream --expires 90d",
      "millrace token create mailer --may work:shop",
    ],
    options: [
      option(
        "--may <capabilities>",
        "admin.read, admin.mutate, admin.stream, work:<service>, work:*",
        list,
      ),
      option(
        "--expires <duration>",
        "how long it counts (default: until it is revoked)",
        durationMs,
      ),
      option("--agent <name>", "the agent that it belongs to"),
    ],
    run: async (session, { args: [name = ""], options: { may, expires: expiresInMs, agent } }) => {
      if (may === undefined) throw new Failure("usage", "Say what it may do: --may admin.read.");
      const body = { name, capabilities: may, expiresInMs, agent };
      const api = await session.api();
      const made = await ask<TokenAnswer & { secret: string }>(api, "POST", "/v1/tokens", { body });
      session.output.document(made, () => made.secret);
      if (session.output.format === "text")
        session.output.note(`Token ${made.id} (${name}). Keep the secret; it is not shown again.`);
    },
  });
  define(token, run, {
    words: "list",
    says: "list tokens, without their secrets",
    examples: ["millrace token list"],
    run: (session) => printList(session, "/v1/tokens", {}, { all: true }, columns),
  });
  define(token, run, {
    words: "revoke <id>",
    says: "make a token worthless",
    examples: ["millrace token revoke 01HZX… --yes"],
    destroys: true,
    run: async (session, { args: [id = ""] }) => {
      await session.confirm(`Revoke the token ${id}? Whoever uses it is locked out.`);
      await ask(await session.api(), "DELETE", path`/v1/tokens/${id}`);
      session.output.document({ revoked: id }, () => `${id} revoked`);
    },
  });
}
