/**
 * How the admin runtime is. What it lives from may be away, and that is a finding: the call itself answers, in time.
 */
import { inTime } from "../client/in-time.js";
import type { Runtime } from "../client/runtime.js";
import type { Clock } from "../engine/clock.js";
import { isStoreError } from "../engine/errors.js";
import type { Logger } from "../engine/logger.js";
import { type HealthCheck, type HealthWire, timeText } from "./wire.js";

/** How long a look may take; callers wait for 10 s by default. */
const lookMs = 5_000;

/** What a look is made with. */
export interface LookOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long it may take; 5 s by default. */
  readonly limitMs?: number;
}

/** Whose health is told. */
export interface HealthSource extends Omit<Runtime, "service"> {
  /** The version of Millrace. */
  readonly version: string;
  readonly startedAt: number;
  /** Looks at what else the admin runtime lives from, such as its projection. */
  readonly checks?: () => Promise<readonly HealthCheck[]>;
}

/** Looks at something. A look that fails or takes too long is a failed check of the given name. */
export async function looked(
  name: string,
  look: () => Promise<readonly HealthCheck[]>,
  { clock, logger, limitMs = lookMs }: LookOptions,
): Promise<readonly HealthCheck[]> {
  const failed = (detail: string): HealthCheck => ({ name, status: "failed", detail });
  try {
    const looking = look();
    if (await inTime(clock, looking, limitMs)) return await looking;
    return [failed(`It has not answered within ${limitMs / 1_000} s.`)];
  } catch (error) {
    if (isStoreError(error)) return [failed(error.message)];
    // What is not for callers is for the log.
    logger.error({ error, check: name }, "A check of the admin runtime's health failed.");
    return [failed("It cannot be looked at; the log of the admin runtime says why.")];
  }
}

/** Carries out `Jobs.Health`. */
export async function health(source: HealthSource): Promise<HealthWire> {
  const { engine, version, instance, startedAt, checks = async () => [] } = source;
  const store = async (): Promise<readonly HealthCheck[]> => {
    await engine.head();
    return [{ name: "store", status: "ok", detail: engine.url }];
  };
  const looks = [looked("store", store, source), looked("checks", checks, source)];
  const all = (await Promise.all(looks)).flat();
  const isHealthy = all.every(({ status }) => status === "ok");
  return {
    status: isHealthy ? "healthy" : "unhealthy",
    version,
    instance,
    startedAt: timeText(startedAt),
    checks: all,
  };
}
