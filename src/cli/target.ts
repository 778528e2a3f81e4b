/**
 * Which server or store a command works on, and with which token.
 */
import { type Contexts, contextNamed, type NamedContext } from "./contexts.js";
import { Failure } from "./failure.js";
import { type Given, levels, settings, settingValue } from "./settings.js";

/** Where a command goes. */
export type Target =
  | { readonly kind: "server"; readonly url: string; readonly token?: string }
  | { readonly kind: "store"; readonly url: string };

/**
 * The first level that names a server, a store or a context decides; then the context in use; then the default file.
 * A context brings its own token, so that one for another server is not sent there.
 */
export function targetOf(given: Given, readContexts: () => Contexts): Target {
  const flagToken = given.flags.token;
  for (const level of levels) {
    const { server, url, context } = given[level];
    const named = [server, url, context].filter((value) => value !== undefined);
    if (named.length > 1)
      throw new Failure(
        "usage",
        `Give one of a server, a url and a context, not several (${level}).`,
      );
    if (context !== undefined)
      return ofContext(contextNamed(readContexts(), context), flagToken, context);
    if (url !== undefined) return { kind: "store", url };
    if (server !== undefined) return ofServer(server, tokenFor(given, level));
  }
  const contexts = readContexts();
  if (contexts.current !== undefined)
    return ofContext(contextNamed(contexts, contexts.current), flagToken, contexts.current);
  return { kind: "store", url: settings.url.default };
}

/** A file that came with a folder may name any server: it gets no token but its own, or one that was typed for it. */
function tokenFor(given: Given, level: (typeof levels)[number]): string | undefined {
  return level === "file" ? (given.flags.token ?? given.file.token) : settingValue(given, "token");
}

function ofContext(context: NamedContext, flagToken: string | undefined, name: string): Target {
  if (context.server !== undefined) return ofServer(context.server, flagToken ?? context.token);
  if (context.url !== undefined) return { kind: "store", url: context.url };
  throw new Failure("usage", `The context ${name} names neither a server nor a store.`);
}

function ofServer(given: string, token: string | undefined): Target {
  if (!/^https?:\/\//i.test(given) || !URL.canParse(given))
    throw new Failure("usage", `${given} is not the URL of a server; give http://… or https://….`);
  const url = given.replace(/\/+$/, "");
  return { kind: "server", url, ...(token !== undefined && { token }) };
}
