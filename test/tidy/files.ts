// Reads the project's files for the tidy rules, and says what a rule and a finding are.
import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** One file, under its path from the project's root with forward slashes. */
export type ProjectFile = { path: string; text: string };

/** Where a rule is broken, and what to do about it. */
export type Finding = { path: string; line: number; problem: string; remedy: string };

/** A rule looks at all files at once and names every place that breaks it. */
export type Rule = (files: readonly ProjectFile[]) => Finding[];

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Folders that no one writes by hand: those of .gitignore, and `generated` for what a tool has made and is kept. */
const generatedFolders = new Set([".git", "node_modules", "dist", "coverage", "generated"]);
const databaseFile = /\.(?:db|db-wal|db-shm|db-wake-ready|db-wake-ended|tgz)$/;
const codeFile = /\.(?:ts|tsx|mts|js|mjs|cjs)$/;
const codeFolder = /^(?:src|test|bench|examples|scripts)\//;

/** Every file of the project that is kept in version control. */
export function readProject(): ProjectFile[] {
  const files: ProjectFile[] = [];
  const folders = [root];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) {
        if (!generatedFolders.has(entry.name)) folders.push(path);
      } else if (entry.isFile() && !databaseFile.test(entry.name)) {
        files.push({
          path: relative(root, path).split(sep).join("/"),
          text: readFileSync(path, "utf8"),
        });
      }
    }
  }
  return files.sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Whether a file is TypeScript or JavaScript in one of the folders that hold code. */
export function isCode(file: ProjectFile): boolean {
  return codeFolder.test(file.path) && codeFile.test(file.path);
}

/** Whether a file is TypeScript or JavaScript of the package itself. */
export function isSource(file: ProjectFile): boolean {
  return file.path.startsWith("src/") && isCode(file);
}

/** Whether a file is TypeScript or JavaScript under test/. */
export function isTest(file: ProjectFile): boolean {
  return file.path.startsWith("test/") && isCode(file);
}

/** The line, counted from 1, on which a character of a text stands. */
export function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}

/** One finding for each match of a pattern in the files' text. */
export function findText(
  files: readonly ProjectFile[],
  pattern: RegExp,
  problem: (match: string) => string,
  remedy: string,
): Finding[] {
  const everywhere = new RegExp(
    pattern,
    pattern.flags.includes("g") ? pattern.flags : `${pattern.flags}g`,
  );
  return files.flatMap((file) =>
    [...file.text.matchAll(everywhere)].map((match) => ({
      path: file.path,
      line: lineAt(file.text, match.index),
      problem: problem(match[0]),
      remedy,
    })),
  );
}

/** A finding as one line that an editor can jump to. */
export function describeFinding({ path, line, problem, remedy }: Finding): string {
  return `${path}:${line} ${problem}: ${remedy}`;
}
