// The tidy rules about imports: which room may know which, and that nothing goes in circles.
import { type Finding, isCode, isSource, type ProjectFile } from "./files.js";
import { findSyntax, type Import, importsOf, resolveSpecifier } from "./syntax.js";

const upToEngine = ["core", "contract", "engine"];
const upToClient = [...upToEngine, "client"];
const upToService = [...upToClient, "worker", "keeper", "service"];
const upToServer = [...upToService, "fleet", "server"];
const concreteEngines = ["engine/memory", "engine/sqlite", "engine/postgres", "engine/nats"];

/**
 * The rooms of src/ and what each may import besides itself. Rooms that do the work hold the
 * contract in `engine` and never name a concrete one, so that engines stay equal and their
 * drivers optional.
 */
const roomTable: Readonly<Record<string, readonly string[]>> = {
  core: [],
  contract: ["core"],
  engine: ["core", "contract"],
  "engine/sql": upToEngine,
  "engine/memory": upToEngine,
  "engine/sqlite": [...upToEngine, "engine/sql"],
  "engine/postgres": [...upToEngine, "engine/sql"],
  "engine/projection": [...upToEngine, "engine/sql", "engine/sqlite", "engine/postgres"],
  "engine/nats": [...upToEngine, "engine/projection"],
  client: upToEngine,
  worker: upToClient,
  keeper: upToClient,
  service: upToService,
  fleet: upToService,
  // It speaks NATS, and makes an admin runtime of the engine on NATS and its projection.
  server: [...upToServer, "engine/nats", "engine/projection"],
  cli: [...upToServer, ...concreteEngines, "conformance"],
  testing: [...upToService, ...concreteEngines],
  conformance: [...upToService, ...concreteEngines],
  "handler.ts": upToService,
  "index.ts": [...upToServer, ...concreteEngines],
  "server.ts": upToServer,
  "nats.ts": [...upToServer, ...concreteEngines, "engine/projection"],
};

/** The one file that turns a URL into an engine, and so names each of them, by `import()`. */
const engineOpener = "src/engine/open.ts";

/** The room that a file of src/ stands in: its folder, and for engines the one below, too. */
function roomOf(path: string): string {
  const [, first = "", second = "", third] = path.split("/");
  return first === "engine" && third !== undefined ? `engine/${second}` : first;
}

/** Data goes one way through the rooms: a file imports only its own room and those below. */
export function roomsImportOnlyRoomsBelow(files: readonly ProjectFile[]): Finding[] {
  return files.filter(isSource).flatMap((file) => {
    const room = roomOf(file.path);
    const allowed = roomTable[room];
    if (allowed === undefined) {
      const remedy =
        "move the file into a room, or add its room to roomTable in test/tidy/rooms.ts";
      return [{ path: file.path, line: 1, problem: `"${room}" is no room`, remedy }];
    }
    return relativeImports(file).flatMap((reference) => {
      const target = roomOf(reference.target);
      if (target === room || allowed.includes(target)) return [];
      const opensEngine = file.path === engineOpener && concreteEngines.includes(target);
      if (opensEngine && reference.kind === "dynamic") return [];
      const remedy = opensEngine
        ? "import the engine with import(), so that its driver stays optional"
        : `${room} may import only ${allowed.join(", ") || "its own files"}; move the code or pass it in`;
      const problem = `${room} imports ${target} (${reference.specifier})`;
      return [{ path: file.path, line: reference.line, problem, remedy }];
    });
  });
}

/** The package does not import itself by name: within src/ paths are relative. */
export function sourceImportsItselfByPath(files: readonly ProjectFile[]): Finding[] {
  return files.filter(isSource).flatMap((file) =>
    importsOf(file)
      .filter(({ specifier }) => /^(?:#?millrace)(?:\/|$)/.test(specifier))
      .map(({ specifier, line }) => ({
        path: file.path,
        line,
        problem: `imports ${specifier}`,
        remedy: "import the file by its relative path",
      })),
  );
}

/** No file of src/ reaches itself through its imports, type imports included. */
export function importsHaveNoCycles(files: readonly ProjectFile[]): Finding[] {
  const graph = new Map(files.filter(isSource).map((file) => [file.path, relativeImports(file)]));
  const findings: Finding[] = [];
  const finished = new Set<string>();
  const trail: string[] = [];

  function visit(path: string): void {
    if (finished.has(path)) return;
    trail.push(path);
    for (const { target, line } of graph.get(path) ?? []) {
      const start = trail.indexOf(target);
      if (start === -1) {
        visit(target);
        continue;
      }
      const circle = [...trail.slice(start), target].join(" → ");
      const remedy = "move what both need into a file that imports neither";
      findings.push({ path, line, problem: `import cycle ${circle}`, remedy });
    }
    trail.pop();
    finished.add(path);
  }

  for (const path of graph.keys()) visit(path);
  return findings;
}

/** Names are exported one by one, so that a reader sees what a file gives. */
export function nothingIsExportedWholesale(files: readonly ProjectFile[]): Finding[] {
  return findSyntax(
    files.filter(isCode),
    (node) => (node.type === "ExportAllDeclaration" ? "export *" : undefined),
    "export the names one by one",
  );
}

function relativeImports(file: ProjectFile): (Import & { target: string })[] {
  return importsOf(file)
    .filter(({ specifier }) => specifier.startsWith("."))
    .map((reference) => ({ ...reference, target: resolveSpecifier(file, reference.specifier) }));
}
