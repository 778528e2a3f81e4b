/**
 * The metrics of a server, each with its name, labels and meaning. Names carry base units. Labels name services, queues,
 * types and small closed lists, never ids or keys.
 */
import { Counter, Gauge, Histogram, type Registry } from "prom-client";

/** The bounds of what jobs take and wait, in seconds: from a few milliseconds to hours. */
const jobBounds = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 14_400];

/** The bounds of what requests take, in seconds. */
const requestBounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** All metrics of one registry, but for those of the process. */
export type Catalog = ReturnType<typeof createCatalog>;

/** Registers every metric. */
export function createCatalog(registry: Registry) {
  return {
    ...createCounters(registry),
    ...createHistograms(registry),
    ...createStoreGauges(registry),
    ...createHealthGauges(registry),
  };
}

function createCounters(registry: Registry) {
  const counter = <Label extends string>(name: string, help: string, ...labels: Label[]) =>
    new Counter({ name: `millrace_${name}`, help, labelNames: labels, registers: [registry] });
  return {
    jobsCreated: counter("jobs_created_total", "Jobs that were created.", "service", "type"),
    jobsEnded: counter(
      "jobs_ended_total",
      "Jobs that ended, by the state that they ended in.",
      "service",
      "type",
      "state",
    ),
    triesStarted: counter("tries_started_total", "Tries that began.", "service", "type"),
    retries: counter(
      "retries_total",
      "Tries that failed and are followed by another, by the reason.",
      "service",
      "type",
      "reason",
    ),
    leasesLapsed: counter(
      "leases_lapsed_total",
      "Leases of lost workers, by what became of the job.",
      "service",
      "type",
      "outcome",
    ),
    outcomesIgnored: counter(
      "outcomes_ignored_total",
      "Outcomes of workers that no longer had the job.",
      "service",
      "type",
    ),
    events: counter("events_total", "Events of the feed, by name.", "name"),
    jobsUntracked: counter(
      "jobs_untracked_total",
      "Jobs that were not timed, because too many others were at once.",
    ),
    requests: counter(
      "http_requests_total",
      "Requests that were answered.",
      "method",
      "route",
      "status",
    ),
  };
}

function createHistograms(registry: Registry) {
  const seconds = <Label extends string>(
    name: string,
    help: string,
    buckets: number[],
    ...labels: Label[]
  ) =>
    new Histogram({
      name: `millrace_${name}_seconds`,
      help,
      buckets,
      labelNames: labels,
      registers: [registry],
    });
  return {
    tryDuration: seconds(
      "try_duration",
      "From the start of a try to its end, by the event that ended it.",
      jobBounds,
      "service",
      "type",
      "outcome",
    ),
    jobWait: seconds(
      "job_wait",
      "From the time when a job may run to its start.",
      jobBounds,
      "service",
      "type",
    ),
    keyWait: seconds(
      "key_wait",
      "The same for jobs with a concurrency key alone: most of it is waiting for the key.",
      jobBounds,
      "service",
      "type",
    ),
    requestDuration: seconds(
      "http_request_duration",
      "From a request to the beginning of its answer.",
      requestBounds,
      "method",
      "route",
    ),
  };
}

function createStoreGauges(registry: Registry) {
  const gauge = gaugeIn(registry);
  return {
    jobs: gauge("jobs", "Jobs in the store, by queue and state.", "service", "queue", "state"),
    workers: gauge("workers", "Workers whose presence is fresh.", "service"),
    workerPlaces: gauge("worker_places", "How many jobs the live workers run at once.", "service"),
    queuesPaused: gauge("queues_paused", "Queues that are paused.", "service"),
    keysBlocked: gauge(
      "keys_blocked",
      "Keys that stay taken until somebody releases them.",
      "service",
      "type",
    ),
    keyJobsWaiting: gauge(
      "key_jobs_waiting",
      "Jobs that wait under a key and have no slot yet.",
      "service",
      "type",
    ),
    projectionLag: gauge(
      "projection_lag_events",
      "How many events the read model lies behind the log, where it follows one.",
    ),
  };
}

function createHealthGauges(registry: Registry) {
  const gauge = gaugeIn(registry);
  return {
    storeUp: gauge(
      "store_up",
      "1 if the store answered the last time that it was asked, 0 if not.",
    ),
    storeConnectionsOpen: gauge(
      "store_connections_open",
      "Connections of this process to the store.",
    ),
    storeConnectionsUsed: gauge("store_connections_used", "Those of them that are in use."),
    storeConnectionsWaitedFor: gauge(
      "store_connections_waited_for",
      "Calls of this process that wait for a connection.",
    ),
    storeWritesQueued: gauge(
      "store_writes_queued",
      "Writes of this process that wait for the batch under way.",
    ),
    storeReadsQueued: gauge(
      "store_reads_queued",
      "Reads of this process that wait for the batch under way.",
    ),
    feedDelay: gauge("feed_delay_seconds", "How old the newest event was when it was counted."),
  };
}

function gaugeIn(registry: Registry) {
  return <Label extends string>(name: string, help: string, ...labels: Label[]) =>
    new Gauge({ name: `millrace_${name}`, help, labelNames: labels, registers: [registry] });
}
