/**
 * Completing a job or a chain without a worker: what both commands take, and what they send.
 */
import type { Option } from "commander";
import { type Api, ask } from "../api.js";
import { refusedBlockers } from "../blockers.js";
import { option } from "../define.js";
import { Failure } from "../failure.js";
import { type JobOptions, jobBody, jobOptionGiven, jobOptions } from "../job-options.js";
import { jsonInput } from "../values.js";

/** What a completion gives: a result, or the job that goes on. */
export interface CompleteOptions extends JobOptions {
  readonly result?: string;
  readonly continueWith?: string;
  readonly payload?: string;
}

const nextJob = "The job that goes on:";

/** The options of a command that completes. */
export const completeOptions = (): readonly Option[] => [
  option("--result <json>", "its result: inline, @file, or - for stdin"),
  option("--continue-with <type>", "go on with a job of this type, instead of a result"),
  ...[
    option("--payload <json>", "its payload: inline, @file, or - for stdin"),
    ...jobOptions(),
  ].map((one) => one.helpGroup(nextJob)),
];

/** Completes what a route names; `decided` is the job that the caller has decided about, where the route is a chain's. */
export async function complete<Answer>(
  api: Api,
  route: string,
  options: CompleteOptions,
  decided?: string,
): Promise<Answer> {
  const jobId = decided === undefined ? {} : { jobId: decided };
  const body = { ...jobId, ...(await completionBody(options)) };
  return ask<Answer>(api, "POST", route, { body }).catch(refusedBlockers);
}

async function completionBody(options: CompleteOptions): Promise<object> {
  const { result, continueWith: type, payload } = options;
  if (type === undefined) {
    const stray = payload === undefined ? jobOptionGiven(options) : "--payload";
    if (stray !== undefined)
      throw new Failure("usage", `${stray} is for the job that --continue-with names.`);
    return result === undefined ? {} : { result: await jsonInput("result", result) };
  }
  if (result !== undefined) {
    const message = "A job that goes on has no result; give --result or --continue-with.";
    throw new Failure("usage", message);
  }
  const given = await jsonInput("payload", payload ?? "{}");
  return { continueWith: { type, payload: given, ...jobBody(options) } };
}
