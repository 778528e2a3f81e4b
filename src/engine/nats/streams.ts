/**
 * What the streams of a deployment are like, and what may be done where one is found that is different.
 */

/** The part of a stream's configuration that matters here. Other members are left as the operator has them. */
export interface StreamConfig {
  readonly name: string;
  readonly description?: string;
  readonly subjects?: readonly string[];
  readonly storage: string;
  readonly retention: string;
  readonly discard: string;
  readonly num_replicas: number;
  readonly max_age?: number;
  readonly max_msg_size?: number;
  readonly max_msgs_per_subject?: number;
  readonly max_consumers?: number;
  readonly duplicate_window?: number;
  readonly allow_direct?: boolean;
  readonly allow_rollup_hdrs?: boolean;
  readonly allow_msg_ttl?: boolean;
  readonly allow_atomic?: boolean;
  readonly allow_msg_counter?: boolean;
  readonly discard_new_per_subject?: boolean;
  readonly deny_delete?: boolean;
  readonly deny_purge?: boolean;
  readonly sealed?: boolean;
  readonly no_ack?: boolean;
  readonly mirror?: object;
  readonly sources?: readonly object[];
  readonly subject_transform?: object;
  readonly metadata?: Readonly<Record<string, string>>;
}

/** The names of a deployment's parts. */
export interface DeploymentNames {
  readonly jobsStream: string;
  readonly recordsBucket: string;
  readonly recordsStream: string;
  readonly advisoriesStream: string;
}

/** Which stand-in for a version the streams carry: how subjects and messages are laid out in them. */
export const layoutVersion = 1;

/** Where a stream carries it. */
export const layoutKey = "millrace.layout";

const secondNs = 1_000_000_000;
const dayNs = 24 * 60 * 60 * secondNs;

/** How long a publish whose reply was lost may be sent again and be known. */
const duplicatesKnownNs = 120 * secondNs;

/** How long advisories wait for somebody who acts on them. */
const advisoriesKeptNs = 7 * dayNs;

/** The names under a prefix. */
export function deploymentNames(prefix: string): DeploymentNames {
  const upper = prefix.toUpperCase();
  return {
    jobsStream: `${upper}_JOBS`,
    recordsBucket: `${upper}_RECORDS`,
    recordsStream: `KV_${upper}_RECORDS`,
    advisoriesStream: `${upper}_ADVISORIES`,
  };
}

/** The streams of a deployment as they have to be; the log comes first. */
export function wantedStreams(
  prefix: string,
  options: { readonly replicas: number; readonly atomic: boolean },
): readonly StreamConfig[] {
  const names = deploymentNames(prefix);
  const common = {
    storage: "file",
    retention: "limits",
    num_replicas: options.replicas,
    max_consumers: -1,
    max_msg_size: -1,
    discard_new_per_subject: false,
    no_ack: false,
    // A message that rolls up erases what others have stored, whoever may publish under a single subject.
    allow_rollup_hdrs: false,
    metadata: { [layoutKey]: String(layoutVersion) },
  } as const;
  return [
    {
      ...common,
      name: names.jobsStream,
      description: `The log of the jobs of ${prefix}: what happened to each of them.`,
      subjects: [`${prefix}.jobs.>`, `${prefix}.notes.>`],
      // A log that is full refuses what is new. It never forgets what is old on its own.
      discard: "new",
      max_age: 0,
      max_msgs_per_subject: -1,
      duplicate_window: duplicatesKnownNs,
      allow_direct: true,
      ...(options.atomic && { allow_atomic: true }),
    },
    {
      ...common,
      name: names.recordsStream,
      description: `The records of ${prefix}: keys, caps, queues, leases and settings.`,
      subjects: [`$KV.${names.recordsBucket}.>`],
      discard: "new",
      max_age: 0,
      max_msgs_per_subject: 1,
      duplicate_window: duplicatesKnownNs,
      allow_direct: true,
      allow_msg_ttl: true,
      deny_delete: true,
    },
    {
      ...common,
      name: names.advisoriesStream,
      description: `What ${prefix} was told of messages that were delivered too often.`,
      subjects: [`$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.${names.jobsStream}.>`],
      discard: "old",
      max_age: advisoriesKeptNs,
      max_msgs_per_subject: -1,
      duplicate_window: duplicatesKnownNs,
      allow_direct: true,
    },
  ];
}

/** What stands between a stream as it is and as it has to be. */
export interface StreamDifference {
  /** Why the stream cannot be used, each in words; empty when it can. */
  readonly obstacles: readonly string[];
  /** What to change in place; `null` when nothing is. */
  readonly changes: Partial<StreamConfig> | null;
}

/** Members that are put right in place: nothing that is stored is lost by it. */
const repairable = [
  "description",
  "discard",
  "max_age",
  "max_msg_size",
  "max_msgs_per_subject",
  "allow_direct",
  "allow_rollup_hdrs",
  "allow_msg_ttl",
  "allow_atomic",
  "discard_new_per_subject",
  "no_ack",
] as const satisfies readonly (keyof StreamConfig)[];

/** What a server means by leaving a member out. */
const leftOut: Partial<Record<keyof StreamConfig, unknown>> = {
  description: "",
  max_age: 0,
  max_msg_size: -1,
  max_msgs_per_subject: -1,
};

/** Compares a stream with what it has to be. The number of copies is the caller's matter. */
export function compareStreams(found: StreamConfig, wanted: StreamConfig): StreamDifference {
  const changes: Record<string, unknown> = {};
  for (const member of repairable) {
    const is = found[member] ?? leftOut[member] ?? false;
    if (wanted[member] !== undefined && wanted[member] !== is) changes[member] = wanted[member];
  }
  if ((found.duplicate_window ?? 0) < (wanted.duplicate_window ?? 0))
    changes.duplicate_window = wanted.duplicate_window;
  if (found.metadata?.[layoutKey] === undefined)
    changes.metadata = { ...found.metadata, ...wanted.metadata };
  if (wanted.deny_delete && !found.deny_delete) changes.deny_delete = true;
  return {
    obstacles: obstaclesOf(found, wanted),
    changes: Object.keys(changes).length === 0 ? null : changes,
  };
}

/** What a server does not let anybody change, or what means that the stream is somebody else's. */
function obstaclesOf(found: StreamConfig, wanted: StreamConfig): readonly string[] {
  const obstacles: string[] = [];
  const subjects = [...(found.subjects ?? [])].sort().join(", ");
  const subjectsWanted = [...(wanted.subjects ?? [])].sort().join(", ");
  if (subjects !== subjectsWanted)
    obstacles.push(`its subjects are ${subjects || "none"} instead of ${subjectsWanted}`);
  for (const member of ["storage", "retention"] as const)
    if (found[member] !== wanted[member])
      obstacles.push(`its ${member} is ${found[member]} instead of ${wanted[member]}`);
  if ((found.max_consumers ?? -1) > 0)
    obstacles.push(`it takes no more than ${found.max_consumers} consumers`);
  if (found.mirror) obstacles.push("it mirrors another stream");
  if (found.sources?.length) obstacles.push("it is filled from other streams");
  if (found.subject_transform) obstacles.push("it changes the subjects of messages");
  if (found.allow_msg_counter) obstacles.push("it holds counters");
  if (found.sealed) obstacles.push("it is sealed");
  if (found.deny_purge) obstacles.push("it forbids to purge messages");
  if (found.deny_delete && !wanted.deny_delete) obstacles.push("it forbids to delete messages");
  return obstacles;
}
