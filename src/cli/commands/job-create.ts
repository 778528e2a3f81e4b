/**
 * `millrace job create`, and what it shares with starting a chain.
 */
import type { Command, Option } from "commander";
import type { CreateAnswer } from "../answers.js";
import { ask } from "../api.js";
import { define, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
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
  const body = { service, type, payload, ...bodyOf(options) };
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

function bodyOf(options: CreateOptions): object {
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
