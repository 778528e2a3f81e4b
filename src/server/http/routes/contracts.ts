/**
 * Contracts: the accepted manifest of a service, how another one stands to it, and accepting it.
 */
import { z } from "zod";
import { ContractState } from "../../../client/contract.js";
import { contractStanding, isBroken, readAccepted } from "../../../contract/acceptance.js";
import { checkManifest } from "../../../contract/check-manifest.js";
import type { Manifest } from "../../../contract/manifest.js";
import { canonicalHash } from "../../../core/json.js";
import { recordId } from "../../../engine/record.js";
import { errorOut } from "../openapi.js";
import { badArgument, notFound, refused } from "../refusal.js";
import { bulkBytesMax } from "../request-body.js";
import { ok, type Route, type RouteRequest, route } from "../route.js";
import { anyJson, listOf, name, timeOut, timeText } from "../wire/common.js";
import { contractBody, contractOut, manifestShape } from "../wire/operate.js";

const group = "Contracts";

/** How many contracts are listed. */
const contractsMax = 1_000;

const serviceParams = z.object({ service: name("service") });
const missing = { description: "The service has no accepted contract.", body: errorOut };
const manifestIn = z.strictObject({ manifest: manifestShape });

const standingOut = z
  .object({
    standing: z.enum(["first", "accepted", "earlier", "unreadable", "update", "migration"]),
    diff: anyJson.optional(),
    migration: z.string().optional().meta({ description: "The name to accept the migration by." }),
  })
  .meta({ id: "ContractStanding" });

/** The routes of contracts. */
export const contractRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/contracts",
    operation: "listContracts",
    group,
    summary: "The services that have an accepted contract.",
    needs: "admin.read",
    answers: {
      200: {
        description: "The contracts.",
        body: listOf(
          z.object({
            service: z.string(),
            signature: z.string(),
            acceptedAt: timeOut,
            acceptedBy: z.string(),
            jobs: z.number().int(),
          }),
        ),
      },
    },
    handle: async ({ backend }) => {
      const ask = { prefix: recordId.contracts, limit: contractsMax };
      const records = await backend.engine.query("records", ask);
      const entries = records.flatMap(({ body }) => {
        const accepted = readAccepted(body);
        if (accepted === "unreadable" || isBroken(accepted)) return [];
        const { manifest, acceptedAt, acceptedBy } = accepted;
        const { service, signature, jobs } = manifest;
        return [
          { service, signature, acceptedAt: timeText(acceptedAt), acceptedBy, jobs: jobs.length },
        ];
      });
      return ok({ entries });
    },
  }),
  route({
    method: "get",
    path: "/v1/contracts/{service}",
    operation: "getContract",
    group,
    summary: "The accepted contract of a service.",
    needs: "admin.read",
    params: serviceParams,
    answers: { 200: { description: "The contract.", body: contractOut }, 404: missing },
    handle: async ({ backend, params: { service } }) => {
      const accepted = await backend.services.accepted(service);
      if (accepted === null) throw notFound("contract", service);
      return ok(contractBody(accepted));
    },
  }),
  route({
    method: "post",
    path: "/v1/contracts/{service}/diff",
    operation: "diffContract",
    group,
    summary: "How a manifest stands to the accepted contract.",
    needs: "admin.read",
    params: serviceParams,
    body: manifestIn,
    bodyBytesMax: bulkBytesMax,
    answers: { 200: { description: "How it stands.", body: standingOut } },
    handle: async (request) => {
      const { backend, params } = request;
      const manifest = manifestOf(request);
      const [record] = await backend.engine.records([recordId.contract(params.service)]);
      return ok(contractStanding(record ? readAccepted(record.body) : null, manifest));
    },
  }),
  route({
    method: "post",
    path: "/v1/contracts/{service}/accept",
    operation: "acceptContract",
    group,
    summary: "Make a manifest the accepted contract; a migration must be named.",
    needs: "admin.mutate",
    params: serviceParams,
    body: manifestIn.extend({ migration: z.string().optional() }),
    bodyBytesMax: bulkBytesMax,
    answers: {
      200: { description: "The accepted contract.", body: contractOut },
      409: {
        description: "It is a migration that was not named, or the contract kept changing.",
        body: errorOut,
      },
    },
    handle: async (request) => {
      const { backend, caller, params, body, requestId } = request;
      const manifest = manifestOf(request);
      const { runtime } = backend.services.operator(caller, requestId);
      const state = new ContractState({ ...runtime, service: params.service }, manifest);
      const outcome = await state.acceptNamed(body.migration).orThrow();
      backend.services.forget(params.service);
      if ("accepted" in outcome) return ok(contractBody(outcome.accepted));
      const { refused: standing } = outcome;
      if (standing.standing !== "migration") throw new Error("Only migrations have to be named.");
      const { migration, diff } = standing;
      const message = `This is a migration; accept it by its name ${migration}.`;
      const details = { migration, changes: diff.changes };
      throw refused("conflict", {
        reason: "migration_not_named",
        field: "migration",
        message,
        details,
      });
    },
  }),
];

/** The manifest of a request, which must be of the service that the path names, whole, and one that can be gone by. */
function manifestOf({
  params,
  body,
}: RouteRequest<z.output<typeof serviceParams>, undefined, z.output<typeof manifestIn>>): Manifest {
  const manifest = body.manifest as unknown as Manifest;
  const { signature, ...content } = manifest;
  if (manifest.service !== params.service) {
    const message = `The manifest is of ${manifest.service}, not of ${params.service}.`;
    throw badArgument("manifest_of_another_service", message, "manifest.service");
  }
  if (canonicalHash(content) !== signature) {
    const message = "The signature is not that of the manifest; export it anew.";
    throw badArgument("manifest_signature_wrong", message, "manifest.signature");
  }
  checkManifest(manifest);
  return manifest;
}
