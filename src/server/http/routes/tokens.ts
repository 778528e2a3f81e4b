/**
 * Tokens: making, listing and revoking them. Nobody can give what they do not have.
 */
import { z } from "zod";
import { leaveAuditEvent } from "../../../client/audit.js";
import { pageMax } from "../../../engine/query.js";
import { type Caller, type Capability, may } from "../caller.js";
import { given } from "../given.js";
import { errorOut } from "../openapi.js";
import { badArgument, notFound, refused } from "../refusal.js";
import { ok, type Route, route } from "../route.js";
import type { NewToken, Token } from "../tokens.js";
import { durationMs, name, partOf, time, timeOut, timeText } from "../wire/common.js";

const group = "Tokens";

const capability = z
  .string()
  .regex(
    /^(admin\.(read|mutate|stream)|work:(\*|[A-Za-z0-9-][A-Za-z0-9_-]{0,63}))$/,
    "must be admin.read, admin.mutate, admin.stream, work:<service> or work:*",
  );

const tokenId = z.string().regex(/^[0-9a-f]{16}$/, "must be the id of a token");

const tokenOut = z
  .object({
    id: z.string(),
    name: z.string(),
    capabilities: z.array(z.string()),
    createdAt: timeOut,
    createdBy: z.string(),
    expiresAt: timeOut.optional(),
    agent: z.string().optional(),
  })
  .meta({ id: "Token" });

const tokenIn = z.strictObject({
  name: name("instance"),
  capabilities: z.array(capability).min(1).max(100),
  expiresInMs: durationMs.min(1).optional(),
  expiresAt: time.optional(),
  agent: name("type").optional(),
});

/** The routes of tokens. */
export const tokenRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/tokens",
    operation: "listTokens",
    group,
    summary: "Tokens, without their secrets.",
    description: "One that has expired is listed for seven more days.",
    needs: "admin.mutate",
    query: z.object({
      limit: z.number().int().min(1).max(pageMax).default(pageMax),
      cursor: tokenId.optional().meta({ description: "As nextCursor of an earlier answer." }),
    }),
    answers: {
      200: { description: "A page.", body: partOf(tokenOut), headers: { Link: "The next page." } },
    },
    handle: async ({ backend, query, path }) => {
      const { entries, nextCursor } = await backend.tokens.list(given(query));
      const body = { entries: entries.map(tokenBody) };
      if (nextCursor === undefined) return ok(body);
      const Link = `<${path}?limit=${query.limit}&cursor=${nextCursor}>; rel="next"`;
      return ok({ ...body, nextCursor }, { Link });
    },
  }),
  route({
    method: "post",
    path: "/v1/tokens",
    operation: "createToken",
    group,
    summary: "Make a token. Its secret is shown this once.",
    description:
      "A caller can give only what it has itself: its capabilities, no other agent than its own, and no more time.",
    needs: "admin.mutate",
    body: tokenIn,
    answers: {
      201: {
        description: "The token.",
        body: tokenOut.extend({ secret: z.string() }).meta({ id: "NewToken" }),
      },
    },
    handle: async ({ backend, caller, body, requestId }) => {
      const wish = wishOf(backend.engine.now(), caller, body);
      const { token, secret } = await backend.tokens.create(wish);
      const { id: target, name: named, capabilities } = token;
      const details = { name: named, capabilities };
      const { runtime } = backend.services.operator(caller, requestId);
      await leaveAuditEvent(runtime, { action: "token.create", target, details });
      return { status: 201, body: { ...(tokenBody(token) as object), secret } };
    },
  }),
  route({
    method: "delete",
    path: "/v1/tokens/{id}",
    operation: "revokeToken",
    group,
    summary: "Revoke a token. Every server honours it within two seconds.",
    needs: "admin.mutate",
    params: z.object({ id: tokenId }),
    answers: {
      204: { description: "Revoked." },
      404: { description: "There is no such token.", body: errorOut },
    },
    handle: async ({ backend, caller, params, requestId }) => {
      if (!(await backend.tokens.revoke(params.id))) throw notFound("token", params.id);
      const { runtime } = backend.services.operator(caller, requestId);
      await leaveAuditEvent(runtime, { action: "token.revoke", target: params.id });
      return { status: 204 };
    },
  }),
];

function tokenBody({ createdAt, expiresAt, ...token }: Token): unknown {
  return {
    ...token,
    createdAt: timeText(createdAt),
    ...(expiresAt === undefined ? null : { expiresAt: timeText(expiresAt) }),
  };
}

/** Names that stand for callers without a token. */
const reservedNames: ReadonlySet<string> = new Set(["local", "anonymous", "certificate"]);

/** The token that a caller may make. */
function wishOf(now: number, caller: Caller, body: z.output<typeof tokenIn>): NewToken {
  const { expiresInMs, expiresAt, name: named } = body;
  if (expiresInMs !== undefined && expiresAt !== undefined)
    throw badArgument(
      "expiry_both_set",
      "expiresInMs and expiresAt exclude each other.",
      "expiresAt",
    );
  if (reservedNames.has(named))
    throw badArgument("name_reserved", `${named} stands for callers without a token.`, "name");
  const capabilities = [...new Set(body.capabilities)] as Capability[];
  const missing = capabilities.find((wanted) => !may(caller, wanted));
  if (missing !== undefined) throw notYours("capabilities", missing);
  const { agent = caller.agent } = body;
  if (caller.agent !== undefined && agent !== caller.agent)
    throw notYours("agent", `agent ${agent}`);
  const asked = expiresInMs === undefined ? expiresAt : now + expiresInMs;
  const until = Math.min(
    asked ?? Number.POSITIVE_INFINITY,
    caller.expiresAt ?? Number.POSITIVE_INFINITY,
  );
  return {
    ...{ name: named, capabilities, createdBy: caller.actor },
    ...(Number.isFinite(until) && { expiresAt: Math.round(until) }),
    ...(agent === undefined ? null : { agent }),
  };
}

function notYours(field: string, what: string) {
  const message = `You cannot give ${what}, which you do not have yourself.`;
  return refused("permission_denied", { reason: "capability_missing", field, message });
}
