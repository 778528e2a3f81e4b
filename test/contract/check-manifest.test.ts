// Manifests from outside: everything that code can define passes the checks and comes back as it was, and a schema's
// check of a value comes to its end.
import { expect, it } from "vitest";
import { z } from "zod";
import { checkManifest } from "#millrace/contract/check-manifest.js";
import { defineJob, defineService, versions } from "#millrace/contract/define.js";
import { boundJobs, type ServiceContract } from "#millrace/contract/definition.js";
import { jsonSchemaCheck } from "#millrace/contract/json-schema-check.js";
import { manifest } from "#millrace/contract/manifest.js";
import type { Json } from "#millrace/core/json.js";

const node: z.ZodType = z.object({
  get next() {
    return node.optional();
  },
});
const texts = z.object({
  ...{ email: z.email(), uuid: z.uuid(), url: z.url(), jwt: z.jwt(), ulid: z.ulid() },
  ...{ ipv4: z.ipv4(), ipv6: z.ipv6(), cidr: z.cidrv6(), base64: z.base64(), emoji: z.emoji() },
  ...{ at: z.iso.datetime(), day: z.iso.date(), span: z.iso.duration(), phone: z.e164() },
  ...{ own: z.string().regex(/^(?<year>\d{4})-\w+$/), tags: z.record(z.string(), z.number()) },
});

const rich = defineService(
  "rich",
  {
    plain: defineJob({ payload: z.any() }),
    texts: defineJob({ payload: texts, result: z.union([node, z.tuple([z.literal(1)])]) }),
    "with.dots": versions(
      defineJob({ payload: z.object({}), retry: { backoff: () => 5 }, leaseMs: 1_000 }),
      defineJob({ payload: z.object({ to: z.string() }), version: 7, deadlineMs: 5 }),
    ),
    keyed: defineJob({
      payload: z.object({ origin: z.string(), secret: z.string() }),
      keyConcurrency: { key: ["forever", "/origin"], heartbeatTtlMs: 1_000 },
      queue: { name: "slow", maxActive: 3, maxQueuedPerKey: 4, whenFull: "coalesce", maxAgeMs: 9 },
      retry: { maxTries: 1, backoff: { kind: "exponential", factor: 3 } },
      retention: { completed: Number.POSITIVE_INFINITY, dead: 0 },
      secret: { payload: ["/secret"] },
      priority: -1_000,
    }),
    apart: defineJob({
      payload: z.object({}),
      isolate: { cpuSeconds: 5, mayLeaveProcesses: true },
      continuations: ["plain", "apart"],
      blockers: { first: "texts" },
      maxActive: 2,
      logs: false,
    }),
  },
  { retention: { failed: Number.POSITIVE_INFINITY }, encrypted: true },
);

/** Everything but a function of one's own, which cannot be written down. */
function settingsOf(contract: ServiceContract): object {
  const jobs = boundJobs(contract).map(({ type, queue, definition: { settings } }) => {
    const { backoff, ...others } = settings;
    const written = typeof backoff === "function" ? "default" : backoff;
    return [`${type}@${settings.version}`, { ...others, backoff: written, linesUpIn: queue }];
  });
  return Object.fromEntries(jobs);
}

it("takes what code can define, and gives the same settings back", () => {
  const back = checkManifest(manifest(rich));
  expect(settingsOf(back)).toEqual(settingsOf(rich));
  expect(back).toMatchObject({ encrypted: true, retention: rich.retention });
});

it("leaves alone what a later version may have added", () => {
  const { jobs, ...rest } = manifest(
    defineService("later", { a: defineJob({ payload: z.any() }) }),
  );
  const more = jobs.map((job) => ({ ...job, settings: { ...job.settings, colour: "red" } }));
  expect(checkManifest({ ...rest, jobs: more }).jobs).toHaveProperty("a");
});

it.each<[string, Json, unknown]>([
  ["nested repetitions", { pattern: "^(a+)+$" }, `${"a".repeat(60)}!`],
  ["alternatives that are the same", { pattern: "^(a|a)*$" }, `${"a".repeat(60)}!`],
  [
    "names of properties",
    { patternProperties: { "^(a+)+$": true } },
    { [`${"a".repeat(60)}!`]: 1 },
  ],
  ["many repetitions", { pattern: "a*a*a*a*a*a*b" }, "a".repeat(5_000)],
  ["references that double at each step", doubling(40), 1],
  ["a reference to itself", { $ref: "#" }, 1],
])("comes to the end of a check by %s", async (_, schema, value) => {
  const checked = await jsonSchemaCheck(schema)["~standard"].validate(value);
  expect(checked.issues?.[0]?.message).toMatch(/cannot be checked/);
});

function doubling(steps: number): Json {
  const twice = (next: number) => ({ allOf: [1, 2].map(() => ({ $ref: `#/$defs/d${next}` })) });
  const entries = Array.from({ length: steps }, (_, index) => [`d${index}`, twice(index + 1)]);
  return { $defs: { ...Object.fromEntries(entries), [`d${steps}`]: true }, $ref: "#/$defs/d0" };
}
