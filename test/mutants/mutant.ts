// A mutant: a patch that breaks one rule of the source, and the tests that must notice.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export interface Mutant {
  readonly name: string;
  readonly path: string;
  /** The rule that it breaks, as a sentence. */
  readonly breaks: string;
  /** The test files of which one must fail. */
  readonly tests: readonly string[];
}

const folder = fileURLToPath(new URL(".", import.meta.url));

/** All mutants, by name. */
export function readMutants(): readonly Mutant[] {
  const files = readdirSync(folder).filter((file) => file.endsWith(".patch"));
  return files.sort().map((file) => {
    const text = readFileSync(`${folder}${file}`, "utf8");
    const breaks = /^Breaks: (.+)$/m.exec(text)?.[1];
    const tests = /^Tests: (.+)$/m.exec(text)?.[1]?.split(" ");
    if (breaks === undefined || tests === undefined) {
      throw new Error(`${file} must begin with a line "Breaks: …" and a line "Tests: …".`);
    }
    return { name: file.replace(/\.patch$/, ""), path: `${folder}${file}`, breaks, tests };
  });
}

/** Why a mutant does not apply to the source in a folder any more, or `null` when it does. */
export function applyProblem({ path }: Mutant, root: string): string | null {
  return git(["apply", "--check", path], root);
}

/** Puts a mutant into the source, or takes it out again. */
export function apply({ path }: Mutant, root: string, direction: "in" | "out"): void {
  const problem = git(["apply", ...(direction === "out" ? ["--reverse"] : []), path], root);
  if (problem !== null) throw new Error(problem);
}

/** Gives what git complains about, or `null`. */
function git(parameters: readonly string[], root: string): string | null {
  try {
    execFileSync("git", parameters, { cwd: root, stdio: ["ignore", "ignore", "pipe"] });
    return null;
  } catch (error) {
    return String((error as { readonly stderr?: Buffer }).stderr ?? error).trim();
  }
}
