/**
 * Retry policies: how long to wait before the next try. Randomness arrives as an argument.
 */

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

/** Exponential backoff: `baseMs * factor ** (tries - 1)`, at most `maxMs`, spread by `jitter`. */
export interface ExponentialBackoff {
  readonly kind: "exponential";
  readonly baseMs?: number;
  readonly factor?: number;
  readonly maxMs?: number;
  /** The share of the delay that is random, from 0 to 1. */
  readonly jitter?: number;
}

/** A backoff by name, by list, by formula, or by a function of one's own. */
export type Backoff =
  | BackoffName
  | readonly number[]
  | ExponentialBackoff
  | ((failure: { readonly tries: number; readonly message: string }) => number);

/** The named policies. */
export type BackoffName = "default" | "linear-1m" | "linear-10m" | "linear-1h" | "exponential";

/** A named policy: fixed delays, of which the last one repeats, spread by jitter. */
export interface BackoffSteps {
  readonly delaysMs: readonly number[];
  readonly jitter: number;
}

/** The delays of every named policy that is a list. */
export const namedBackoffs: {
  readonly [Name in Exclude<BackoffName, "exponential">]: BackoffSteps;
} = {
  default: {
    delaysMs: [5 * secondMs, 30 * secondMs, 2 * minuteMs, 10 * minuteMs, 30 * minuteMs],
    jitter: 0.2,
  },
  "linear-1m": { delaysMs: steps(1 * secondMs, minuteMs, 20), jitter: 0.2 },
  "linear-10m": { delaysMs: steps(minuteMs, 10 * minuteMs, 20), jitter: 0.2 },
  "linear-1h": { delaysMs: steps(10 * minuteMs, hourMs, 50), jitter: 0.2 },
};

/** The settings of `exponential` where a definition leaves them open. */
const exponentialDefaults: Required<ExponentialBackoff> = {
  kind: "exponential",
  baseMs: secondMs,
  factor: 2,
  maxMs: hourMs,
  jitter: 0.2,
};

/** No delay is longer than this, whatever a policy says. */
export const delayMaxMs = 365 * 24 * hourMs;

/**
 * How long to wait before the next try. `tries` counts the failed ones, from 1; `random` is in [0, 1).
 * Jitter moves a delay both ways by at most half of its share.
 */
export function retryDelayMs(
  backoff: Backoff,
  tries: number,
  random: number,
  message = "",
): number {
  if (typeof backoff === "function") return bounded(backoff({ tries, message }));
  if (typeof backoff === "string" && backoff !== "exponential") {
    const { delaysMs, jitter } = namedBackoffs[backoff];
    return spread(at(delaysMs, tries), jitter, random);
  }
  if (typeof backoff === "object" && "length" in backoff) return bounded(at(backoff, tries));
  const settings = { ...exponentialDefaults, ...(typeof backoff === "object" ? backoff : null) };
  const delayMs = Math.min(settings.maxMs, settings.baseMs * settings.factor ** (tries - 1));
  return spread(delayMs, settings.jitter, random);
}

/** What is wrong with a backoff, as a sentence, or `null` when nothing is. */
export function backoffProblem(backoff: Backoff): string | null {
  if (typeof backoff === "function") return null;
  if (typeof backoff === "string") {
    const names = [...Object.keys(namedBackoffs), "exponential"];
    return names.includes(backoff)
      ? null
      : `"${backoff}" is not a backoff; use one of ${names.join(", ")}.`;
  }
  if ("length" in backoff) {
    const good =
      backoff.length > 0 && backoff.every((delayMs) => Number.isFinite(delayMs) && delayMs >= 0);
    return good ? null : "A list of delays needs at least one, each 0 ms or more.";
  }
  const { baseMs, factor, maxMs, jitter } = { ...exponentialDefaults, ...backoff };
  if (!(baseMs >= 0 && maxMs >= baseMs))
    return "An exponential backoff needs 0 <= baseMs <= maxMs.";
  if (!(factor >= 1)) return "An exponential backoff needs a factor of 1 or more.";
  return jitter >= 0 && jitter <= 1 ? null : "An exponential backoff needs a jitter from 0 to 1.";
}

function steps(fromMs: number, toMs: number, count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) =>
    Math.round(fromMs + ((toMs - fromMs) * index) / (count - 1)),
  );
}

function at(delaysMs: readonly number[], tries: number): number {
  return delaysMs[Math.min(Math.max(tries, 1), delaysMs.length) - 1] ?? 0;
}

function spread(delayMs: number, jitter: number, random: number): number {
  return bounded(delayMs * (1 + jitter * (random - 0.5)));
}

/** A policy of one's own may give nonsense, which must not become a loop without pause. */
function bounded(delayMs: number): number {
  if (Number.isNaN(delayMs)) return namedBackoffs.default.delaysMs[0] ?? 0;
  return Math.round(Math.min(Math.max(delayMs, 0), delayMaxMs));
}
