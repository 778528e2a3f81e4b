// The tidy rules about what files are called, how long they are and what must not stay in them.
import { posix } from "node:path";
import { type Finding, findText, isCode, isSource, type ProjectFile } from "./files.js";
import { child, findSyntax, isReference, nameOf } from "./syntax.js";

const fileLinesMax = 500;
const bagNames = new Set(["util", "utils", "helper", "helpers", "types"]);
const registryHost =
  /\b(?:registry\.[\w.-]+\.(?:org|com|net|io|dev|cloud|cn|internal|local)|npm\.pkg\.[\w-]+\.com)\b/i;

/** A file that has grown too long holds more than one thing. */
export function filesAreShort(files: readonly ProjectFile[]): Finding[] {
  return files.filter(isCode).flatMap(({ path, text }) => {
    const lines = text.replace(/\n$/, "").split("\n").length;
    if (lines <= fileLinesMax) return [];
    const problem = `${lines} lines, at most ${fileLinesMax} are allowed`;
    return [{ path, line: fileLinesMax + 1, problem, remedy: "split it by what its parts do" }];
  });
}

/** A name says what is inside; bags collect what belongs nowhere. */
export function filesHaveTellingNames(files: readonly ProjectFile[]): Finding[] {
  return files.filter(isCode).flatMap(({ path }) => {
    const bag = path.split("/").find((part) => bagNames.has(part.replace(/\..*$/, "")));
    if (bag === undefined) return [];
    const remedy = "name the file after what it does, or move its parts to where they are used";
    return [{ path, line: 1, problem: `"${bag}" says nothing`, remedy }];
  });
}

/** Whoever opens a file of src/ reads first what it is for. */
export function sourceFilesSayWhatTheyAreFor(files: readonly ProjectFile[]): Finding[] {
  return files.filter(isSource).flatMap(({ path, text }) => {
    const opening = /^(?:#!.*\n)?(?:\/\/|\/\*)([^\n]*(?:\n\s*(?:\/\/|\*)[^\n]*)*)/.exec(text);
    const words = opening?.[1]?.match(/[A-Za-z]{2,}/g) ?? [];
    if (words.length >= 3) return [];
    const remedy = "begin the file with a comment that says in a sentence what it is for";
    return [{ path, line: 1, problem: "no opening comment", remedy }];
  });
}

/** Work is finished or written down elsewhere, and the type checker is not silenced. */
export function nothingIsLeftOver(files: readonly ProjectFile[]): Finding[] {
  const code = files.filter((file) => isCode(file) && !showsWhatIsForbidden(file));
  return [
    ...findText(
      code,
      /\b(?:TODO|FIXME|XXX)\b/,
      (match) => `"${match}" left in the code`,
      "finish the work, or describe the limit in the docs",
    ),
    ...findText(
      code,
      /@ts-(?:ignore|nocheck)\b/,
      (match) => `${match} silences the type checker`,
      "fix the type; in a test of types, use @ts-expect-error",
    ),
    ...findSyntax(
      code,
      (node) =>
        node.type === "TSAsExpression" && child(node, "typeAnnotation")?.type === "TSAnyKeyword"
          ? "cast to any"
          : undefined,
      "name the type, or narrow from unknown",
    ),
  ];
}

/** A library is quiet: only the command line prints. */
export function sourcePrintsNothing(files: readonly ProjectFile[]): Finding[] {
  return findSyntax(
    files.filter((file) => isSource(file) && !file.path.startsWith("src/cli/")),
    (node, parent) =>
      nameOf(node) === "console" && isReference(node, parent) ? "writes to the console" : undefined,
    "use the logger that the caller gave",
  );
}

/** Packages come from wherever the reader's npm gets them. */
export function noRegistryIsNamed(files: readonly ProjectFile[]): Finding[] {
  return [
    ...findText(
      files,
      registryHost,
      (match) => `names the registry ${match}`,
      "leave the registry to the reader's own npm settings",
    ),
    ...findText(
      files.filter(({ path }) => posix.basename(path) === ".npmrc"),
      /^.*(?:registry|_auth\w*|_password)\s*=/m,
      () => "sets a registry or its credentials",
      "leave both to the reader's own npm settings",
    ),
  ];
}

/** The lockfile pins versions and their hashes, and no addresses. */
export function lockfileHasNoAddresses(files: readonly ProjectFile[]): Finding[] {
  return findText(
    files.filter(({ path }) => posix.basename(path) === "package-lock.json"),
    /"resolved":\s*"[a-z+]+:/,
    () => "names the address of a package",
    "keep omit-lockfile-registry-resolved=true in .npmrc and run npm install again",
  );
}

/** The rules and their samples have to spell out what they forbid. */
function showsWhatIsForbidden({ path }: ProjectFile): boolean {
  return path.startsWith("test/tidy/");
}
