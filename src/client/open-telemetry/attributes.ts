/**
 * The attributes of spans and metrics, in the words of the messaging conventions. Those of metrics name no single job.
 */
import type { Attributes } from "@opentelemetry/api";
import type { Job } from "../../core/job.js";

/** What jobs go through. */
export type Operation = "send" | "receive" | "process" | "settle";

/** The names of a job that are few. */
export type JobNames = Pick<Job, "service" | "queue" | "type">;

/** The attributes of an operation on jobs of one type. */
export function namesOf(operation: Operation, { service, queue, type }: JobNames): Attributes {
  return {
    ...operationOf(operation),
    "messaging.destination.name": queue,
    "millrace.service": service,
    "millrace.job.type": type,
  };
}

/** The attributes of an operation on several jobs: what they have in common, and their number. */
export function batchOf(operation: Operation, jobs: readonly JobNames[]): Attributes {
  const [first] = jobs;
  if (first === undefined) return operationOf(operation);
  const shared = <Name extends keyof JobNames>(name: Name, attribute: string) =>
    jobs.every((job) => job[name] === first[name]) ? { [attribute]: first[name] } : null;
  return {
    ...operationOf(operation),
    ...shared("queue", "messaging.destination.name"),
    ...shared("service", "millrace.service"),
    ...shared("type", "millrace.job.type"),
  };
}

/** What tells one job from others; for spans alone. */
export function identityOf({ id, tries, run, context }: Job): Attributes {
  return {
    "messaging.message.id": id,
    "messaging.message.conversation_id": context.requestId,
    "millrace.job.try": tries,
    "millrace.job.run": run,
  };
}

function operationOf(operation: Operation): Attributes {
  return {
    "messaging.system": "millrace",
    "messaging.operation.name": operation,
    "messaging.operation.type": operation,
  };
}
