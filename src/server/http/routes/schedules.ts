/**
 * Schedules: work that starts by itself. Those that a contract declares are shown beside those that callers made.
 */
import { z } from "zod";
import { type Schedule, Schedules } from "../../../client/schedules.js";
import { boundJobs, type ServiceContract } from "../../../contract/definition.js";
import type { ScheduleInput } from "../../../contract/schedules.js";
import { catchUpPolicies, everyMinMs, overlapPolicies } from "../../../core/schedule.js";
import { encryptedText, redact } from "../../../core/secrets.js";
import { given } from "../given.js";
import { errorOut } from "../openapi.js";
import { ok, type Route, type RouteRequest, route } from "../route.js";
import {
  anyJson,
  durationMaxMs,
  listOf,
  name,
  priority,
  time,
  timeOut,
  timeText,
  typeVersion,
} from "../wire/common.js";
import { changedBody } from "../wire/job.js";
import { payloadOf } from "./creates.js";

const group = "Schedules";

const scheduleParams = z.object({ service: name("service"), name: name("schedule") });

const scheduleIn = z
  .strictObject({
    service: name("service"),
    name: name("schedule"),
    type: name("type"),
    version: typeVersion.optional(),
    payload: anyJson.optional(),
    payload_base64: z.string().optional(),
    cron: z
      .string()
      .min(1)
      .max(200)
      .optional()
      .meta({
        description: "Five fields, or six that begin with the second.",
        examples: ["30 2 * * 1-5"],
      }),
    timeZone: z.string().min(1).max(100).optional(),
    everyMs: z.number().int().min(everyMinMs).max(durationMaxMs).optional(),
    at: time.optional(),
    priority: priority.optional(),
    deadlineMs: z.number().int().min(1).max(durationMaxMs).optional(),
    enabled: z.boolean().optional(),
    catchUp: z.enum(catchUpPolicies).optional(),
    catchUpMax: z.number().int().min(1).max(1_000).optional(),
    overlap: z.enum(overlapPolicies).optional(),
    tags: z.array(z.string()).max(19).optional(),
  })
  .meta({ id: "CreateSchedule" });

const scheduleOut = z
  .object({
    service: z.string(),
    name: z.string(),
    origin: z.enum(["contract", "caller"]),
    cron: z.string().optional(),
    timeZone: z.string().optional(),
    everyMs: z.number().optional(),
    at: timeOut.optional(),
    type: z.string(),
    version: z.number().int(),
    payload: anyJson,
    priority: z.number().optional(),
    deadlineMs: z.number().optional(),
    enabled: z.boolean(),
    catchUp: z.enum(catchUpPolicies),
    catchUpMax: z.number().int(),
    overlap: z.enum(overlapPolicies),
    tags: z.array(z.string()),
    createdAt: timeOut,
    nextAt: timeOut.nullable(),
    lastFired: z.object({ at: timeOut, jobId: z.string() }).optional(),
    lastSkipped: z.object({ at: timeOut, reason: z.string() }).optional(),
  })
  .meta({ id: "Schedule" });

const changedScheduleOut = scheduleOut.extend({ payload: anyJson.optional() }).meta({
  id: "ChangedSchedule",
  description: "Callers without admin.read get it without payload.",
});

const missing = { description: "There is no such schedule.", body: errorOut };
const scheduleAnswers = {
  200: { description: "The schedule.", body: scheduleOut },
  404: missing,
} as const;

