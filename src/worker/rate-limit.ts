/**
 * A limit on how many tries may begin within a time, over all processes: a record holds when the last ones began and who
 * is to begin when. A job that has to wait is given back until its turn, which costs no try.
 */
import { canonicalHash } from "../core/json.js";
import { recordId } from "../engine/record.js";
import type { ActiveJob } from "./active-job.js";
import type { Middleware } from "./middleware.js";
import { snooze } from "./outcome.js";
import { RecordContended, SharedRecord, SharedRecords } from "./shared-record.js";

/** The largest limit; a record must hold when each of them began. */
const limitMax = 1_000;

/** How many jobs may have their turn planned. Who comes later asks again when these have had theirs. */
const plannedMax = 1_000;

/** How late a job may come to its turn before it loses it: it may have been cancelled, or its queue paused. */
const missedMs = 60_000;

/** How long a job is given back at least when others kept it from asking for its turn. */
const contendedMs = 100;

/** The longest time in which tries are counted. */
const windowMaxMs = 7 * 24 * 60 * 60 * 1_000;

/** How a rate is limited. */
export interface RateLimitOptions {
  /** How many tries may begin within the time; at most 1,000. */
  readonly limit: number;
  readonly windowMs: number;
  /**
   * What is counted together: tries of one type by default, or of everything for which this gives the same text.
   * What it gives `null` for is not limited.
   */
  readonly by?: (job: ActiveJob<unknown>) => string | null;
  /** Tells limits of the same size apart that count different things by the same texts. */
  readonly name?: string;
}

/** When the last tries began, oldest first, and which jobs are to come again when. */
interface Turns {
  begun: number[];
  planned: (readonly [id: string, at: number])[];
}

/**
 * Lets at most so many tries begin within any such time, over all processes of the service.
 *
 * @example
 * service.use(rateLimit({ limit: 10, windowMs: 1_000 }));
 */
export function rateLimit(options: RateLimitOptions): Middleware {
  const { limit, windowMs, name = "", by = ({ type }) => type } = options;
  checkNumber("limit", limit, limitMax);
  checkNumber("windowMs", windowMs, windowMaxMs);
  const rate = { limit, windowMs };
  const keptMs = Math.max(windowMs, missedMs);
  const records = new SharedRecords<Turns>(
    (engine, id) =>
      new SharedRecord(
        engine,
        id,
        (body) => structuredClone(body as unknown as Turns | null) ?? { begun: [], planned: [] },
        (body) => ({ body, expiresAt: Math.max(...timesOf(body)) + keptMs }),
      ),
  );
  return async (job, next, { engine, service, ids }) => {
    const counted = by(job);
    if (counted === null) return next();
    const hash = canonicalHash({ name, limit, windowMs, counted });
    const record = records.of(engine, recordId.rate(service, hash));
    const turn = await record
      .change((body) => takeTurn(body, job.id, rate, engine.now()))
      .catch(contended);
    if (turn === "now") return next();
    if (turn === "contended") {
      const delayMs = contendedMs + Math.round(ids.random() * contendedMs);
      return snooze(delayMs, "others took their turns all the time");
    }
    // Those without a turn of their own come at different times.
    const spreadMs = turn.isPlanned ? 0 : Math.round(ids.random() * windowMs);
    const delayMs = Math.max(turn.at - engine.now(), 0) + spreadMs;
    return snooze(delayMs, `limited to ${limit} in ${windowMs} ms`);
  };
}

/** That others were faster, time and again, is no failure of the try. */
function contended(error: unknown): "contended" {
  if (error instanceof RecordContended) return "contended";
  throw error;
}

type Turn = "now" | { readonly at: number; readonly isPlanned: boolean };

/** Takes the job's turn if it has come, and plans it otherwise. */
function takeTurn(
  body: Turns,
  id: string,
  { limit, windowMs }: { readonly limit: number; readonly windowMs: number },
  now: number,
): Turn {
  const hadTurn = body.planned.some(([planned]) => planned === id);
  body.begun = body.begun.filter((at) => at > now - windowMs);
  body.planned = body.planned.filter(([other, at]) => other !== id && at > now - missedMs);
  // Who has a turn goes before those whose turn is planned for later.
  const ahead = hadTurn ? body.begun : timesOf(body);
  const at = earliest(ahead, limit, windowMs, now);
  if (at <= now) {
    body.begun = inOrder([...body.begun, now]);
    return "now";
  }
  if (body.planned.length >= plannedMax)
    return { at: Math.max(...timesOf(body)), isPlanned: false };
  body.planned.push([id, at]);
  return { at, isPlanned: true };
}

/** The first time from now on at which fewer than the limit have begun, or are to, within the window before it. */
function earliest(times: readonly number[], limit: number, windowMs: number, now: number): number {
  return Math.max((times[times.length - limit] ?? Number.NEGATIVE_INFINITY) + windowMs, now);
}

function timesOf({ begun, planned }: Turns): readonly number[] {
  return inOrder([...begun, ...planned.map(([, at]) => at)]);
}

function inOrder(times: number[]): number[] {
  return times.sort((a, b) => a - b);
}

function checkNumber(field: string, value: number, most: number): void {
  if (Number.isSafeInteger(value) && value >= 1 && value <= most) return;
  throw new RangeError(
    `rateLimit: ${field} is ${value}; it must be a whole number from 1 to ${most}.`,
  );
}
