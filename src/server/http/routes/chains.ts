/**
 * Chains: jobs that continue one another, seen and handled as one.
 */
import { z } from "zod";
import { completeChain } from "../../../client/chain-completion.js";
import {
  type ChainSnapshot,
  deleteChain,
  getChain,
  listChains,
  waitChain,
} from "../../../client/chains.js";
import { isEnded, type Job } from "../../../core/job.js";
import { redact } from "../../../core/secrets.js";
import { errorOut } from "../openapi.js";
import { type Refused, refused } from "../refusal.js";
import { ok, type Route, route } from "../route.js";
import {
  anyJson,
  cursorQuery,
  name,
  pageAnswer,
  pageOf,
  pageQuery,
  stateOut,
  statesIn,
} from "../wire/common.js";
import {
  chainRowOut,
  changedBody,
  changedJobOut,
  jobBody,
  jobOut,
  rowBody,
  rowOut,
} from "../wire/job.js";
import { createAnswers, createIn, createOne } from "./creates.js";
import { completeIn, completionOf, waitQuery } from "./job.js";
import { filterFields, filterOf, pageAskOf } from "./lists.js";

const group = "Chains";

const chainOut = z
  .object({
    id: z.string(),
    state: stateOut,
    current: jobOut,
    output: anyJson.optional(),
    jobs: z.array(rowOut),
    count: z.number().int(),
  })
  .meta({ id: "Chain" });

const changedChainOut = chainOut
  .extend({ current: changedJobOut })
  .meta({ id: "ChangedChain", description: "Callers without admin.read get it without output." });

const completeChainIn = completeIn.extend({
  jobId: name("id").optional().meta({
    description:
      "The job that the caller has decided about. Where the chain has come to another, nothing is completed.",
  }),
});

const chainParams = z.object({ id: name("id") });
const missing = { description: "There is no such chain.", body: errorOut };
const { service, type, tag, since, until, text } = filterFields;

/** The routes of chains. */
export const chainRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/chains",
    operation: "listChains",
    group,
    summary: "Chains, newest first, each with the job that it has come to.",
    needs: "admin.read",
    query: z.object({
      ...{ service, type, tag, since, until, text },
      state: statesIn.optional(),
      ...pageQuery,
      cursor: cursorQuery.optional(),
    }),
    answers: {
      200: {
        description: "A page.",
        body: pageOf(chainRowOut),
        headers: { Link: "The next page." },
      },
    },
    handle: async (request) => {
      const { backend, caller, query } = request;
      const ask = { service: "*", ...filterOf(query), ...pageAskOf(query) };
      const page = await listChains(backend.services.operator(caller), ask).orThrow();
      return pageAnswer(page, request, rowBody);
    },
  }),
  route({
    method: "post",
    path: "/v1/chains",
    operation: "startChain",
    group,
    summary: "Start a chain with its first job.",
    needs: "admin.mutate",
    headers: { "Idempotency-Key": "Makes the request repeatable for ten minutes." },
    body: createIn,
    answers: createAnswers,
    handle: (request) => createOne({ ...request, body: { ...request.body, chain: true } }),
  }),
  route({
    method: "get",
    path: "/v1/chains/{id}",
    operation: "getChain",
    group,
    summary: "A chain, with the job that it has come to.",
    needs: "admin.read",
    params: chainParams,
    answers: { 200: { description: "The chain.", body: chainOut }, 404: missing },
    handle: async ({ backend, caller, params }) => {
      const chain = await getChain(backend.services.operator(caller), params.id).orThrow();
      return ok(chainBody(chain));
    },
  }),
  route({
    method: "post",
    path: "/v1/chains/{id}/complete",
    operation: "completeChain",
    group,
    summary: "Complete the current job of a chain without a worker.",
    needs: "admin.mutate",
    params: chainParams,
    body: completeChainIn,
    answers: {
      200: { description: "The chain as it is now.", body: changedChainOut },
      404: missing,
      409: {
        description: "It has ended, or come to another job than the one that was decided about.",
        body: errorOut,
      },
      422: {
        description:
          "The result or the payload does not fit, or the next job cannot wait for what it names.",
        body: errorOut,
      },
    },
    handle: async ({ backend, caller, params, body }) => {
      const operator = backend.services.operator(caller);
      const before = await getChain(operator, params.id, "complete").orThrow();
      const client = await backend.services.client(before.current.service, caller);
      const outcome = completionOf(body);
      const { jobId = before.current.id } = body;
      await completeChain(client, params.id, ({ job, complete }) => {
        // The outcome is for one job. Somebody else may have continued the chain since it was decided.
        if (job.id !== jobId) throw notCurrent(params.id, job, jobId);
        return complete(job, () => outcome);
      }).orThrow();
      const chain = await getChain(operator, params.id).orThrow();
      return ok(chainBody(chain, (part) => changedBody(caller, part)));
    },
  }),
  route({
    method: "get",
    path: "/v1/chains/{id}/wait",
    operation: "waitForChain",
    group,
    summary: "Wait until a chain has ended, for up to 30 seconds at a time.",
    needs: "admin.read",
    params: chainParams,
    query: waitQuery,
    answers: {
      200: {
        description: "The chain as it is now, and whether it has ended.",
        body: z.object({ done: z.boolean(), chain: chainOut }),
      },
      404: missing,
    },
    handle: async ({ backend, caller, params, query: { timeoutMs }, signal }) => {
      const client = backend.services.operator(caller);
      await waitChain(client, params.id, { timeoutMs, signal: signal() });
      const chain = await getChain(client, params.id, "wait for").orThrow();
      return ok({ done: isEnded(chain.state), chain: chainBody(chain) });
    },
  }),
  route({
    method: "delete",
    path: "/v1/chains/{id}",
    operation: "deleteChain",
    group,
    summary: "Remove every job of a chain.",
    needs: "admin.mutate",
    params: chainParams,
    query: z.object({ force: z.boolean().default(false) }),
    answers: {
      200: {
        description: "How many jobs were removed.",
        body: z.object({ deleted: z.number().int() }),
      },
      404: missing,
      409: { description: "One of its jobs runs, or others wait for it.", body: errorOut },
    },
    handle: async ({ backend, caller, params, query }) => {
      const client = backend.services.operator(caller);
      return ok({ deleted: await deleteChain(client, params.id, query).orThrow() });
    },
  }),
];

/** The refusal of an outcome for a job that its chain has not come to, or not any more. */
function notCurrent(chainId: string, { id, type, state }: Job, jobId: string): Refused {
  const message = `Chain ${chainId} has come to job ${id} (${type}), and job ${jobId} is not its current one; look at the chain, and complete it with jobId ${id} if the outcome is meant for that.`;
  const details = { state, currentJobId: id, currentType: type };
  return refused("conflict", { reason: "job_not_current", field: "jobId", message, details });
}

/** A chain for the wire; `shown` gives of each of its parts what the caller may see. */
function chainBody(
  { current, jobs, output, ...chain }: ChainSnapshot,
  shown = (part: object): object => part,
): object {
  const told = output === undefined ? null : { output: redact(output, current.secret?.result) };
  return {
    ...shown({ ...chain, ...told }),
    current: shown(jobBody(current)),
    jobs: jobs.map((row) => shown(rowBody(row))),
  };
}
