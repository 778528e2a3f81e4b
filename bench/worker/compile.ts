// Compiles the worker process once per run, so that it holds the memory and takes the time that a user's
// compiled service would, without a loader of TypeScript in it.
import { execFile } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Workspace } from "../workspace.js";

const benchFolder = fileURLToPath(new URL("..", import.meta.url));
const projectFolder = dirname(benchFolder);
/** The files that run by themselves. */
const mainFiles = ["worker/process", "isolated/process", "isolated/nothing"] as const;
/** What the worker process imports by name, and where that is. */
const packages = {
  millrace: ".",
  zod: "node_modules/zod",
  pg: "node_modules/pg",
  "graphile-worker": "node_modules/graphile-worker",
  "pg-boss": "node_modules/pg-boss",
};
const compilerOptions = {
  rootDir: benchFolder,
  module: "nodenext",
  target: "es2023",
  verbatimModuleSyntax: "true",
  noCheck: "true",
  ignoreConfig: "true",
};

const compiled = new WeakMap<Workspace, Promise<string>>();

/** The path of a compiled file. */
export async function compiledFile(
  workspace: Workspace,
  file: (typeof mainFiles)[number],
): Promise<string> {
  const compiling = compiled.get(workspace) ?? compile(workspace.keptFolder());
  compiled.set(workspace, compiling);
  return join(await compiling, `${file}.js`);
}

async function compile(folder: string): Promise<string> {
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }\n');
  mkdirSync(join(folder, "node_modules"));
  for (const [name, path] of Object.entries(packages)) {
    symlinkSync(join(projectFolder, path), join(folder, "node_modules", name), "dir");
  }
  const compiler = join(projectFolder, "node_modules/typescript/bin/tsc");
  const options = Object.entries({ ...compilerOptions, outDir: folder }).flatMap(
    ([name, value]) => [`--${name}`, value],
  );
  const sources = mainFiles.map((file) => join(benchFolder, `${file}.ts`));
  await promisify(execFile)(process.execPath, [compiler, ...sources, ...options]);
  return folder;
}
