/**
 * What each user of a deployment has to be allowed, and no more, as a nats-server takes it: a service works on its own
 * jobs, the admin runtime on all of them, and an observer or operator asks the admin runtime. Each listens for its answers at
 * a place of its own.
 *
 * A server sends an answer wherever the asking user wants it, also where that user may not publish: permissions cannot
 * prevent that. Readers tell such an answer from an event and from a record, and believe an event only under its own
 * subject (`read-message.ts`, `entry.ts`).
 */
import type { Manifest } from "../../contract/manifest.js";
import { tokenOf } from "../event-text.js";
import { deploymentNames } from "./streams.js";
import { priorityLanes, Subjects } from "./subjects.js";

/** Who uses a deployment. */
export type Role =
  /** Creates and runs its own jobs. Names of `others` are kept from it; knowing them is all that this needs. */
  | { readonly kind: "service"; readonly manifest: Manifest; readonly others?: readonly Manifest[] }
  /** Makes the streams, projects, announces events, answers the admin calls and removes what is old. */
  | { readonly kind: "admin" }
  /** Sees what happens and asks, but changes nothing. */
  | { readonly kind: "observer" }
  /** An observer who also cancels, retries, replays and dismisses. */
  | { readonly kind: "operator" };

/** Permissions of a user, in the words of a nats-server's configuration. */
export interface Permissions {
  readonly publish: { readonly allow: readonly string[]; readonly deny?: readonly string[] };
  readonly subscribe: { readonly allow: readonly string[] };
  readonly allow_responses?: { readonly max: number; readonly expires: string };
}

/** Where a deployment lies. */
export interface PermissionScope {
  readonly prefix: string;
  readonly domain?: string;
}

/** The admin calls that look, and those that change something. */
export const readCalls = ["Health", "ListServices", "List", "Get", "GetKey", "ListDLQ"] as const;
export const changeCalls = ["Retry", "Cancel", "ReplayDLQ", "DismissDLQ"] as const;

/** What a service leaves to the admin runtime: marking a dead job as seen. */
const adminEvents = ["dismissed"] as const;

/** An answer has to be given within this time. */
const answerExpires = "1m";

/** Derives what a user has to be allowed. */
export function permissionsOf(scope: PermissionScope, role: Role): Permissions {
  switch (role.kind) {
    case "service":
      return servicePermissions(scope, role.manifest, role.others ?? []);
    case "admin":
      return adminPermissions(scope);
    case "observer":
      return askerPermissions(scope, role, readCalls);
    case "operator":
      return askerPermissions(scope, role, [...readCalls, ...changeCalls]);
  }
}

/** The permissions as text for a user's entry in a configuration file: `permissions: …`. */
export function permissionsText(permissions: Permissions): string {
  return `permissions: ${JSON.stringify(permissions, null, 2)}`;
}

/** Whose inboxes are meant: those of a service, by its name, or those of a role that is none. */
export type InboxOwner = string | Exclude<Role, { readonly kind: "service" }>;

/**
 * What the inboxes of a user begin with; without an owner, those of whoever may read everything. Nobody can hear what
 * another is sent: a process that opens a projection is sent all records, and some of them hold secrets.
 *
 * @example
 * const connection = await connect({ servers, user, pass, inboxPrefix: inboxPrefix("mailing", { kind: "operator" }) });
 */
export function inboxPrefix(prefix: string, owner: InboxOwner = { kind: "admin" }): string {
  return `_INBOX.${prefix}.${inboxToken(owner)}`;
}

/** No name of a service begins with `_`. */
function inboxToken(owner: InboxOwner): string {
  if (typeof owner === "string") return tokenOf(owner);
  return owner.kind === "admin" ? "_all" : `_${owner.kind}`;
}

/** How the API is reached. Inside of a domain a server takes the subject that it has without one. */
function apisOf({ domain }: PermissionScope): readonly string[] {
  return domain === undefined ? ["$JS.API"] : ["$JS.API", `$JS.${domain}.API`];
}

/** Where records are published. */
function recordSubjects({ domain }: PermissionScope, records: string): readonly string[] {
  return domain === undefined ? [records] : [records, `$JS.${domain}.API.${records}`];
}

