/**
 * `millrace job create`, and what it shares with starting a chain.
 */
import type { Command, Option } from "commander";
import { systemIds } from "../../client/ids.js";
import { signJob } from "../../client/signing.js";
import type { Manifest } from "../../contract/manifest.js";
import type { Json } from "../../core/json.js";
import type { CreateAnswer } from "../answers.js";
import { type Api, ask, path } from "../api.js";
import { define, option, type Run } from "../define.js";
import { Failure, messageOf } from "../failure.js";
import type { Session } from "../session.js";
import { durationMs, jsonInput, list, time, wholeNumber } from "../values.js";
import { awaitEnd } from "../wait.js";

interface CreateOptions {
  readonly id?: string;
  readonly typeVersion?: number;
  readonly queue?: string;
  readonly priority?: number;
  readonly delay?: number;
  readonly runAt?: string;
  readonly deadline?: string;
  readonly maxTries?: number;
  readonly idempotencyKey?: string;
  readonly blocker?: readonly string[];
  readonly blockerChain?: readonly string[];
  readonly tag?: readonly string[];
  readonly requestId?: string;
  readonly sign?: string;
  readonly wait?: boolean;
  readonly timeout?: number;
}

const createOptions = (): readonly Option[] => [
  option("--id <id>", "an id of your own"),
  option("--type-version <number>", "the version of the type", wholeNumber(1)),
  option("--queue <name>", "another queue than the type's own"),
  option(
    "--priority <number>",
    "higher goes first (default 0)",
    wholeNumber(-1_000_000, 1_000_000),
  ),
  option("--delay <duration>", "not before this time has passed", durationMs),
  option("--run-at <time>", "not before this time", time),
  option("--deadline <time>", "expires if it has not ended by then", time),
  option("--max-tries <number>", "how often it is tried", wholeNumber(1)),
  option("--idempotency-key <key>", "the same key gives the same job"),
  option("--blocker <ids>", "wait for these jobs first (repeatable)", list),
  option("--blocker-chain <ids>", "wait for these chains first (repeatable)", list),
  option("--tag <tags>", "mark it (repeatable)", list),
  option("--request-id <id>", "the request that it belongs to"),
  option("--sign <key>", "sign it with a private key: hexadecimal, or a file that holds it"),
  option("--wait", "follow it to its end and print its result"),
  option("--timeout <duration>", "how long --wait waits (default: for ever)", durationMs),
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
    ],
    options: createOptions(),
    run: (session, { args, options }) => create(session, "/v1/jobs", args, options),
  });
}

/** Adds the start of a chain. */
export function defineChainStart(chain: Command, run: Run): void {
  define<CreateOptions>(chain, run, {
    words: "start <service> <type> [payload]",
    says: "start a chain with its first job; the payload is JSON: inline, @file, or - for stdin",
    examples: [`millrace chain start shop approve '{"requestId":"r-1"}'`],
    options: createOptions().filter(({ long }) => long !== "--wait" && long !== "--timeout"),
    run: (session, { args, options }) => create(session, "/v1/chains", args, options),
  });
}

async function create(
  session: Session,
  route: "/v1/jobs" | "/v1/chains",
  [service = "", type = "", given = "{}"]: readonly string[],
  options: CreateOptions,
): Promise<void> {
  if (options.timeout !== undefined && !options.wait)
    throw new Failure("usage", "--timeout says how long --wait waits; give both.");
  const payload = await jsonInput("payload", given);
  const api = await session.api();
  const wish = { service, type, payload, ...bodyOf(options) };
  const body = options.sign === undefined ? wish : await signed(api, wish, options.sign);
  const created = await ask<CreateAnswer>(api, "POST", route, { body, signal: session.signal });
  if (options.wait) {
    session.output.note(`${created.id} ${created.outcome}`);
    await awaitEnd(session, created.id, options.timeout);
    return;
  }
  session.output.document(created, () => created.id);
  if (created.outcome !== "accepted" && session.output.format === "text")
    session.output.note(outcomeText(created));
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
  const none = (error: unknown) => {
    if (error instanceof Failure && error.exit === "notFound") return null;
    throw error;
  };
  const found = await ask<{ manifest: Manifest }>(api, "GET", path`/v1/contracts/${service}`).catch(
    none,
  );
  const jobs = found?.manifest.jobs.filter((job) => job.type === type) ?? [];
  return Math.max(1, ...jobs.map(({ version }) => version));
}

function bodyOf(options: CreateOptions): Pick<Wish, "id" | "version"> {
  const { typeVersion: version, delay: delayMs, tag: tags, requestId } = options;
  const { id, queue, priority, runAt, deadline, maxTries, idempotencyKey } = options;
  const blockers = [
    ...(options.blocker ?? []).map((blocker) => ({ id: blocker })),
    ...(options.blockerChain ?? []).map((blocker) => ({ id: blocker, chain: true })),
  ];
  return {
    ...{ id, version, queue, priority, delayMs, runAt, deadline, maxTries, idempotencyKey, tags },
    ...(blockers.length > 0 && { blockers }),
    ...(requestId !== undefined && { context: { requestId } }),
  };
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
