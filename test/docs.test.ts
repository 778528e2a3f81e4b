// The documents are true: their code compiles against the package as users get it, what they repeat
// is what stands elsewhere, and their links lead somewhere.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { stateMachineDocument, stateMachinePath } from "../scripts/state-machine.js";

const root = fileURLToPath(new URL("..", import.meta.url));

interface Page {
  /** From the project's root. */
  readonly path: string;
  readonly text: string;
}

interface Block {
  readonly language: string;
  /** The line on which its code begins, from 0. */
  readonly line: number;
  readonly code: readonly string[];
  /** The example that it repeats, named by a comment before it. */
  readonly repeats: string | null;
}

async function readPages(): Promise<readonly Page[]> {
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

function blocksOf({ text }: Page): readonly Block[] {
  const blocks: Block[] = [];
  const lines = text.split("\n");
  for (let line = 0; line < lines.length; line++) {
    const language = /^```(\w+)$/.exec(lines[line] ?? "")?.[1];
    if (language === undefined) continue;
    const end = lines.indexOf("```", line + 1);
    const repeats = /^<!-- the same as (\S+) -->$/.exec(lines[line - 1] ?? "")?.[1] ?? null;
    blocks.push({ language, line: line + 1, code: lines.slice(line + 1, end), repeats });
    line = end;
  }
  return blocks;
}

/**
 * The modules of a page. A block that begins with an import begins a module, the others go on with
 * the one before. Every line of code keeps its number, so that an error names the line of the page.
 */
function modulesOf(page: Page): readonly (readonly string[])[] {
  const modules: string[][] = [];
  for (const { language, line, code } of blocksOf(page)) {
    if (language !== "ts") continue;
    const isNew = modules.length === 0 || code[0]?.startsWith("import ");
    const module = isNew ? [] : (modules.at(-1) ?? []);
    if (isNew) modules.push(module);
    while (module.length < line) module.push("");
    module.push(...code);
  }
  return modules;
}

/** A folder that has Millrace, a schema library and the client of NATS installed, as a user's project has. */
async function userProject(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "millrace-docs-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await mkdir(join(folder, "node_modules"));
  await symlink(root, join(folder, "node_modules", "millrace"));
  const linked = ["zod", "vitest", "@types", "@nats-io", "@opentelemetry", "standardwebhooks"];
  for (const name of linked) {
    await symlink(join(root, "node_modules", name), join(folder, "node_modules", name));
  }
  await writeFile(join(folder, "package.json"), JSON.stringify({ type: "module" }));
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
  await writeFile(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions, include: ["*.ts"] }),
  );
  return folder;
}

const pages = await readPages();

describe("the documents", () => {
  it("hold TypeScript that compiles", async () => {
    const folder = await userProject();
    let modules = 0;
    for (const page of pages) {
      for (const module of modulesOf(page)) {
        modules += 1;
        const name = `${page.path.replaceAll(/[^\w]+/g, "-")}-${modules}.ts`;
        await writeFile(join(folder, name), module.join("\n"));
      }
    }
    expect(modules).toBeGreaterThan(5);
    const compiler = join(root, "node_modules", ".bin", "tsc");
    const compiling = promisify(execFile)(compiler, ["-p", folder], { cwd: folder });
    const { stdout } = await compiling.catch((failed: { stdout: string }) => failed);
    expect(stdout.split("\n").filter((line) => line.includes("error"))).toEqual([]);
  });

  it("repeat examples word for word", async () => {
    const repeating = pages.flatMap(blocksOf).filter(({ repeats }) => repeats !== null);
    expect(repeating.length).toBeGreaterThan(0);
    for (const { repeats, code } of repeating) {
      const example = await readFile(join(root, repeats ?? ""), "utf8");
      expect(code.join("\n").trim()).toBe(example.trim());
    }
  });

  it("link to what there is", () => {
    const broken = pages.flatMap(({ path, text }) =>
      [...text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)]
        .map(([, target = ""]) => join(dirname(path), target))
        .filter((target) => !existsSync(join(root, target)))
        .map((target) => `${path} links to ${target}`),
    );
    expect(broken).toEqual([]);
  });

  it("are all reached from the readme", () => {
    const reached = new Set<string>();
    const visit = (path: string): void => {
      const page = pages.find((candidate) => candidate.path === path);
      if (page === undefined || reached.has(path)) return;
      reached.add(path);
      for (const [, target = ""] of page.text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)) {
        visit(relative(root, join(root, dirname(path), target)));
      }
    };
    visit("README.md");
    expect(pages.map(({ path }) => path).filter((path) => !reached.has(path))).toEqual([]);
  });

  it("tell the state machine as the code has it", async () => {
    expect(await readFile(stateMachinePath, "utf8")).toBe(stateMachineDocument());
  });

  it("show every script of the package", async () => {
    const contributing = pages.find(({ path }) => path === "CONTRIBUTING.md")?.text ?? "";
    const { scripts } = JSON.parse(await readFile(join(root, "package.json"), "utf8")) as {
      readonly scripts: Readonly<Record<string, string>>;
    };
    const named = Object.keys(scripts).filter(
      (name) => name !== "prepare" && !name.startsWith("check:"),
    );
    const missing = named.filter(
      (name) => !new RegExp(`\`npm (?:run )?${name}\``).test(contributing),
    );
    expect(missing).toEqual([]);
  });
});