function servicePermissions(
  scope: PermissionScope,
  manifest: Manifest,
  others: readonly Manifest[],
): Permissions {
  const { prefix } = scope;
  const { jobsStream, recordsStream, recordsBucket } = deploymentNames(prefix);
  const service = tokenOf(manifest.service);
  const records = `$KV.${recordsBucket}`;
  const ownRecords = `${records}.${service}.>`;
  const events = `${prefix}.*.${service}.>`;
  const consumers = consumersOf(prefix, manifest);
  const apis = apisOf(scope);
  return {
    publish: {
      allow: [
        `${prefix}.jobs.${service}.>`,
        `${prefix}.notes.${service}.>`,
        `${prefix}.hints.*.${service}`,
        ...recordSubjects(scope, ownRecords),
        ...apis.flatMap((api) => [
          `${api}.DIRECT.GET.${jobsStream}.${events}`,
          `${api}.DIRECT.GET.${recordsStream}.${ownRecords}`,
          `${api}.DIRECT.GET.${recordsStream}.${records}._deployment`,
          `${api}.CONSUMER.CREATE.${jobsStream}.*.${events}`,
          `${api}.CONSUMER.CREATE.${recordsStream}.*.${ownRecords}`,
          ...consumers.flatMap((name) => [
            `${api}.CONSUMER.INFO.${jobsStream}.${name}`,
            `${api}.CONSUMER.MSG.NEXT.${jobsStream}.${name}`,
          ]),
        ]),
        ...consumers.map((name) => `$JS.ACK.${jobsStream}.${name}.>`),
        // Readers tell a server that they keep up.
        `$JS.FC.${jobsStream}.>`,
        `$JS.FC.${recordsStream}.>`,
      ],
      deny: [
        ...adminEvents.flatMap((name) => [
          `${prefix}.jobs.${service}.*.*.${name}`,
          `${prefix}.jobs.${service}.*.*.${name}.>`,
        ]),
        // A consumer is made or changed under any name, and these belong to others.
        ...others
          .filter((other) => other.service !== manifest.service)
          .flatMap((other) => consumersOf(prefix, other))
          .flatMap((name) => apis.map((api) => `${api}.CONSUMER.CREATE.${jobsStream}.${name}.>`)),
      ],
    },
    subscribe: {
      allow: [`${inboxPrefix(prefix, manifest.service)}.>`, `${prefix}.hints.*.${service}`],
    },
  };
}

/** The consumers that hand out a service's jobs. */
function consumersOf(prefix: string, { service, jobs }: Manifest): readonly string[] {
  const subjects = new Subjects(prefix);
  return jobs.flatMap(({ type, version, queue }) =>
    priorityLanes.map((lane) =>
      subjects.consumer({ service, queue, type, typeVersion: version }, lane),
    ),
  );
}

function adminPermissions(scope: PermissionScope): Permissions {
  const { prefix } = scope;
  const { jobsStream, recordsStream, advisoriesStream, recordsBucket } = deploymentNames(prefix);
  const streams = [jobsStream, recordsStream, advisoriesStream];
  return {
    publish: {
      allow: [
        `${prefix}.jobs.>`,
        `${prefix}.notes.>`,
        `${prefix}.hints.>`,
        `${prefix}.events.>`,
        ...recordSubjects(scope, `$KV.${recordsBucket}.>`),
        ...streams.flatMap((stream) => [`$JS.ACK.${stream}.>`, `$JS.FC.${stream}.>`]),
        ...apisOf(scope).flatMap((api) => streams.flatMap((stream) => manageSubjects(api, stream))),
      ],
    },
    subscribe: {
      allow: [
        `${inboxPrefix(prefix)}.>`,
        `${prefix}.hints.>`,
        `${prefix}.rpc.>`,
        "$SRV.PING",
        "$SRV.INFO",
        "$SRV.STATS",
        "$SRV.*.>",
      ],
    },
    allow_responses: { max: 1, expires: answerExpires },
  };
}

/** Everything about a stream but its removal. */
function manageSubjects(api: string, stream: string): readonly string[] {
  return [
    ...["INFO", "CREATE", "UPDATE", "PURGE", "MSG.DELETE"].map(
      (verb) => `${api}.STREAM.${verb}.${stream}`,
    ),
    `${api}.DIRECT.GET.${stream}`,
    `${api}.DIRECT.GET.${stream}.>`,
    `${api}.CONSUMER.*.${stream}`,
    `${api}.CONSUMER.*.${stream}.>`,
    `${api}.CONSUMER.MSG.NEXT.${stream}.*`,
  ];
}

function askerPermissions(
  { prefix }: PermissionScope,
  asker: InboxOwner,
  calls: readonly string[],
): Permissions {
  return {
    publish: {
      allow: [
        ...calls.map((call) => `${prefix}.rpc.Jobs.${call}`),
        "$SRV.PING",
        "$SRV.INFO",
        "$SRV.STATS",
        "$SRV.*.>",
      ],
    },
    subscribe: {
      allow: [
        `${inboxPrefix(prefix, asker)}.>`,
        `${prefix}.jobs.>`,
        `${prefix}.notes.>`,
        `${prefix}.events.>`,
      ],
    },
  };
}
