/**
 * The checker reads nothing but a log of events and says where it breaks the rules. It keeps ledgers of its own
 * beside the core's fold, so that a mistake in the fold does not hide itself.
 */
import { blockerVerdict } from "../core/chains.js";
import type { EventOf, JobEvent } from "../core/event.js";
import { evolve } from "../core/evolve.js";
import { isEnded, type Job, type JobState } from "../core/job.js";
import { canonicalJson } from "../core/json.js";
import { transitions } from "../core/transitions.js";
import type { TaggedJob } from "../engine/query.js";
import { type FoldRow, rowDifferences } from "./row-of-fold.js";

/** The rules that a log must obey. */
export type LogRule =
  | "legal_transition"
  | "dense_versions"
  | "current_token"
  | "growing_tokens"
  | "one_terminal_per_run"
  | "no_start_after_end"
  | "tries_within_bounds"
  | "truthful_envelope"
  | "not_before_due"
  | "not_after_deadline"
  | "key_limit"
  | "key_depth"
  | "type_limit"
  | "queue_limit"
  | "dependency_order"
  | "nothing_unfinished"
  | "view_equals_fold";

/** Where a log breaks a rule. */
export interface Violation {
  readonly rule: LogRule;
  readonly jobId: string;
  readonly sentence: string;
  readonly eventId?: string;
}

/** What a check may know beside the log. */
export interface CheckOptions {
  /** Every job must have ended. */
  readonly finished?: boolean;
  /** The rows of the read model, all of them. */
  readonly rows?: Iterable<FoldRow>;
  /** The tags that lists find jobs by, of all jobs that have some. */
  readonly tagged?: Iterable<TaggedJob>;
  /** Cluster-wide limits of active jobs, by `service/type` and by `service/queue`. */
  readonly typeLimits?: Readonly<Record<string, number>>;
  readonly queueLimits?: Readonly<Record<string, number>>;
}

/** What the checker itself counts of a job. */
interface Ledger {
  job: Job | null;
  token: number;
  /** Starts minus releases of this run. */
  tries: number;
  /** The event that ended this run. */
  ending: string | null;
  /** Its blockers have let it go, in this run or in one before. */
  letGo: boolean;
  /** After how many events it began to wait for its blockers, and from which end it last came back. */
  blockedAt: number;
  cameBack: { readonly at: number; readonly from: JobState } | null;
  /** How it was created where its full key was not asked, which only a job may be that ends with its next event. */
  unasked: { readonly event: JobEvent; readonly sentence: string } | null;
}

/** Events that end a run. `dismissed` and `deleted` are an admin's marks, not outcomes. */
const endings: ReadonlySet<string> = new Set([
  "completed",
  "failed",
  "cancelled",
  "expired",
  "skipped",
  "stale",
  "dead",
  "unreachable",
]);

/** Checks a whole log, such as all of a feed. */
export async function checkLog(
  events: AsyncIterable<JobEvent> | Iterable<JobEvent>,
  options: CheckOptions = {},
): Promise<readonly Violation[]> {
  const checker = new LogChecker(options);
  for await (const event of events) checker.see(event);
  return checker.finish();
}

/** Checks a log event by event, in the order of the feed. */
export class LogChecker {
  readonly #options: CheckOptions;
  readonly #violations: Violation[] = [];
  readonly #ledgers = new Map<string, Ledger>();
  /** The active jobs under each limit, and the unfinished ones of each key. */
  readonly #active = new Groups();
  readonly #unfinished = new Groups();

  /** The jobs of each chain, oldest first. */
  readonly #chains = new Map<string, readonly string[]>();
  readonly #removed = new Set<string>();
  #seen = 0;

  constructor(options: CheckOptions = {}) {
    this.#options = options;
  }

  /** Looks at the next event. */
  see(event: JobEvent): void {
    const ledger = this.#ledgers.get(event.jobId) ?? {
      job: null,
      token: 0,
      tries: 0,
      ending: null,
      letGo: false,
      blockedAt: 0,
      cameBack: null,
      unasked: null,
    };
    this.#seen += 1;
    this.#ledgers.set(event.jobId, ledger);
    const before = ledger.job;
    if (event.name === "deleted") this.#removed.add(event.jobId);
    // The log of a job is removed with it, so that a lone `deleted` is all that is left to read.
    if (before === null && event.name === "deleted") return;
    this.#checkLedger(ledger, event);
    const { job, ignored } = evolve(before, event);
    if (ignored !== null) {
      this.#report(ruleOf(ignored), event, `${event.name} does not count here: ${ignored}`);
      return;
    }
    this.#checkEnvelope(before, job, event);
    if (event.name === "created") this.#checkCreate(ledger, event);
    if (event.name === "unblocked" && before) this.#checkUnblocked(before, ledger.blockedAt, event);
    if (event.name === "unblocked") ledger.letGo = true;
    if (event.name === "retried" && before)
      ledger.cameBack = { at: this.#seen, from: before.state };
    if (job?.state === "blocked" && before?.state !== "blocked") ledger.blockedAt = this.#seen;
    ledger.job = job;
    this.#count(before, job);
    if (event.name === "started" && before && job) {
      this.#checkStart(before, job, event);
      if (before.blockers.length > 0 && !ledger.letGo)
        this.#report("dependency_order", event, "started without having been let go");
    }
    if (event.name === "created" && event.chainId !== undefined)
      this.#chains.set(event.chainId, [...(this.#chains.get(event.chainId) ?? []), event.jobId]);
    if (job === null) this.#ledgers.delete(event.jobId);
  }

