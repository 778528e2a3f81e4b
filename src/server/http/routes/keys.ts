/**
 * Concurrency keys: who holds them, who waits, and letting go of one that a lost worker blocks.
 */
import { z } from "zod";
import { Keys } from "../../../client/queues.js";
import { errorOut } from "../openapi.js";
import { notFound } from "../refusal.js";
import { ok, type Route, type RouteRequest, route } from "../route.js";
import { name, pageAnswer, pageOf, pageQuery } from "../wire/common.js";
import { keyBody, keyOut } from "../wire/operate.js";

const group = "Keys";

const keyParams = z.object({
  hash: z.string().regex(/^[0-9a-f]{8,128}$/, "must be the hash of a key, as lists show it"),
});

const missing = { description: "No job runs or waits under it.", body: errorOut };

/** The routes of keys. */
export const keyRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/keys",
    operation: "listKeys",
    group,
    summary: "The keys under which jobs run or wait.",
    needs: "admin.read",
    query: z.object({
      service: name("service").optional(),
      type: name("type").optional(),
      ...pageQuery,
    }),
    answers: {
      200: { description: "A page.", body: pageOf(keyOut), headers: { Link: "The next page." } },
    },
    handle: async (request) => {
      const { backend, query } = request;
      const { service, type, limit, offset } = query;
      const page = await backend.engine.query("keys", {
        limit,
        ...(service === undefined ? null : { service }),
        ...(type === undefined ? null : { type }),
        ...(offset === undefined ? null : { offset }),
      });
      return pageAnswer(page, request, keyBody);
    },
  }),
  route({
    method: "get",
    path: "/v1/keys/{hash}",
    operation: "getKey",
    group,
    summary: "A key, by its hash.",
    needs: "admin.read",
    params: keyParams,
    answers: { 200: { description: "The key.", body: keyOut }, 404: missing },
    handle: async (request) => ok(keyBody(await find(request))),
  }),
  route({
    method: "post",
    path: "/v1/keys/{hash}/release",
    operation: "releaseKey",
    group,
    summary: "Release a key that is blocked because a worker was lost; the lost jobs end as stale.",
    needs: "admin.mutate",
    params: keyParams,
    answers: {
      200: {
        description: "The jobs that ended; none when the key was not blocked.",
        body: z.object({ released: z.array(z.string()) }),
      },
      404: missing,
    },
    handle: async (request) => {
      const { backend, caller, params, requestId } = request;
      await find(request);
      const keys = new Keys(backend.services.operator(caller, requestId));
      return ok({ released: await keys.release({ hash: params.hash }).orThrow() });
    },
  }),
];

async function find({ backend, params }: RouteRequest<z.output<typeof keyParams>>) {
  const row = await backend.engine.query("key", { hash: params.hash });
  if (row === null) throw notFound("key", params.hash);
  return row;
}