/** The routes of schedules. */
export const scheduleRoutes: readonly Route[] = [
  route({
    method: "get",
    path: "/v1/schedules/{service}",
    operation: "listSchedules",
    group,
    summary: "The schedules of a service, in the order of their names.",
    needs: "admin.read",
    params: z.object({ service: name("service") }),
    answers: { 200: { description: "The schedules.", body: listOf(scheduleOut) } },
    handle: async (request) => {
      const { service } = request.params;
      const entries = await (await schedulesOf(request, service)).list().orThrow();
      const contract = await request.backend.services.contract(service);
      return ok({ entries: entries.map((schedule) => scheduleBody(schedule, contract)) });
    },
  }),
  route({
    method: "post",
    path: "/v1/schedules",
    operation: "createSchedule",
    group,
    summary: "Make a schedule; one of cron, everyMs and at says when it fires.",
    needs: "admin.mutate",
    body: scheduleIn,
    answers: {
      201: {
        description: "Made.",
        body: scheduleOut,
        headers: { Location: "The path of the schedule." },
      },
      409: { description: "One of that name is there already.", body: errorOut },
      422: { description: "The payload does not fit its type.", body: errorOut },
    },
    handle: async (request) => {
      const { service, name: named, payload, payload_base64, ...rest } = request.body;
      const spec = {
        ...given(rest),
        payload: payloadOf({ payload, payload_base64 }),
      } as ScheduleInput;
      const schedules = await schedulesOf(request, service);
      const body = await bodyOf(request, await schedules.create(named, spec).orThrow());
      return { status: 201, body, headers: { Location: `/v1/schedules/${service}/${named}` } };
    },
  }),
  route({
    method: "get",
    path: "/v1/schedules/{service}/{name}",
    operation: "getSchedule",
    group,
    summary: "A schedule.",
    needs: "admin.read",
    params: scheduleParams,
    answers: scheduleAnswers,
    handle: async (request) => {
      const { service, name: named } = request.params;
      const schedules = await schedulesOf(request, service);
      return ok(await bodyOf(request, await schedules.get(named).orThrow()));
    },
  }),
  command("pause", "Stop firing; instants that come meanwhile are not made up for."),
  command("resume", "Fire again, from the next instant on."),
  route({
    method: "post",
    path: "/v1/schedules/{service}/{name}/run",
    operation: "runSchedule",
    group,
    summary: "Create a job as the schedule would, now.",
    needs: "admin.mutate",
    params: scheduleParams,
    answers: {
      201: {
        description: "Created.",
        body: z.object({ id: z.string() }),
        headers: { Location: "The path of the job." },
      },
      404: missing,
      409: { description: "The key of the job is full.", body: errorOut },
      422: { description: "The payload does not fit its type any more.", body: errorOut },
    },
    handle: async (request) => {
      const { service, name: named } = request.params;
      const { id } = await (await schedulesOf(request, service)).run(named).orThrow();
      return { status: 201, body: { id }, headers: { Location: `/v1/jobs/${id}` } };
    },
  }),
  route({
    method: "get",
    path: "/v1/schedules/{service}/{name}/next",
    operation: "nextOfSchedule",
    group,
    summary: "When a schedule fires next.",
    needs: "admin.read",
    params: scheduleParams,
    query: z.object({ count: z.number().int().min(1).max(100).default(5) }),
    answers: {
      200: { description: "The next instants.", body: z.object({ entries: z.array(timeOut) }) },
      404: missing,
    },
    handle: async (request) => {
      const { service, name: named } = request.params;
      const schedules = await schedulesOf(request, service);
      const instants = await schedules.next(named, request.query).orThrow();
      return ok({ entries: instants.map(timeText) });
    },
  }),
  route({
    method: "delete",
    path: "/v1/schedules/{service}/{name}",
    operation: "deleteSchedule",
    group,
    summary: "Remove a schedule that a caller made; the jobs that it has made stay.",
    needs: "admin.mutate",
    params: scheduleParams,
    answers: {
      204: { description: "Removed." },
      404: missing,
      409: { description: "A contract declares it.", body: errorOut },
    },
    handle: async (request) => {
      const { service, name: named } = request.params;
      await (await schedulesOf(request, service)).delete(named).orThrow();
      return { status: 204 };
    },
  }),
];

function command(what: "pause" | "resume", summary: string): Route {
  return route({
    method: "post",
    path: `/v1/schedules/{service}/{name}/${what}`,
    operation: `${what}Schedule`,
    group,
    summary,
    needs: "admin.mutate",
    params: scheduleParams,
    answers: { 200: { description: "The schedule.", body: changedScheduleOut }, 404: missing },
    handle: async (request) => {
      const { service, name: named } = request.params;
      const schedules = await schedulesOf(request, service);
      const body = await bodyOf(request, await schedules[what](named).orThrow());
      return ok(changedBody(request.caller, body));
    },
  });
}

async function schedulesOf(
  { backend, caller, requestId }: Pick<RouteRequest, "backend" | "caller" | "requestId">,
  service: string,
): Promise<Schedules> {
  const client = await backend.services.client(service, caller, requestId);
  return new Schedules(client, await backend.services.contract(service));
}

async function bodyOf(
  { backend }: Pick<RouteRequest, "backend">,
  schedule: Schedule,
): Promise<object> {
  return scheduleBody(schedule, await backend.services.contract(schedule.service));
}

/** A schedule for the wire, without what is encrypted, and what its job's type marks as secret. */
function scheduleBody(schedule: Schedule, contract: ServiceContract): object {
  const { at, createdAt, nextAt, lastFired, lastSkipped, payload, ...rest } = schedule;
  const bound = boundJobs(contract).find(
    ({ type, definition }) => type === rest.type && definition.settings.version === rest.version,
  );
  return {
    ...rest,
    payload: contract.encrypted
      ? encryptedText
      : redact(payload, bound?.definition.settings.secret?.payload),
    ...(at === undefined ? null : { at: timeText(at) }),
    createdAt: timeText(createdAt),
    nextAt: nextAt === null ? null : timeText(nextAt),
    ...(lastFired && { lastFired: { ...lastFired, at: timeText(lastFired.at) } }),
    ...(lastSkipped && { lastSkipped: { ...lastSkipped, at: timeText(lastSkipped.at) } }),
  };
}