  /** Looks at what is left when the log is over, and gives everything that was found. */
  finish(): readonly Violation[] {
    for (const ledger of this.#ledgers.values()) this.#reportUnasked(ledger);
    if (this.#options.finished) this.#checkFinished();
    if (this.#options.rows) this.#checkRows(this.#options.rows);
    if (this.#options.tagged) this.#checkTags(this.#options.tagged);
    return this.#violations;
  }

  /** The job as the log tells it so far. */
  job(id: string): Job | null {
    return this.#ledgers.get(id)?.job ?? null;
  }

  /** The rules that need only the names and tokens of events, whatever the fold makes of them. */
  #checkLedger(ledger: Ledger, event: JobEvent): void {
    if (!endings.has(event.name)) this.#reportUnasked(ledger);
    ledger.unasked = null;
    if (event.name === "retried") {
      ledger.ending = null;
      ledger.tries = 0;
    } else if (event.name === "started") {
      if (event.token <= ledger.token) {
        this.#report(
          "growing_tokens",
          event,
          `started under token ${event.token} after ${ledger.token}`,
        );
      }
      if (ledger.ending)
        this.#report("no_start_after_end", event, `started after ${ledger.ending}`);
      ledger.token = Math.max(ledger.token, event.token);
      ledger.tries += 1;
    } else if (event.name === "released") {
      ledger.tries -= 1;
    } else if (endings.has(event.name)) {
      if (ledger.ending) {
        const sentence = `${event.name} is a second outcome of run ${event.run} after ${ledger.ending}`;
        this.#report("one_terminal_per_run", event, sentence);
      }
      ledger.ending = event.name;
    }
    if (event.name === "deleted") ledger.ending = null;
    const maxTries = ledger.job?.maxTries ?? Number.POSITIVE_INFINITY;
    if (ledger.tries < 0 || ledger.tries > maxTries) {
      this.#report("tries_within_bounds", event, `try ${ledger.tries} of ${maxTries}`);
    }
  }

  /** An event says of the job what the fold says. Notes may be written at an older version. */
  #checkEnvelope(before: Job | null, after: Job | null, event: JobEvent): void {
    if (transitions[event.name].kind !== "change" || after === null) return;
    const said = [event.state, event.previousState, event.version, event.run, event.tries];
    const folded = [after.state, before?.state ?? null, after.version, after.run, after.tries];
    if (said.join() === folded.join()) return;
    this.#report(
      "truthful_envelope",
      event,
      `${event.name} says ${said.join()}, the fold ${folded.join()}`,
    );
  }

