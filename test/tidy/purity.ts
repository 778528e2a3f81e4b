// The tidy rules that keep core pure: no clock, no randomness, no I/O, nothing asynchronous.
import { type Finding, isSource, type ProjectFile } from "./files.js";
import {
  child,
  children,
  findSyntax,
  importsOf,
  isReference,
  memberName,
  nameOf,
  type SyntaxNode,
} from "./syntax.js";

/** What core may use of node:crypto: hashes of what it was given, never fresh randomness. */
const hashFunctions = new Set(["createHash", "hash"]);

const impureMembers = new Set([
  "Date.now",
  "Math.random",
  "performance.now",
  "crypto.randomUUID",
  "crypto.getRandomValues",
]);

const impureGlobals = new Set([
  "process",
  "globalThis",
  "fetch",
  "setTimeout",
  "setInterval",
  "setImmediate",
  "queueMicrotask",
]);

/** Core stands on nothing: its own files, and hashes from node:crypto. */
export function coreImportsOnlyHashes(files: readonly ProjectFile[]): Finding[] {
  return files.filter(isCore).flatMap((file) =>
    importsOf(file)
      .filter(({ specifier }) => !specifier.startsWith("."))
      .flatMap(({ specifier, names, line }) => {
        const others = names.filter((name) => !hashFunctions.has(name));
        if (specifier === "node:crypto" && names.length > 0 && others.length === 0) return [];
        const problem = `core imports ${others.join(", ") || "everything"} from ${specifier}`;
        const remedy = `import only ${[...hashFunctions].join(", ")} from node:crypto, and take the rest as an argument`;
        return [{ path: file.path, line, problem, remedy }];
      }),
  );
}

/** The same arguments give the same answer: core reads no clock and rolls no dice. */
export function coreIsPure(files: readonly ProjectFile[]): Finding[] {
  return findSyntax(
    files.filter(isCore),
    impurity,
    "take time, ids and tokens as arguments, and leave I/O to the rooms above",
  );
}

function isCore(file: ProjectFile): boolean {
  return isSource(file) && file.path.startsWith("src/core/");
}

function impurity(node: SyntaxNode, parent: SyntaxNode | undefined): string | undefined {
  const member = memberName(node);
  if (member !== undefined && impureMembers.has(member)) return `core uses ${member}`;
  const name = nameOf(node);
  if (name !== undefined && impureGlobals.has(name) && isReference(node, parent)) {
    return `core uses ${name}`;
  }
  const callee = nameOf(child(node, "callee"));
  if (callee === "Date" && children(node, "arguments").length === 0) return "core uses new Date()";
  if (node.async === true) return "core has an async function";
  if (node.type === "AwaitExpression" || node.await === true) return "core awaits";
  return undefined;
}
