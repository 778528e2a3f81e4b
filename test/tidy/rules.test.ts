// Proves each tidy rule on small samples: it must name the bad file and leave the good one alone.
import { describe, expect, it } from "vitest";
import type { ProjectFile, Rule } from "./files.js";
import { testsAllRun, testsDoNotSleep } from "./honesty.js";
import { coreImportsOnlyHashes, coreIsPure } from "./purity.js";
import {
  importsHaveNoCycles,
  nothingIsExportedWholesale,
  roomsImportOnlyRoomsBelow,
  sourceImportsItselfByPath,
} from "./rooms.js";
import {
  filesAreShort,
  filesHaveTellingNames,
  lockfileHasNoAddresses,
  noRegistryIsNamed,
  nothingIsLeftOver,
  sourceFilesSayWhatTheyAreFor,
  sourcePrintsNothing,
} from "./wording.js";

/** `bad` has one problem in the file's last line; `good` has none. Both are `path → text`. */
type Sample = {
  rule: Rule;
  name: string;
  bad: Record<string, string>;
  good: Record<string, string>;
};

const registry = ["registry", "example", "com"].join(".");

const samples: Sample[] = [
  {
    name: "a lower room imports a higher one",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/engine/batching.ts": 'import { create } from "../client/create.js";' },
    good: { "src/client/create.ts": 'import { batch } from "../engine/batching.js";' },
  },
  {
    name: "a type import counts",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/core/job.ts": 'import type { Engine } from "../engine/engine.js";' },
    good: { "src/engine/engine.ts": 'import type { Job } from "../core/job.js";' },
  },
  {
    name: "a type named in place counts",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/core/job.ts": 'export type Held = import("../worker/lease.js").Held;' },
    good: { "src/worker/lease.ts": 'export type Held = import("../core/job.js").Job;' },
  },
  {
    name: "a re-export counts",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/contract/index.ts": 'export { connect } from "../service/connect.js";' },
    good: { "src/index.ts": 'export { connect } from "./service/connect.js";' },
  },
  {
    name: "worker and keeper do not know each other",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/worker/claim.ts": 'import { reap } from "../keeper/reaper.js";' },
    good: { "src/service/connect.ts": 'import { reap } from "../keeper/reaper.js";' },
  },
  {
    name: "a worker thread's file counts",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/client/create.ts": 'new URL("../worker/thread.js", import.meta.url);' },
    good: { "src/worker/isolate.ts": 'new URL("./thread.js", import.meta.url);' },
  },
  {
    name: "the engine contract knows no concrete engine",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/engine/engine.ts": 'import { open } from "./sqlite/engine.js";' },
    good: { "src/engine/sqlite/engine.ts": 'import { Engine } from "../engine.js";' },
  },
  {
    name: "the opener imports engines only when they are asked for",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/engine/open.ts": 'import { open } from "./sqlite/engine.js";' },
    good: { "src/engine/open.ts": 'export const load = () => import("./sqlite/engine.js");' },
  },
  {
    name: "engines share SQL, and not each other",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/engine/sqlite/claim.ts": 'import { claim } from "../memory/claim.js";' },
    good: { "src/engine/sqlite/claim.ts": 'import { claim } from "../sql/claim.js";' },
  },
  {
    name: "the root export holds no test code",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/index.ts": 'export { fakeClock } from "./testing/clock.js";' },
    good: { "src/testing/clock.ts": 'import { memory } from "../engine/memory/engine.js";' },
  },
  {
    name: "every file stands in a room",
    rule: roomsImportOnlyRoomsBelow,
    bad: { "src/attic/old.ts": "export const old = 1;" },
    good: { "src/keeper/reaper.ts": "export const reaper = 1;" },
  },
  {
    name: "the package names itself",
    rule: sourceImportsItselfByPath,
    bad: { "src/client/create.ts": 'import { decide } from "#millrace/core/decide.js";' },
    good: { "test/decide.test.ts": 'import { decide } from "#millrace/core/decide.js";' },
  },
  {
    name: "two files import each other",
    rule: importsHaveNoCycles,
    bad: {
      "src/core/job.ts": 'import { Event } from "./event.js";',
      "src/core/event.ts": 'import type { Job } from "./job.js";',
    },
    good: {
      "src/core/job.ts": 'import { Event } from "./event.js";',
      "src/core/event.ts": 'import type { Name } from "./name.js";',
      "src/core/name.ts": "export type Name = string;",
    },
  },
  {
    name: "a file exports all of another",
    rule: nothingIsExportedWholesale,
    bad: { "src/index.ts": 'export * from "./core/job.js";' },
    good: { "src/index.ts": 'export { type Job, evolve } from "./core/job.js";' },
  },
  {
    name: "core imports a package",
    rule: coreImportsOnlyHashes,
    bad: { "src/core/id.ts": 'import { ulid } from "ulid";' },
    good: { "src/client/id.ts": 'import { ulid } from "ulid";' },
  },
  {
    name: "core imports randomness",
    rule: coreImportsOnlyHashes,
    bad: { "src/core/id.ts": 'import { createHash, randomUUID } from "node:crypto";' },
    good: { "src/core/id.ts": 'import { createHash } from "node:crypto";' },
  },
  {
    name: "core loads a module of Node while it runs",
    rule: coreImportsOnlyHashes,
    bad: { "src/core/id.ts": 'export const load = () => import("node:fs");' },
    good: { "src/engine/open.ts": 'export const load = () => import("node:fs");' },
  },
  ...[
    "export const now = Date.now();",
    "export const now = new Date();",
    "export const now = performance.now();",
    "export const jitter = Math.random();",
    "export const user = process.env.USER;",
    "setTimeout(() => {}, 1);",
    "export async function decide() {}",
    "export const wait = await Promise.resolve();",
  ].map((text) => ({
    name: `core is impure: ${text}`,
    rule: coreIsPure,
    bad: { "src/core/decide.ts": text },
    good: {
      "src/core/decide.ts": "// Date.now() is for others.\nexport const at = new Date(0);",
      "src/core/job.ts": "export const name = (job: { process: string }) => job.process;",
      "src/worker/decide.ts": text,
    },
  })),
  {
    name: "a file is too long",
    rule: filesAreShort,
    bad: { "bench/main.ts": "\n".repeat(500).concat("export const last = 1;") },
    good: { "bench/main.ts": "\n".repeat(499).concat("export const last = 1;\n") },
  },
  {
    name: "a file is a bag",
    rule: filesHaveTellingNames,
    bad: { "test/support/helpers.ts": "export const help = 1;" },
    good: { "test/support/fake-clock.ts": "export const clock = 1;" },
  },
  {
    name: "a file does not say what it is for",
    rule: sourceFilesSayWhatTheyAreFor,
    bad: { "src/core/job.ts": 'import { Event } from "./event.js";' },
    good: {
      "src/core/job.ts": "// A job: what is known of it.\nexport const job = 1;",
      "src/core/event.ts": "/**\n * What can happen to a job.\n */\nexport const event = 1;",
    },
  },
  ...["// TODO: later", "export const job = {} as any;", "// @ts-ignore"].map((text) => ({
    name: `something is left over: ${text}`,
    rule: nothingIsLeftOver,
    bad: { "src/core/job.ts": `// A job.\n${text}` },
    good: { "src/core/job.ts": "export const job = {} as unknown; // as any other todo" },
  })),
  {
    name: "the library prints",
    rule: sourcePrintsNothing,
    bad: { "src/worker/claim.ts": 'console.log("claimed");' },
    good: { "src/cli/main.ts": 'console.log("claimed");' },
  },
  {
    name: "a file names a registry",
    rule: noRegistryIsNamed,
    bad: { "docs/install.md": `Install from https://${registry}/millrace` },
    good: { "docs/install.md": "The registry. It is your own. npm install millrace" },
  },
  {
    name: "npm's settings name a registry",
    rule: noRegistryIsNamed,
    bad: { ".npmrc": "engine-strict=false\nregistry=http://localhost:4873" },
    good: { ".npmrc": "omit-lockfile-registry-resolved=true" },
  },
  {
    name: "the lockfile holds an address",
    rule: lockfileHasNoAddresses,
    bad: { "package-lock.json": '{\n"resolved": "https://example.com/a.tgz" }' },
    good: { "package-lock.json": '{ "version": "1.0.0", "integrity": "sha512-0" }' },
  },
  ...[
    'it.only("runs", () => {});',
    'describe.skip("runs", () => {});',
    'test.concurrent.todo("runs");',
    'it.skipIf(true)("runs", () => {});',
    'it("runs", { retry: 2 }, () => {});',
    "context.skip();",
  ].map((text) => ({
    name: `a test does not run: ${text}`,
    rule: testsAllRun,
    bad: { "test/job.test.ts": text },
    good: {
      "test/job.test.ts": 'it("runs", () => defineJob({ retry: { maxTries: 2 } }));',
      "test/conformance.test.ts": 'context.skip("needs transactions: the engine has none");',
    },
  })),
  {
    name: "the runner retries",
    rule: testsAllRun,
    bad: { "vitest.config.ts": "export default { test: { retry: 2 } };" },
    good: { "vitest.config.ts": "export default { test: { testTimeout: 1 } };" },
  },
  ...[
    "await new Promise((resolve) => setTimeout(resolve, 50));",
    'const { setTimeout: sleep } = await import("node:timers/promises");',
    "Atomics.wait(cells, 0, 0, 50); // clock: this file is not allowed one",
  ].map((text) => ({
    name: `a test sleeps: ${text}`,
    rule: testsDoNotSleep,
    bad: { "test/job.test.ts": text },
    good: {
      "test/job.test.ts": "clock.setTimeout(50); // setTimeout(",
      "test/crash/kill.test.ts": "setTimeout(kill, 50); // clock: a real process has no fake one",
    },
  })),
  {
    name: "the real clock needs a reason",
    rule: testsDoNotSleep,
    bad: { "test/crash/kill.test.ts": "setTimeout(kill, 50);" },
    good: { "test/support/process.ts": "setTimeout(kill, 50); // clock: bounds a real process" },
  },
];

describe("a tidy rule", () => {
  it.for(samples)("finds that $name", ({ rule, bad, good }) => {
    const [finding, ...others] = rule(projectOf(bad));
    const path = finding?.path ?? "none";
    expect(Object.keys(bad)).toContain(path);
    expect(finding?.line).toBe(bad[path]?.split("\n").length);
    expect(others).toEqual([]);
    expect(rule(projectOf(good))).toEqual([]);
  });
});

function projectOf(texts: Record<string, string>): ProjectFile[] {
  return Object.entries(texts).map(([path, text]) => ({ path, text }));
}
