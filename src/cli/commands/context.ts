/**
 * `millrace context`: names for the servers and stores that one works with.
 */
import type { Command } from "commander";
import { contextNamed, type NamedContext, readContexts, writeContexts } from "../contexts.js";
import { define, group, type Run } from "../define.js";
import { Failure } from "../failure.js";

const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Adds the commands. */
export function addContext(program: Command, run: Run): void {
  const context = group(program, "context", "names for servers and stores");
  define(context, run, {
    words: "add <name>",
    says: "name a server or a store; a token is kept with it and never shown",
    examples: [
      "MILLRACE_TOKEN=… millrace context add live --server https://jobs.example",
      "millrace context add local --url file:millrace.db",
    ],
    run: async ({ given, output }, { args: [name = ""] }) => {
      if (!namePattern.test(name))
        throw new Failure(
          "usage",
          `"${name}" cannot be a name; use letters, digits, ".", "_", "-".`,
        );
      const { server, url } = given.flags;
      const token = given.flags.token ?? given.environment.token;
      if ((server === undefined) === (url === undefined))
        throw new Failure("usage", "Give one of --server and --url.");
      const added: NamedContext =
        server === undefined
          ? { ...(url !== undefined && { url }) }
          : { server, ...(token !== undefined && { token }) };
      const before = readContexts();
      const current = before.current ?? name;
      writeContexts({ current, contexts: { ...before.contexts, [name]: added } });
      output.document(shown(name, added, current), () => `${name} added`);
    },
  });
  define(context, run, {
    words: "use <name>",
    says: "use a context from now on",
    examples: ["millrace context use live"],
    run: async ({ output }, { args: [name = ""] }) => {
      const before = readContexts();
      const chosen = contextNamed(before, name);
      writeContexts({ ...before, current: name });
      output.document(shown(name, chosen, name), () => `${name} is in use`);
    },
  });
  define(context, run, {
    words: "list",
    says: "list contexts",
    examples: ["millrace context list"],
    run: async ({ output }) => {
      const { current, contexts } = readContexts();
      const entries = Object.entries(contexts).map(([name, one]) => shown(name, one, current));
      output.list({ entries }, [
        { title: "", value: ({ inUse }) => (inUse ? "*" : " ") },
        { title: "name", value: ({ name }) => name },
        { title: "goes to", value: ({ server, url }) => server ?? url, cuts: true },
        { title: "token", value: ({ hasToken }) => (hasToken ? "kept" : "") },
      ]);
    },
  });
  define(context, run, {
    words: "remove <name>",
    says: "forget a context",
    examples: ["millrace context remove live --yes"],
    destroys: true,
    run: async (session, { args: [name = ""] }) => {
      const before = readContexts();
      contextNamed(before, name);
      await session.confirm(`Forget the context ${name}?`);
      const { [name]: _, ...contexts } = before.contexts;
      const isCurrent = before.current === name;
      const { current } = before;
      writeContexts({ contexts, ...(current !== undefined && !isCurrent && { current }) });
      session.output.document({ removed: name }, () => `${name} removed`);
    },
  });
}

/** A context without its secrets: the token, and a password that a URL may hold. */
function shown(name: string, { server, url, token }: NamedContext, current: string | undefined) {
  return {
    name,
    inUse: name === current,
    ...(server !== undefined && { server: withoutPassword(server) }),
    ...(url !== undefined && { url: withoutPassword(url) }),
    hasToken: token !== undefined,
  };
}

function withoutPassword(url: string): string {
  return url.replace(/\/\/[^/@]*@/, "//");
}
