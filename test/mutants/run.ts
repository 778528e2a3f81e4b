// `npm run mutants [name…]`: puts each mutant into a copy of the project, builds it and runs the tests
// that must notice. A mutant that no test kills is a rule that nothing proves.
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { apply, applyProblem, type Mutant, readMutants } from "./mutant.js";

/** What became of a mutant. */
type Fate =
  | { readonly fate: "killed"; readonly by: string }
  | { readonly fate: "survived" }
  | { readonly fate: "broken"; readonly problem: string };

interface Ending {
  readonly code: number | null;
  readonly output: string;
}

const projectRoot = fileURLToPath(new URL("../..", import.meta.url));
const copied = [
  "src",
  "test",
  "scripts",
  "examples",
  "bench",
  "package.json",
  "tsconfig.json",
  "tsconfig.build.json",
  "vitest.config.ts",
];

/** A mutant that makes the tests hang for this long is killed, too. */
const testsMaxMs = 5 * 60_000;

async function main(names: readonly string[]): Promise<number> {
  const mutants = chosen(names);
  const root = copyProject();
  try {
    const healthy = await testFailure(root, [...new Set(mutants.flatMap(({ tests }) => tests))]);
    if (healthy !== null) {
      console.log(`Without any mutant, the tests fail already: ${healthy}`);
      return 1;
    }
    let alive = 0;
    for (const mutant of mutants) {
      const startedAt = performance.now();
      const fate = await tryOut(mutant, root);
      const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
      console.log(`${fate.fate.padEnd(8)} ${mutant.name} (${seconds} s): ${tell(mutant, fate)}`);
      if (fate.fate !== "killed") alive++;
    }
    const verdict = alive === 0 ? "each is killed" : `${alive} are not killed`;
    console.log(`${mutants.length} mutants: ${verdict}.`);
    return alive === 0 ? 0 : 1;
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function chosen(names: readonly string[]): readonly Mutant[] {
  const mutants = readMutants();
  for (const name of names) {
    if (mutants.some((mutant) => mutant.name === name)) continue;
    const known = mutants.map((mutant) => mutant.name).join(", ");
    throw new Error(`There is no mutant "${name}"; there are ${known}.`);
  }
  return names.length === 0 ? mutants : mutants.filter(({ name }) => names.includes(name));
}

function copyProject(): string {
  const root = mkdtempSync(join(tmpdir(), "millrace-mutants-"));
  for (const name of copied) {
    const path = join(projectRoot, name);
    if (existsSync(path)) cpSync(path, join(root, name), { recursive: true });
  }
  symlinkSync(join(projectRoot, "node_modules"), join(root, "node_modules"));
  return root;
}

/** Breaks the copy, tests it, and mends it again. */
async function tryOut(mutant: Mutant, root: string): Promise<Fate> {
  const problem = applyProblem(mutant, root);
  if (problem !== null) return { fate: "broken", problem: `the patch does not apply: ${problem}` };
  apply(mutant, root, "in");
  try {
    const failure = await testFailure(root, mutant.tests);
    return failure === null ? { fate: "survived" } : { fate: "killed", by: failure };
  } catch (error) {
    return { fate: "broken", problem: error instanceof Error ? error.message : String(error) };
  } finally {
    apply(mutant, root, "out");
  }
}

/** Builds the copy and runs tests in it. Gives the first one that fails, or `null`. */
async function testFailure(root: string, tests: readonly string[]): Promise<string | null> {
  const build = await run(root, ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json"]);
  if (build.code !== 0) throw new Error(`it does not build: ${build.output}`);
  const vitest = ["node_modules/vitest/vitest.mjs", "run", ...tests];
  const { code, output } = await run(root, [...vitest, "--bail=1"]);
  if (code === 0) return null;
  if (code === null) return "the tests never came to an end";
  // A run that stops at the first failure may stop before it names it.
  const failed = failedTest(output) ?? failedTest((await run(root, vitest)).output);
  if (failed === undefined) throw new Error(`its tests failed without a name: ${output}`);
  return failed;
}

function failedTest(output: string): string | undefined {
  return /^\s*FAIL\s+(.+)$/m.exec(output)?.[1];
}

function run(root: string, parameters: readonly string[]): Promise<Ending> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, parameters, {
      cwd: root,
      env: { ...process.env, NO_COLOR: "1" },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: testsMaxMs,
    });
    let output = "";
    const take = (chunk: Buffer) => {
      output += chunk.toString();
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, output }));
  });
}

function tell({ breaks }: Mutant, fate: Fate): string {
  switch (fate.fate) {
    case "killed":
      return fate.by;
    case "survived":
      return `no test noticed that this was broken: ${breaks}`;
    case "broken":
      return fate.problem;
  }
}

let exitCode = 2;
try {
  exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
}
process.exitCode = exitCode;
