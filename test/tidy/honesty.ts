// The tidy rules that keep tests honest: each one runs, once, and waits for signals, not for time.
import { type Finding, isTest, type ProjectFile } from "./files.js";
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

const testFunctions = new Set(["it", "test", "describe", "suite"]);
const evasions = new Set(["only", "skip", "skipIf", "runIf", "todo", "fails", "retry"]);

/** Folders whose files talk to real processes and may need the real clock. */
const realClockFolders = /^test\/(?:crash|support)\//;
const realClockReason = /\/\/ clock: \S+/;

/** Every test runs, and a test that fails has failed. */
export function testsAllRun(files: readonly ProjectFile[]): Finding[] {
  return findSyntax(
    files.filter((file) => isTest(file) || file.path === "vitest.config.ts"),
    (node, _parent, file) =>
      evasiveMember(node) ?? evasiveOption(node) ?? evasiveSetting(node, file) ?? silentSkip(node),
    "let the test run; where an engine lacks a capability, call context.skip with its name and the reason",
  );
}

/** A test waits for a signal or moves a fake clock; a sleep is either too short or too long. */
export function testsDoNotSleep(files: readonly ProjectFile[]): Finding[] {
  const tests = files.filter(isTest);
  const remedy =
    "wait for a signal or move a fake clock; files in test/crash and test/support may give the reason in a comment `// clock: …` on the same line";
  const timers = findSyntax(tests, sleep, remedy);
  const modules = tests.flatMap((file) =>
    importsOf(file)
      .filter(({ specifier }) => /^(?:node:)?timers(?:\/promises)?$/.test(specifier))
      .map(({ specifier, line }) => ({
        path: file.path,
        line,
        problem: `imports ${specifier}`,
        remedy,
      })),
  );
  return [...timers, ...modules].filter((finding) => !hasReason(tests, finding));
}

function hasReason(files: readonly ProjectFile[], { path, line }: Finding): boolean {
  const text = files.find((file) => file.path === path)?.text.split("\n")[line - 1] ?? "";
  return realClockFolders.test(path) && realClockReason.test(text);
}

function sleep(node: SyntaxNode, parent: SyntaxNode | undefined): string | undefined {
  const member = memberName(node);
  if (member === "globalThis.setTimeout" || member === "Atomics.wait") return `uses ${member}`;
  const isTimer = nameOf(node) === "setTimeout" && isReference(node, parent);
  return isTimer ? "uses setTimeout" : undefined;
}

/** `it.only`, `describe.skip`, `test.concurrent.todo`. */
function evasiveMember(node: SyntaxNode): string | undefined {
  if (node.type !== "MemberExpression") return undefined;
  const property = nameOf(child(node, "property"));
  const isEvasion = property !== undefined && evasions.has(property);
  return isEvasion && isTestFunction(child(node, "object")) ? `uses .${property}` : undefined;
}

/** `it("…", { retry: 2 }, …)`. */
function evasiveOption(node: SyntaxNode): string | undefined {
  if (node.type !== "CallExpression" || !isTestFunction(child(node, "callee"))) return undefined;
  const options = children(node, "arguments").filter(({ type }) => type === "ObjectExpression");
  const names = options.flatMap((option) => children(option, "properties")).map(propertyName);
  const name = names.find((name) => name !== undefined && evasions.has(name));
  return name === undefined ? undefined : `sets ${name} for a test`;
}

/** `retry: 2` in the runner's settings. */
function evasiveSetting(node: SyntaxNode, file: ProjectFile): string | undefined {
  const isSetting = file.path === "vitest.config.ts" && propertyName(node) === "retry";
  return isSetting ? "sets retry for all tests" : undefined;
}

/** `context.skip()` without a word about the reason. */
function silentSkip(node: SyntaxNode): string | undefined {
  if (node.type !== "CallExpression" || children(node, "arguments").length > 0) return undefined;
  const callee = child(node, "callee");
  const isSkip =
    callee?.type === "MemberExpression" && nameOf(child(callee, "property")) === "skip";
  return isSkip ? "skips without a reason" : undefined;
}

function propertyName(node: SyntaxNode): string | undefined {
  return node.type === "Property" ? nameOf(child(node, "key")) : undefined;
}

/** Whether an expression starts at a test function: `it`, `it.concurrent`, `it.each([…])`. */
function isTestFunction(node: SyntaxNode | undefined): boolean {
  if (node === undefined) return false;
  if (node.type === "Identifier") return testFunctions.has(nameOf(node) ?? "");
  return isTestFunction(child(node, "object") ?? child(node, "callee") ?? child(node, "tag"));
}
