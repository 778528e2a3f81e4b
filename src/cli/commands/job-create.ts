/**
 * `millrace job create`, and what it shares with starting a chain.
 */
import type { Command, Option } from "commander";
import { systemIds } from "../../client/ids.js";
import { signJob } from "../../client/signing.js";
import type { Manifest } from "../../contract/manifest.js";
import type { Json } from "../../core/json.js";
import type { CreateAnswer, JobAnswer } from "../answers.js";
import { type Api, ask, path } from "../api.js";
import { refusedBlockers } from "../blockers.js";
import { define, option, type Run } from "../define.js";
import { Failure, messageOf } from "../failure.js";
import { type JobOptions, jobBody, jobOptions } from "../job-options.js";
import type { Session } from "../session.js";
import { durationMs, jsonInput, wholeNumber } from "../values.js";
import { awaitChainEnd, awaitEnd, checkTimeout, type WaitOptions, waitOptions } from "../wait.js";

interface CreateOptions extends JobOptions, WaitOptions {
  readonly id?: string;
  readonly typeVersion?: number;
  readonly queue?: string;
  readonly idempotencyKey?: string;
  readonly idempotencyScope?: string;
  readonly idempotencyWindow?: number;
  readonly requestId?: string;
  readonly sign?: string;
}

const createOptions = (): readonly Option[] => [
  option("--id <id>", "an id of your own"),
  option("--type-version <number>", "the version of the type", wholeNumber(1)),
  option("--queue <name>", "another queue than the type's own"),
  ...jobOptions(),
  option("--idempotency-key <key>", "the same key gives the same job"),
  option(
    "--idempotency-scope <scope>",
    "whether the key stands for any job (default) or only for one that has not ended; a chain ends with its last job",
  ).choices(["any", "unfinished"]),
  option(
    "--idempotency-window <duration>",
    "how long the key is remembered (default 1d)",
    durationMs,
  ),
  option("--request-id <id>", "the request that it belongs to"),
  option("--sign <key>", "sign it with a private key: hexadecimal, or a file that holds it"),
];

/** Adds the command. */
export function defineCreate(job: Command, run: Run): void {
  define<CreateOptions>(job, run, {
    words: "create <service> <type> [payload]",
    says: "create a job; the payload is JSON: inline, @file, or - for stdin",
    examples: [
      `millrace job create shop sendReceipt '{"orderId":"o-1","to":"a@b.example"}' --wait`,
      "millrace job create shop renderInvoice @order.json --delay 5m --tag vip",
      "echo '{}' | millrace job create shop syncStock -",
      "millrace job create shop thank '{}' --blocker invoice=01HZX…,delivery=01HZY…:continue",
    ],
    options: [...createOptions(), ...waitOptions("it", "result")],
    run: (session, { args, options }) => create(session, "/v1/jobs", args, options),
  });
}

/** Adds the start of a chain. */
export function defineChainStart(chain: Command, run: Run): void {
  define<CreateOptions>(chain, run, {
    words: "start <service> <type> [payload]",
    says: "start a chain with its first job; the payload is JSON: inline, @file, or - for stdin",
    examples: [`millrace chain start shop approve '{"requestId":"r-1"}' --wait --timeout 1h`],
    options: [...createOptions(), ...waitOptions("the chain", "output")],
    run: (session, { args, options }) => create(session, "/v1/chains", args, options),
  });
}

async function create(
  session: Session,
  route: "/v1/jobs" | "/v1/chains",
  [service = "", type = "", given = "{}"]: readonly string[],
  options: CreateOptions,
): Promise<void> {
  checkTimeout(options);
  const payload = await jsonInput("payload", given);
  const api = await session.api();
  const wish = { service, type, payload, ...bodyOf(options) };
  const body = options.sign === undefined ? wish : await signed(api, wish, options.sign);
  const asked = ask<CreateAnswer>(api, "POST", route, { body, signal: session.signal });
  const created = await asked.catch(refusedBlockers);
  if (options.wait) {
    session.output.note(`${created.id} ${created.outcome}`);
    if (route === "/v1/chains") return awaitStarted(session, created, options.timeout);
    return awaitEnd(session, created.id, options.timeout);
  }
  session.output.document(created, () => created.id);
  if (created.outcome !== "accepted" && session.output.format === "text")
    session.output.note(outcomeText(created));
}

/**
 * Waits for the chain that a start has given. Where a job that was there already stands for it, that may be a part of
 * another chain, or of none.
 */
async function awaitStarted(
  session: Session,
  { id, outcome }: CreateAnswer,
  timeoutMs: number | undefined,
): Promise<void> {
  const isOwn = outcome === "accepted" || outcome === "replaced";
  // A chain may go on when its first job has been discarded.
  const job = isOwn
    ? null
    : await ask<JobAnswer>(await session.api(), "GET", path`/v1/jobs/${id}`).catch(nullIfMissing);
  if (job === null) return awaitChainEnd(session, id, timeoutMs);
  if (job.chainId !== undefined) return awaitChainEnd(session, job.chainId, timeoutMs);
  session.output.note(`Job ${id} is no chain; what is waited for is its own end.`);
  return awaitEnd(session, id, timeoutMs);
}

/** Signs a create, with an id of its own if it has none. */
async function signed(api: Api, wish: Wish, key: string): Promise<object> {
  const { service, type, payload, id = systemIds.jobId() } = wish;
  const typeVersion = wish.version ?? (await currentVersion(api, service, type));
  const createdAt = Date.now();
  try {
    const job = { service, type, typeVersion, id, payload: payload as Json };
    const { value } = signJob(key, job, { createdAt });
    const signature = { createdAt: new Date(createdAt).toISOString(), value };
    return { ...wish, id, version: typeVersion, signature };
  } catch (error) {
    throw new Failure("usage", messageOf(error));
  }
}

interface Wish {
  readonly service: string;
  readonly type: string;
  readonly payload: unknown;
  readonly id?: string | undefined;
  readonly version?: number | undefined;
}

/** The version that a create without one makes: the accepted contract's highest, or 1. */
async function currentVersion(api: Api, service: string, type: string): Promise<number> {
  const found = await ask<{ manifest: Manifest }>(api, "GET", path`/v1/contracts/${service}`).catch(
    nullIfMissing,
  );
  const jobs = found?.manifest.jobs.filter((job) => job.type === type) ?? [];
  return Math.max(1, ...jobs.map(({ version }) => version));
}

function nullIfMissing(error: unknown): null {
  if (error instanceof Failure && error.exit === "notFound") return null;
  throw error;
}

function bodyOf(options: CreateOptions): Pick<Wish, "id" | "version"> {
  const { id, typeVersion: version, queue, requestId } = options;
  return {
    ...{ id, version, queue, idempotencyKey: idempotencyOf(options) },
    ...jobBody(options),
    ...(requestId !== undefined && { context: { requestId } }),
  };
}

/** The key of a create, with what is said of it. */
function idempotencyOf(options: CreateOptions): string | object | undefined {
  const { idempotencyKey: key, idempotencyScope: scope, idempotencyWindow: windowMs } = options;
  if (scope === undefined && windowMs === undefined) return key;
  if (key !== undefined) return { key, scope, windowMs };
  throw new Failure("usage", "The scope and the window are of a key; give --idempotency-key, too.");
}

function outcomeText({ outcome, replacedJobId }: CreateAnswer): string {
  switch (outcome) {
    case "existing":
      return "This job was there already.";
    case "coalesced":
      return "A job that waits already does the same work; this is its id.";
    case "replaced":
      return `It took the place of ${replacedJobId}.`;
    case "accepted":
      return "It was created.";
  }
}
