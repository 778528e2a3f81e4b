// What the tidy rules need to know of a file's syntax: its imports, and a walk over its tree.
import { posix } from "node:path";
import { parseAst } from "vitest/node";
import { type Finding, lineAt, type ProjectFile } from "./files.js";

/** A node of the syntax tree (ESTree with TypeScript's own nodes). */
export type SyntaxNode = { type: string; start: number; end: number } & Record<string, unknown>;

/**
 * One reference from a file to a module. `dynamic` is `import()` and `new URL("…",
 * import.meta.url)`, the way worker threads are named. `names` are the names imported.
 */
export type Import = {
  specifier: string;
  line: number;
  kind: "static" | "type" | "dynamic";
  names: string[];
};

const trees = new WeakMap<ProjectFile, SyntaxNode>();

/** The syntax tree of a file, parsed once. */
function syntaxOf(file: ProjectFile): SyntaxNode {
  const known = trees.get(file);
  if (known !== undefined) return known;
  const lang = file.path.endsWith("x") ? "tsx" : "ts";
  const tree = parseAst(file.text, { lang }, file.path) as unknown as SyntaxNode;
  trees.set(file, tree);
  return tree;
}

/** Calls `visit` for every node of a tree, parents first. */
function walk(
  node: SyntaxNode,
  visit: (node: SyntaxNode, parent: SyntaxNode | undefined) => void,
  parent?: SyntaxNode,
): void {
  visit(node, parent);
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (isNode(child)) walk(child, visit, node);
    }
  }
}

/** One finding for each node in which `look` sees a problem. */
export function findSyntax(
  files: readonly ProjectFile[],
  look: (node: SyntaxNode, parent: SyntaxNode | undefined, file: ProjectFile) => string | undefined,
  remedy: string,
): Finding[] {
  return files.flatMap((file) => {
    const findings: Finding[] = [];
    walk(syntaxOf(file), (node, parent) => {
      const problem = look(node, parent, file);
      if (problem === undefined) return;
      findings.push({ path: file.path, line: lineAt(file.text, node.start), problem, remedy });
    });
    return findings;
  });
}

/** A child node, or undefined where the node has none under that name. */
export function child(node: SyntaxNode, name: string): SyntaxNode | undefined {
  const value = node[name];
  return isNode(value) ? value : undefined;
}

/** The child nodes in a list, empty where the node has no such list. */
export function children(node: SyntaxNode, name: string): SyntaxNode[] {
  const value = node[name];
  return Array.isArray(value) ? value.filter(isNode) : [];
}

/** The name of an identifier, or the value of a string literal used as a name. */
export function nameOf(node: SyntaxNode | undefined): string | undefined {
  if (node?.type === "Identifier" && typeof node.name === "string") return node.name;
  if (node?.type === "Literal" && typeof node.value === "string") return node.value;
  return undefined;
}

/** `Date.now` for the expression `Date.now`; undefined for anything that is not two names. */
export function memberName(node: SyntaxNode): string | undefined {
  if (node.type !== "MemberExpression") return undefined;
  const object = child(node, "object");
  const property = nameOf(child(node, "property"));
  if (object?.type !== "Identifier" || property === undefined) return undefined;
  return `${nameOf(object)}.${property}`;
}

/** Whether an identifier names a value in scope, and not a property, a key or a type. */
export function isReference(node: SyntaxNode, parent: SyntaxNode | undefined): boolean {
  if (node.type !== "Identifier" || parent === undefined) return false;
  if (parent.type.startsWith("TS") && parent.expression !== node) return false;
  const isName = parent.property === node || (parent.key === node && !parent.shorthand);
  return !isName || parent.computed === true;
}

/** Every module that a file refers to, type imports and re-exports included. */
export function importsOf(file: ProjectFile): Import[] {
  const imports: Import[] = [];
  walk(syntaxOf(file), (node) => {
    const reference = referenceOf(node);
    if (reference === undefined) return;
    imports.push({ line: lineAt(file.text, node.start), names: importedNames(node), ...reference });
  });
  return imports;
}

/** The project file that a relative specifier means, whether or not it exists. */
export function resolveSpecifier(from: ProjectFile, specifier: string): string {
  return posix.join(posix.dirname(from.path), specifier).replace(/\.(m?)js(x?)$/, ".$1ts$2");
}

function referenceOf(node: SyntaxNode): Pick<Import, "specifier" | "kind"> | undefined {
  switch (node.type) {
    case "ImportDeclaration":
    case "ExportNamedDeclaration":
    case "ExportAllDeclaration": {
      const specifier = nameOf(child(node, "source"));
      const isType = node.importKind === "type" || node.exportKind === "type";
      return specifier === undefined ? undefined : { specifier, kind: isType ? "type" : "static" };
    }
    case "TSImportType": {
      const specifier = nameOf(child(node, "source"));
      return specifier === undefined ? undefined : { specifier, kind: "type" };
    }
    case "ImportExpression": {
      const specifier = nameOf(child(node, "source"));
      return specifier === undefined ? undefined : { specifier, kind: "dynamic" };
    }
    case "NewExpression": {
      const [path, base] = children(node, "arguments");
      const specifier = nameOf(path);
      const isModule = nameOf(child(node, "callee")) === "URL" && base?.type === "MemberExpression";
      return specifier === undefined || !isModule ? undefined : { specifier, kind: "dynamic" };
    }
    default:
      return undefined;
  }
}

function importedNames(node: SyntaxNode): string[] {
  return children(node, "specifiers").map(
    (specifier) => nameOf(child(specifier, "imported") ?? child(specifier, "local")) ?? "*",
  );
}

function isNode(value: unknown): value is SyntaxNode {
  return typeof value === "object" && value !== null && "type" in value && "start" in value;
}
