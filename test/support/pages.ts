// The documents and the code in them: what a page shows, and what it holds for tests in comments that nobody sees.
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

/** The project's root. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

export interface Page {
  /** From the project's root. */
  readonly path: string;
  readonly text: string;
}

export interface Block {
  readonly language: string;
  /** The line on which its code begins, from 0. */
  readonly line: number;
  readonly code: readonly string[];
  /** The example that it repeats, named by a comment before it. */
  readonly repeats: string | null;
  /** It stands in a comment `<!-- then … -->`: what a test does after the blocks before it. */
  readonly isHidden: boolean;
}

export interface Module {
  /** The file that it is written to, from the root of a user's project. */
  readonly path: string;
  /** Every line of code has the number that it has in the page, so that an error names the line of the page. */
  readonly lines: readonly string[];
}

export async function readPages(): Promise<readonly Page[]> {
  const inDocs = await readdir(join(root, "docs"), { recursive: true });
  const paths = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    ...inDocs.map((path) => join("docs", path)),
  ];
  const pages = paths.filter((path) => path.endsWith(".md")).sort();
  return Promise.all(
    pages.map(async (path) => ({ path, text: await readFile(join(root, path), "utf8") })),
  );
}

export function blocksOf({ text }: Page): readonly Block[] {
  const blocks: Block[] = [];
  const lines = text.split("\n");
  for (let line = 0; line < lines.length; line++) {
    const isHidden = lines[line] === "<!-- then";
    const language = isHidden ? "ts" : /^```(\w+)$/.exec(lines[line] ?? "")?.[1];
    if (language === undefined) continue;
    const end = lines.indexOf(isHidden ? "-->" : "```", line + 1);
    const repeats = /^<!-- the same as (\S+) -->$/.exec(lines[line - 1] ?? "")?.[1] ?? null;
    const code = lines.slice(line + 1, end);
    blocks.push({ language, line: line + 1, code, repeats, isHidden });
    line = end;
  }
  return blocks;
}

/**
 * The modules of a page. A block that begins with an import, or with a comment that names its file, begins a module; the
 * others go on with the one before.
 */
export function modulesOf(page: Page): readonly Module[] {
  const folder = page.path.replace(/\.md$/, "").replaceAll(/[^\w]+/g, "-");
  const modules: { readonly path: string; readonly lines: string[] }[] = [];
  for (const { language, line, code, isHidden } of blocksOf(page)) {
    if (language !== "ts") continue;
    const [first = ""] = code;
    const file = /^\/\/ ([\w-]+\.ts)\b/.exec(first)?.[1];
    const begins = file !== undefined || first.startsWith("import ");
    if (modules.length === 0 || (begins && !isHidden)) {
      const path = join(folder, file ?? `${modules.length + 1}.ts`);
      modules.push({ path, lines: [] });
    }
    const lines = modules.at(-1)?.lines ?? [];
    while (lines.length < line) lines.push("");
    lines.push(...code);
  }
  return modules;
}

const compilerOptions = {
  target: "es2023",
  module: "nodenext",
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noEmit: true,
  types: ["node"],
  skipLibCheck: true,
  moduleDetection: "force",
};

/** What the code of the documents imports, besides Millrace. */
const linked = [
  "zod",
  "vitest",
  "@types",
  "@nats-io",
  "@opentelemetry",
  "standardwebhooks",
  "pg",
  "better-sqlite3",
];

/** A folder that has Millrace and what its documents use installed, as a user's project has, and these modules. */
export async function userProject(modules: readonly Module[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-docs-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await mkdir(join(folder, "node_modules"));
  await symlink(root, join(folder, "node_modules", "millrace"));
  for (const name of linked) {
    await symlink(join(root, "node_modules", name), join(folder, "node_modules", name));
  }
  await writeFile(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  const settings = { compilerOptions, include: ["*/*.ts"], exclude: ["node_modules"] };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(settings));
  for (const { path, lines } of modules) {
    await mkdir(join(folder, dirname(path)), { recursive: true });
    await writeFile(join(folder, path), lines.join("\n"));
  }
  return folder;
}
