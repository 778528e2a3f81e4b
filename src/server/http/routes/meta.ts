/**
 * The routes about the server itself: whether it lives, whether it is ready, what it is.
 */
import { z } from "zod";
import { workerRows } from "../../../client/presence.js";
import { jobDefaults } from "../../../contract/settings.js";
import { namedBackoffs, retryDelayMs } from "../../../core/retry.js";
import { ok, type Route, route } from "../route.js";
import { listOf, timeOut, timeText } from "../wire/common.js";

const group = "Meta";

const readyOut = z
  .object({
    status: z.enum(["ready", "not_ready"]),
    checks: z.array(
      z.object({
        name: z.string(),
        status: z.enum(["ok", "failed"]),
        detail: z.string().optional(),
      }),
    ),
  })
  .meta({ id: "Readiness" });

const infoOut = z
  .object({
    name: z.literal("millrace"),
    version: z.string(),
    engine: z.object({
      kind: z.string(),
      url: z.string(),
      capabilities: z.record(z.string(), z.boolean()),
    }),
    auth: z.enum(["none", "token", "mtls"]),
    actor: z.string().meta({ description: "Whom the events of this caller's requests name." }),
    instance: z.string(),
    startedAt: timeOut,
    counts: z.object({
      jobs: z.number().int(),
      queues: z.number().int(),
      services: z.number().int(),
      workers: z.number().int(),
    }),
  })
  .meta({ id: "Info" });

const retryPolicyOut = z
  .object({
    name: z.string(),
    maxTries: z
      .number()
      .int()
      .meta({ description: "The tries of a job type that names no number." }),
    delaysMs: z.array(z.number()).meta({
      description:
        "The delays between tries; the last one repeats. Jitter moves each by up to 10 %.",
    }),
  })
  .meta({ id: "RetryPolicy" });

/** How many delays of a formula are shown. */
const delaysShown = 20;

/** The routes about the server itself. */
export const metaRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/healthz",
    operation: "health",
    group,
    summary: "Whether the process lives. Touches nothing.",
    needs: "nothing",
    answers: { 200: { description: "It lives.", body: z.object({ status: z.literal("ok") }) } },
    handle: async () => ok({ status: "ok" }),
  }),
  route({
    method: "get",
    path: "/readyz",
    operation: "ready",
    group,
    summary: "Whether the store can be used.",
    description: "The store is asked at most once a second; in between, its last answer counts.",
    needs: "nothing",
    answers: {
      200: { description: "It can.", body: readyOut },
      503: { description: "It cannot.", body: readyOut },
    },
    handle: async ({ backend }) => {
      const store = await backend.readiness.check();
      const isReady = store.status === "ok";
      const body = { status: isReady ? "ready" : "not_ready", checks: [store] };
      return { status: isReady ? 200 : 503, body };
    },
  }),
  route({
    method: "get",
    path: "/metrics",
    operation: "metrics",
    group,
    summary: "Metrics in the text format of Prometheus.",
    needs: "admin.read",
    answers: { 200: { description: "The metrics.", others: { "text/plain": "Prometheus text." } } },
    handle: async ({ backend: { metrics } }) => ({
      status: 200,
      text: (await metrics?.text()) ?? "",
      contentType: metrics?.contentType ?? "text/plain",
    }),
  }),
  route({
    method: "get",
    path: "/v1/info",
    operation: "info",
    group,
    summary: "The version, the store, who asks, and how much there is.",
    needs: "admin.read",
    answers: { 200: { description: "About the server.", body: infoOut } },
    handle: async ({ backend, caller }) => {
      const { engine, version, auth, instance, startedAt } = backend;
      const [counts, queues, workers] = await Promise.all([
        engine.query("counts", {}),
        engine.query("queues", {}),
        workerRows(engine),
      ]);
      return ok({
        ...{ name: "millrace", version, auth, actor: caller.actor, instance },
        engine: { ...place(engine.url), capabilities: engine.capabilities },
        startedAt: timeText(startedAt),
        counts: {
          jobs: counts.reduce((sum, { count }) => sum + count, 0),
          queues: queues.length,
          services: new Set([...counts, ...workers].map(({ service }) => service)).size,
          workers: workers.filter(({ fresh }) => fresh).length,
        },
      });
    },
  }),
  route({
    method: "get",
    path: "/v1/retry-policies",
    operation: "listRetryPolicies",
    group,
    summary: "The retry policies that have a name.",
    needs: "admin.read",
    answers: { 200: { description: "The policies.", body: listOf(retryPolicyOut) } },
    handle: async () => ok({ entries: retryPolicies() }),
  }),
];

/** The store's URL without what is secret in it. */
function place(url: string): { readonly kind: string; readonly url: string } {
  const kind = /^([a-z]+)/i.exec(url)?.[1]?.toLowerCase() ?? "unknown";
  const shown = url.replace(/\/\/[^/@]*@/, "//").replace(/\?.*$/, "");
  return { kind: kind === "postgresql" ? "postgres" : kind, url: shown };
}

function retryPolicies(): readonly unknown[] {
  const { maxTries } = jobDefaults;
  const listed = Object.entries(namedBackoffs).map(([name, { delaysMs }]) => {
    return { name, maxTries, delaysMs };
  });
  const delaysMs = Array.from({ length: delaysShown }, (_, index) =>
    retryDelayMs("exponential", index + 1, 0.5),
  );
  return [...listed, { name: "exponential", maxTries, delaysMs }];
}