  /**
   * A create that replaced a job took its place, also where retries by hand have overfilled the key.
   * A continuation that was not let in is skipped at once, and must not be open for longer; nor must one be whose key was not asked.
   */
  #checkCreate(ledger: Ledger, event: EventOf<"created">): void {
    const outcome = event.policy?.outcome;
    if (event.key === undefined || outcome === "replaced") return;
    if (outcome === "rejected" || outcome === "coalesced") return;
    const depth = event.key.maxActive + event.key.maxQueued;
    const unfinished = this.#unfinished.size(event.key.hash);
    if (unfinished < depth) return;
    const sentence = `was let in where ${unfinished} of ${depth} places of key ${event.key.key} were taken`;
    if (outcome === undefined) ledger.unasked = { event, sentence };
    else this.#report("key_depth", event, sentence);
  }

  #reportUnasked({ unasked }: Ledger): void {
    if (unasked) this.#report("key_depth", unasked.event, unasked.sentence);
  }

  /** Slots of jobs that were ended from outside do not show in the log, and could only make these limits stricter. */
  #checkStart(before: Job, job: Job, event: EventOf<"started">): void {
    if (before.runAt > event.at) {
      this.#report(
        "not_before_due",
        event,
        `started ${before.runAt - event.at} ms before its time`,
      );
    }
    if (before.deadline !== undefined && before.deadline <= event.at) {
      this.#report("not_after_deadline", event, "started when its deadline had come");
    }
    const { typeLimits = {}, queueLimits = {} } = this.#options;
    const type = `${job.service}/${job.type}`;
    const queue = `${job.service}/${job.queue}`;
    const limits = [
      { rule: "key_limit", group: `key ${job.key?.hash}`, limit: job.key?.maxActive },
      { rule: "type_limit", group: `type ${type}`, limit: typeLimits[type] },
      { rule: "queue_limit", group: `queue ${queue}`, limit: queueLimits[queue] },
    ] as const;
    for (const { rule, group, limit } of limits) {
      const active = this.#active.size(group);
      if (limit !== undefined && active > limit) {
        this.#report(rule, event, `is number ${active} to run under ${group}, where ${limit} may`);
      }
    }
  }

  #checkUnblocked(before: Job, since: number, event: JobEvent): void {
    const { verdict } = blockerVerdict(before.blockers, ({ jobId, chain }) =>
      chain ? this.#chainState(jobId, since) : this.#stateSince(jobId, since),
    );
    if (verdict === "wait")
      this.#report("dependency_order", event, "went on before its blockers had ended");
  }

  /**
   * The state of a job, or the end that it had come to since and was retried from: whoever waits for it may have been found ready
   * to go on before that.
   */
  #stateSince(id: string, since: number): JobState | undefined {
    const ledger = this.#ledgers.get(id);
    const state = ledger?.job?.state;
    const cameBack = ledger?.cameBack ?? null;
    if (state === undefined || isEnded(state) || cameBack === null) return state;
    return cameBack.at > since ? cameBack.from : state;
  }

  /** A chain has not ended while one of its jobs has not; then it is as its newest job is. */
  #chainState(chainId: string, since: number): JobState | undefined {
    let state: JobState | undefined;
    for (const jobId of this.#chains.get(chainId) ?? []) {
      const next = this.#stateSince(jobId, since);
      if (next !== undefined && (state === undefined || isEnded(state))) state = next;
    }
    return state;
  }

  /**
   * Whether a job was continued and its continuation is missing: both are stored together. Only the whole log tells, because of
   * a continuation that was removed since nothing is left but its last event.
   */
  #isTorn({ continuedBy }: Job): boolean {
    if (continuedBy === undefined) return false;
    return !this.#ledgers.has(continuedBy) && !this.#removed.has(continuedBy);
  }

  #count(before: Job | null, after: Job | null): void {
    const job = after ?? before;
    if (job === null) return;
    const groups = [`type ${job.service}/${job.type}`, `queue ${job.service}/${job.queue}`];
    if (job.key) groups.push(`key ${job.key.hash}`);
    for (const group of groups) this.#active.put(group, job.id, after?.state === "active");
    if (job.key)
      this.#unfinished.put(job.key.hash, job.id, after !== null && !isEnded(after.state));
  }

  #checkFinished(): void {
    for (const { job } of this.#ledgers.values()) {
      if (job === null || (isEnded(job.state) && !this.#isTorn(job))) continue;
      const sentence = isEnded(job.state)
        ? `goes on with ${job.continuedBy}, which was never created`
        : `is still ${job.state} under token ${job.token} after try ${job.tries}`;
      this.#violations.push({ rule: "nothing_unfinished", jobId: job.id, sentence });
    }
  }

  #checkRows(rows: Iterable<FoldRow>): void {
    const report = (jobId: string, sentence: string) =>
      this.#violations.push({ rule: "view_equals_fold", jobId, sentence });
    const seen = new Set<string>();
    for (const row of rows) {
      if (seen.has(row.id)) report(row.id, "has two rows");
      seen.add(row.id);
      const job = this.job(row.id);
      if (job === null) report(row.id, "has a row and no log");
      else
        for (const difference of rowDifferences(row, job))
          report(row.id, `has two stories: ${difference}`);
    }
    for (const [id, { job }] of this.#ledgers) {
      if (job !== null && !seen.has(id)) report(id, "has a log and no row");
    }
  }

  #checkTags(tagged: Iterable<TaggedJob>): void {
    const report = (jobId: string, sentence: string) =>
      this.#violations.push({ rule: "view_equals_fold", jobId, sentence });
    const text = (tags: readonly string[] = []) => canonicalJson([...new Set(tags)].sort());
    const found = new Map<string, readonly string[]>();
    for (const { jobId, tags } of tagged) {
      if (jobId === null) report("unknown", `is gone and has left the tags ${text(tags)} behind`);
      else found.set(jobId, tags);
    }
    for (const [id, { job }] of this.#ledgers) {
      const [seen, folded] = [text(found.get(id)), text(job?.tags)];
      if (seen !== folded)
        report(id, `has two stories: lists find it by the tags ${seen}, and its log has ${folded}`);
      found.delete(id);
    }
    for (const id of found.keys()) report(id, "is found by tags and has no log");
  }

  #report(rule: LogRule, event: JobEvent, sentence: string): void {
    const { jobId, id, version, run } = event;
    const where = `Job ${jobId} (version ${version}, run ${run})`;
    this.#violations.push({ rule, jobId, eventId: id, sentence: `${where} ${sentence}.` });
  }
}

/** Sets of job ids by name. */
class Groups {
  readonly #groups = new Map<string, Set<string>>();

  size(group: string): number {
    return this.#groups.get(group)?.size ?? 0;
  }

  put(group: string, jobId: string, inside: boolean): void {
    const members = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, members);
    if (inside) members.add(jobId);
    else members.delete(jobId);
  }
}

function ruleOf(ignored: string): LogRule {
  if (ignored === "out of order") return "dense_versions";
  return ignored === "not the current token" ? "current_token" : "legal_transition";
}
