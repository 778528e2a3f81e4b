/**
 * Webhooks: who is told of the events of a service's jobs, and what became of the telling.
 */
import { z } from "zod";
import type { WebhookDelivery } from "../../../client/webhooks/stored-webhook.js";
import {
  type Webhook,
  Webhooks,
  type WebhookWithSecret,
} from "../../../client/webhooks/webhooks.js";
import { eventNames } from "../../../core/cloud-event.js";
import { given } from "../given.js";
import { checkNeed } from "../guard.js";
import { errorOut } from "../openapi.js";
import { ok, type Route, type RouteRequest, route } from "../route.js";
import { durationMs, listOf, name, timeOut, timeText } from "../wire/common.js";

const group = "Webhooks";

const hookParams = z.object({
  service: name("service"),
  id: z.string().regex(/^[0-9a-f]{4,64}$/, "must be the id of a webhook"),
});

const hookFields = {
  url: z.string().min(1).max(2_000),
  description: z.string().max(500).optional(),
  types: z.array(name("type")).min(1).max(100).optional(),
  events: z.array(z.enum(eventNames)).min(1).max(100).optional(),
  includePayloads: z
    .boolean()
    .optional()
    .meta({ description: "Needs admin.read, as does changing or sending one that has it." }),
  enabled: z.boolean().optional(),
};

const hookOut = z
  .object({
    id: z.string(),
    service: z.string(),
    url: z.string(),
    description: z.string().optional(),
    types: z.array(z.string()).optional(),
    events: z.array(z.string()),
    includePayloads: z.boolean(),
    enabled: z.boolean(),
    disabled: z.object({ at: timeOut, reason: z.enum(["caller", "failing", "gone"]) }).optional(),
    createdAt: timeOut,
    previousSecretUntil: timeOut.optional(),
  })
  .meta({ id: "Webhook" });

const withSecretOut = z.object({ webhook: hookOut, secret: z.string() }).meta({ id: "NewWebhook" });

const deliveryOut = z
  .object({
    eventId: z.string(),
    jobId: z.string(),
    event: z.string(),
    at: timeOut,
    tries: z.number().int(),
    outcome: z.enum(["delivered", "failed"]),
    status: z.number().int().optional(),
    error: z.string().optional(),
    durationMs: z.number(),
  })
  .meta({ id: "WebhookDelivery" });

const answerOut = z
  .object({
    delivered: z.boolean(),
    status: z.number().int().optional(),
    error: z.string().optional(),
    durationMs: z.number(),
  })
  .meta({ id: "DeliveryAnswer", description: "What the receiver made of it." });

const missing = { description: "There is no such webhook.", body: errorOut };
const hookAnswers = { 200: { description: "The webhook.", body: hookOut }, 404: missing } as const;

