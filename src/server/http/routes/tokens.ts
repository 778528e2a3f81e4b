/**
 * Tokens: making, listing and revoking them. Nobody can give what they do not have.
 */
import { z } from "zod";
import { type Capability, may } from "../caller.js";
import { errorOut } from "../openapi.js";
import { badArgument, notFound, refused } from "../refusal.js";
import { ok, type Route, route } from "../route.js";
import type { Token } from "../tokens.js";
import { durationMs, listOf, name, time, timeOut, timeText } from "../wire/common.js";

const group = "Tokens";

const capability = z
  .string()
  .regex(
    /^(admin\.(read|mutate|stream)|work:(\*|[A-Za-z0-9-][A-Za-z0-9_-]{0,63}))$/,
    "must be admin.read, admin.mutate, admin.stream, work:<service> or work:*",
  );

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

/** The routes of tokens. */
export const tokenRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/tokens",
    operation: "listTokens",
    group,
    summary: "All tokens, without their secrets.",
    needs: "admin.mutate",
    answers: { 200: { description: "The tokens.", body: listOf(tokenOut) } },
    handle: async ({ backend }) => ok({ entries: (await backend.tokens.list()).map(tokenBody) }),
  }),
  route({
    method: "post",
    path: "/v1/tokens",
    operation: "createToken",
    group,
    summary: "Make a token. Its secret is shown this once.",
    description: "A caller can give only capabilities that it has itself.",
    needs: "admin.mutate",
    body: z.strictObject({
      name: name("instance"),
      capabilities: z.array(capability).min(1).max(100),
      expiresInMs: durationMs.min(1).optional(),
      expiresAt: time.optional(),
      agent: name("type").optional(),
    }),
    answers: {
      201: {
        description: "The token.",
        body: tokenOut.extend({ secret: z.string() }).meta({ id: "NewToken" }),
      },
    },
    handle: async ({ backend, caller, body }) => {
      const { expiresInMs, expiresAt, agent, ...wish } = body;
      if (expiresInMs !== undefined && expiresAt !== undefined)
        throw badArgument(
          "expiry_both_set",
          "expiresInMs and expiresAt exclude each other.",
          "expiresAt",
        );
      const capabilities = [...new Set(wish.capabilities)] as Capability[];
      for (const wanted of capabilities) {
        if (may(caller, wanted)) continue;
        const message = `You cannot give ${wanted}, which you do not have yourself.`;
        throw refused("permission_denied", {
          reason: "capability_missing",
          field: "capabilities",
          message,
        });
      }
      const until = expiresInMs === undefined ? expiresAt : backend.engine.now() + expiresInMs;
      const { token, secret } = await backend.tokens.create({
        ...{ name: wish.name, capabilities, createdBy: caller.actor },
        ...(until === undefined ? null : { expiresAt: Math.round(until) }),
        ...(agent === undefined ? null : { agent }),
      });
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
    params: z.object({ id: z.string().regex(/^[0-9a-f]{16}$/, "must be the id of a token") }),
    answers: {
      204: { description: "Revoked." },
      404: { description: "There is no such token.", body: errorOut },
    },
    handle: async ({ backend, params }) => {
      if (!(await backend.tokens.revoke(params.id))) throw notFound("token", params.id);
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
