// The documents are true: their code compiles against the package as users get it, what they repeat
// is what stands elsewhere, and their links lead somewhere.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { stateMachineDocument, stateMachinePath } from "../scripts/state-machine.js";
import { blocksOf, modulesOf, readPages, root, userProject } from "./support/pages.js";

const pages = await readPages();

describe("the documents", () => {
  it("hold TypeScript that compiles", async () => {
    const modules = pages.flatMap(modulesOf);
    expect(modules.length).toBeGreaterThan(5);
    const folder = await userProject(modules);
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
