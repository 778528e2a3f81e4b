/**
 * Named contexts: where a person's servers and stores are, kept in a file that only that person can read.
 */
import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { Failure, messageOf } from "./failure.js";

/** A place to talk to: a server with a token, or a store. */
export interface NamedContext {
  readonly server?: string;
  readonly url?: string;
  readonly token?: string;
}

/** What the file holds. */
export interface Contexts {
  readonly current?: string;
  readonly contexts: Readonly<Record<string, NamedContext>>;
}

const fileMode = 0o600;
const folderMode = 0o700;

/** Where the contexts are kept. */
function contextsPath(environment = process.env): string {
  const base = environment.XDG_CONFIG_HOME || join(homedir(), ".config");
  return join(base, "millrace", "contexts.json");
}

/** Reads the contexts; none if there is no file. */
export function readContexts(path = contextsPath()): Contexts {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return { contexts: {} };
    throw new Failure("failure", `The contexts cannot be read: ${messageOf(error)}`);
  }
  try {
    const { current, contexts } = JSON.parse(text) as Contexts;
    return { ...(current !== undefined && { current }), contexts: { ...contexts } };
  } catch {
    throw new Failure("failure", `${path} is damaged; mend it or remove it.`);
  }
}

/** Writes the contexts in one step, for their owner's eyes only. */
export function writeContexts(contexts: Contexts, path = contextsPath()): void {
  const draft = `${path}.${process.pid}`;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: folderMode });
    writeFileSync(draft, `${JSON.stringify(contexts, null, 2)}\n`, { mode: fileMode });
    chmodSync(draft, fileMode);
    renameSync(draft, path);
  } catch (error) {
    throw new Failure("failure", `The contexts cannot be written: ${messageOf(error)}`);
  }
}

/** The context of a name. */
export function contextNamed({ contexts }: Contexts, name: string): NamedContext {
  const context = Object.hasOwn(contexts, name) ? contexts[name] : undefined;
  if (context !== undefined) return context;
  const known = Object.keys(contexts).join(", ") || "none";
  throw new Failure("notFound", `There is no context ${name}; there are: ${known}.`);
}