/** The routes of webhooks. */
export const webhookRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/webhooks/{service}",
    operation: "listWebhooks",
    group,
    summary: "The webhooks of a service, without their secrets.",
    needs: "admin.read",
    params: z.object({ service: name("service") }),
    answers: { 200: { description: "The webhooks.", body: listOf(hookOut) } },
    handle: async (request) => {
      const hooks = await (await hooksOf(request, request.params.service)).list().orThrow();
      return ok({ entries: hooks.map(hookBody) });
    },
  }),
  route({
    method: "post",
    path: "/v1/webhooks",
    operation: "createWebhook",
    group,
    summary: "Make a webhook. Its secret is shown this once.",
    needs: "admin.mutate",
    body: z
      .strictObject({
        service: name("service"),
        ...hookFields,
        secret: z.string().max(200).optional(),
      })
      .meta({ id: "CreateWebhook" }),
    answers: {
      201: {
        description: "Made.",
        body: withSecretOut,
        headers: { Location: "The path of the webhook." },
      },
    },
    handle: async (request) => {
      const { service, ...input } = request.body;
      checkPayloads(request, input);
      const hooks = await hooksOf(request, service);
      const made = await hooks.create(given(input)).orThrow();
      const Location = `/v1/webhooks/${service}/${made.webhook.id}`;
      return { status: 201, body: secretBody(made), headers: { Location } };
    },
  }),
  route({
    method: "get",
    path: "/v1/webhooks/{service}/{id}",
    operation: "getWebhook",
    group,
    summary: "A webhook.",
    needs: "admin.read",
    params: hookParams,
    answers: hookAnswers,
    handle: async (request) => {
      const hooks = await hooksOf(request, request.params.service);
      return ok(hookBody(await hooks.get(request.params.id).orThrow()));
    },
  }),
  route({
    method: "patch",
    path: "/v1/webhooks/{service}/{id}",
    operation: "changeWebhook",
    group,
    summary: "Change a webhook; one that is enabled again goes on from where it was.",
    needs: "admin.mutate",
    params: hookParams,
    body: z.strictObject({
      ...hookFields,
      url: hookFields.url.optional(),
      types: hookFields.types.nullable().meta({ description: "null stands for all types." }),
    }),
    answers: hookAnswers,
    handle: async (request) => {
      const { params, body } = request;
      const hooks = await hooksOf(request, params.service);
      const before = await hooks.get(params.id).orThrow();
      checkPayloads(request, { ...before, ...given(body) });
      return ok(hookBody(await hooks.update(params.id, given(body)).orThrow()));
    },
  }),
  route({
    method: "delete",
    path: "/v1/webhooks/{service}/{id}",
    operation: "deleteWebhook",
    group,
    summary: "Remove a webhook.",
    needs: "admin.mutate",
    params: hookParams,
    answers: { 204: { description: "Removed." }, 404: missing },
    handle: async (request) => {
      const hooks = await hooksOf(request, request.params.service);
      await hooks.delete(request.params.id).orThrow();
      return { status: 204 };
    },
  }),
  route({
    method: "post",
    path: "/v1/webhooks/{service}/{id}/rotate-secret",
    operation: "rotateWebhookSecret",
    group,
    summary: "Give a webhook a fresh secret; the one before signs, too, for the overlap.",
    needs: "admin.mutate",
    params: hookParams,
    body: z.strictObject({ overlapMs: durationMs.optional() }),
    answers: {
      200: { description: "The webhook and its new secret.", body: withSecretOut },
      404: missing,
    },
    handle: async (request) => {
      const hooks = await hooksOf(request, request.params.service);
      const rotated = await hooks.rotateSecret(request.params.id, given(request.body)).orThrow();
      return ok(secretBody(rotated));
    },
  }),
  route({
    method: "get",
    path: "/v1/webhooks/{service}/{id}/deliveries",
    operation: "listDeliveries",
    group,
    summary: "What became of the last events that were sent, newest first.",
    needs: "admin.read",
    params: hookParams,
    answers: { 200: { description: "The deliveries.", body: listOf(deliveryOut) }, 404: missing },
    handle: async (request) => {
      const hooks = await hooksOf(request, request.params.service);
      const entries = await hooks.deliveries(request.params.id).orThrow();
      return ok({ entries: entries.map(deliveryBody) });
    },
  }),
  route({
    method: "post",
    path: "/v1/webhooks/{service}/{id}/deliveries/{eventId}/redeliver",
    operation: "redeliver",
    group,
    summary: "Send one of those events again, now.",
    needs: "admin.mutate",
    params: hookParams.extend({ eventId: name("id") }),
    answers: {
      200: { description: "What the receiver made of it.", body: answerOut },
      404: missing,
    },
    handle: async (request) => {
      const { service, id, eventId } = request.params;
      const hooks = await hooksOf(request, service);
      checkPayloads(request, await hooks.get(id).orThrow());
      return ok(await hooks.redeliver(id, eventId).orThrow());
    },
  }),
  route({
    method: "post",
    path: "/v1/webhooks/{service}/{id}/test",
    operation: "testWebhook",
    group,
    summary: "Send a test event, now.",
    needs: "admin.mutate",
    params: hookParams,
    answers: {
      200: { description: "What the receiver made of it.", body: answerOut },
      404: missing,
    },
    handle: async (request) => {
      const hooks = await hooksOf(request, request.params.service);
      checkPayloads(request, await hooks.get(request.params.id).orThrow());
      return ok(await hooks.test(request.params.id).orThrow());
    },
  }),
];

/** Who gets payloads sent reads them, wherever they are sent to. */
function checkPayloads(
  { caller }: Pick<RouteRequest, "caller">,
  { includePayloads }: { readonly includePayloads?: boolean | undefined },
): void {
  if (includePayloads) checkNeed(caller, "admin.read");
}

async function hooksOf(
  { backend, caller, requestId }: Pick<RouteRequest, "backend" | "caller" | "requestId">,
  service: string,
): Promise<Webhooks> {
  return new Webhooks(await backend.services.client(service, caller, requestId));
}

function hookBody({ createdAt, disabled, previousSecretUntil, ...hook }: Webhook): unknown {
  return {
    ...hook,
    createdAt: timeText(createdAt),
    ...(disabled && { disabled: { ...disabled, at: timeText(disabled.at) } }),
    ...(previousSecretUntil !== undefined && {
      previousSecretUntil: timeText(previousSecretUntil),
    }),
  };
}

function secretBody({ webhook, secret }: WebhookWithSecret): unknown {
  return { webhook: hookBody(webhook), secret };
}

function deliveryBody({ at, ...delivery }: WebhookDelivery): unknown {
  return { ...delivery, at: timeText(at) };
}
