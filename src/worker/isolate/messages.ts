/**
 * Between what a worker holds and what crosses to a process: the job on its way out, messages that are looked at before they
 * are believed, and what they mean.
 */
import { InvalidResult } from "../../client/errors.js";
import type { Json } from "../../core/json.js";
import type { ActiveJob } from "../active-job.js";
import { skip, snooze, terminate } from "../outcome.js";
import {
  type CallName,
  callNames,
  type FromProcess,
  type JobData,
  type Thrown,
  type Verdict,
} from "./protocol.js";

/** The messages that a process may send, each with what it must hold. */
const shapes: {
  readonly [Say in FromProcess["say"]]: (message: Record<string, unknown>) => boolean;
} = {
  ready: () => true,
  returned: () => true,
  unloadable: ({ error }) => isThrown(error),
  crashed: ({ error }) => isThrown(error),
  threw: ({ error }) => isThrown(error),
  terminate: ({ message }) => typeof message === "string",
  skip: ({ message }) => typeof message === "string",
  unfit: ({ message }) => typeof message === "string",
  snooze: ({ delayMs }) => typeof delayMs === "number",
  call: ({ call, name, parameters }) =>
    typeof call === "number" && callNames.includes(name as CallName) && Array.isArray(parameters),
};

/** A handler can write to the channel, too, so that nothing that comes over it is believed unseen. */
export function understood(line: string): FromProcess | null {
  try {
    const message: unknown = JSON.parse(line);
    if (typeof message !== "object" || message === null || !("say" in message)) return null;
    const say = String(message.say);
    const isGood = Object.hasOwn(shapes, say) && shapes[say as FromProcess["say"]]({ ...message });
    return isGood ? (message as FromProcess) : null;
  } catch {
    return null;
  }
}

function isThrown(value: unknown): boolean {
  return typeof value === "object" && value !== null && "message" in value;
}

/** The job as its process gets it. */
export function jobData(job: ActiveJob<unknown>, prepared: Json | undefined): JobData {
  const { id, type, queue, createdAt, context, tries, maxTries, run, isRedelivery } = job;
  const { tags, blockers, deadline } = job;
  // What crosses to the process becomes JSON on the way.
  const payload = job.payload as Json;
  return {
    ...{ id, type, queue, createdAt, payload, context, tries, maxTries, run, isRedelivery },
    ...{ tags, blockers },
    ...(prepared === undefined ? null : { prepared }),
    ...(deadline === undefined ? null : { deadline }),
  };
}

/** What the verdict of a process means in the worker: a value, an outcome, or an error that is thrown. */
export function outcomeOf(verdict: Verdict, type: string): unknown {
  switch (verdict.say) {
    case "returned":
      return verdict.value;
    case "terminate":
      return terminate(verdict.message);
    case "skip":
      return skip(verdict.message);
    case "snooze":
      return snooze(verdict.delayMs, verdict.reason);
    case "unfit":
      throw new InvalidResult({ type, message: verdict.message });
    case "threw":
      throw errorOf(verdict.error);
  }
}

/** The error of a handler as its worker throws it, with the stack that it had. */
export function errorOf({ message, ...rest }: Thrown): Error {
  return Object.assign(new Error(String(message)), rest);
}
