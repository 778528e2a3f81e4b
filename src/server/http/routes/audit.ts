/**
 * The audit trail: who changed queues, keys, schedules, webhooks, contracts and tokens.
 */
import { z } from "zod";
import {
  type AuditEvent,
  auditActions,
  auditCursorPattern,
  auditPage,
} from "../../../client/audit.js";
import { given } from "../given.js";
import { ok, type Route, route } from "../route.js";
import { anyJson, name, pageQuery, time, timeOut, timeText } from "../wire/common.js";

const eventOut = z
  .object({
    id: z.string(),
    at: timeOut,
    actor: z.string(),
    action: z.string(),
    service: z.string().optional(),
    target: z.string(),
    requestId: z.string().optional(),
    details: z.record(z.string(), anyJson).optional(),
  })
  .meta({ id: "AuditEvent" });

/** The routes of the audit trail. */
export const auditRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/audit",
    operation: "listAuditEvents",
    group: "Audit",
    summary: "Who changed settings, newest first.",
    description:
      "Events are kept for 90 days. A page may hold fewer than were asked for, or none, and go on: follow nextCursor.",
    needs: "admin.read",
    query: z.object({
      service: name("service").optional(),
      action: z.enum(auditActions).optional(),
      actor: z.string().min(1).max(200).optional(),
      target: z.string().min(1).max(200).optional(),
      since: time.optional().meta({ description: "At or after this time." }),
      until: time.optional().meta({ description: "Before this time." }),
      limit: pageQuery.limit,
      cursor: z
        .string()
        .regex(auditCursorPattern, "must be a cursor as an earlier answer gave it")
        .optional(),
    }),
    answers: {
      200: {
        description: "A page.",
        body: z.object({ entries: z.array(eventOut), nextCursor: z.string().optional() }),
        headers: { Link: "The next page." },
      },
    },
    handle: async ({ backend, query, path, search }) => {
      const { entries, nextCursor } = await auditPage(backend.engine, given(query));
      const body = { entries: entries.map(eventBody) };
      if (nextCursor === undefined) return ok(body);
      const next = new URLSearchParams(search);
      next.set("cursor", nextCursor);
      return ok({ ...body, nextCursor }, { Link: `<${path}?${next}>; rel="next"` });
    },
  }),
];

function eventBody({ at, ...event }: AuditEvent): unknown {
  return { ...event, at: timeText(at) };
}
