// Changes of jobs as commands give them, for tests that talk to an engine itself.
import type { Job, JobEvent } from "millrace";
import type { Command, CommandData, CommandName } from "#millrace/core/command.js";
import { decide } from "#millrace/core/decide.js";
import type { Change } from "#millrace/engine/engine.js";

/** The event that a command of the worker `w` becomes. */
export function decided<Name extends CommandName>(
  job: Job,
  command: Name,
  data: CommandData[Name],
): JobEvent {
  const origin = { eventId: `${job.id}-${command}`, actor: "worker:w" };
  const decision = decide(job, { command, ...origin, ...data } as Command, job.updatedAt);
  if (!decision.ok) throw new Error(decision.rejection.message);
  return decision.event;
}

/** The change that a command from outside asks for. */
export function changeOf<Name extends CommandName>(
  job: Job,
  command: Name,
  data: CommandData[Name],
): Change {
  const { service, type, id, version } = job;
  return { job: { service, type, id }, expect: { version }, event: decided(job, command, data) };
}

/** What becomes of a try that its worker ends. */
export function outcomeOf<Name extends CommandName>(
  job: Job,
  command: Name,
  data: Omit<CommandData[Name], "token">,
): Change {
  const { version, token } = job;
  const change = changeOf(job, command, { ...data, token } as CommandData[Name]);
  return { ...change, expect: { version, token } };
}

/** What the worker says of a try that failed and is repeated at once. */
export function failureOf(job: Job): Change {
  const error = { message: "no paper", reason: "error" } as const;
  return outcomeOf(job, "fail", { error, retryAt: job.updatedAt });
}
