/**
 * A whole job as text.
 */
import type { JobAnswer } from "./answers.js";
import type { Colors } from "./colors.js";
import { withoutControls } from "./table.js";
import { ago, fields, paintState } from "./words.js";

/** A job, line by line, with what it has of payload, result and error. */
export function jobText(job: JobAnswer, colors: Colors): string {
  const state = paintState(job.cancelRequested ? "cancelling" : job.state, job.state, colors);
  const version = job.typeVersion > 1 ? ` version ${job.typeVersion}` : "";
  const { error, progress } = job;
  return fields(
    [
      ["id", job.id],
      ["job", `${job.service}/${job.type}${version}`],
      ["state", state],
      ["queue", job.queue === job.type ? undefined : job.queue],
      ["tries", `${job.tries} of ${job.maxTries}${job.run > 1 ? `, run ${job.run}` : ""}`],
      ["priority", job.priority === 0 ? undefined : job.priority],
      ["created", timeText(job.createdAt)],
      ["due", job.runAt > job.createdAt ? timeText(job.runAt) : undefined],
      ["deadline", timeText(job.deadline)],
      ["started", timeText(job.startedAt)],
      ["ended", timeText(job.endedAt)],
      ["worker", job.worker],
      ["lease", timeText(job.leaseUntil)],
      ["progress", progress && withoutControls(progressText(progress))],
      ["tags", job.tags.join(", ")],
      ["key", job.key && `${job.key.key} (${job.key.hash})`],
      ["blockers", job.blockers?.map(({ jobId }) => jobId).join(", ")],
      ["chain", job.chainId],
      ["parent", job.parentId],
      ["reason", job.reason && withoutControls(job.reason)],
      ["error", error && withoutControls(`${error.message} (${error.reason})`)],
      ["payload", jsonText(job.payload)],
      ["result", jsonText(job.result)],
    ],
    colors,
  );
}

/** How far a job has come, in words. */
export function progressText(progress: NonNullable<JobAnswer["progress"]>): string {
  const { step, message, current, total } = progress;
  const count =
    current === undefined ? undefined : `${current}${total === undefined ? "" : ` of ${total}`}`;
  return [step, message, count].filter((part) => part !== undefined).join(", ");
}

function timeText(time: string | undefined): string | undefined {
  return time === undefined ? undefined : `${time} (${ago(time)})`;
}

function jsonText(value: unknown): string | undefined {
  return value === undefined ? undefined : JSON.stringify(value);
}
