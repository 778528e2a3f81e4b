/**
 * The settings under which statements of ours are planned and wait for locks: for one transaction where a pooler may stand
 * between, and for a session where the server itself answers.
 */
import type { PoolClient } from "pg";

/** The most time that a transaction of ours waits for a lock that somebody else holds: longer than a disk that stalls. */
export const lockTimeoutMs = 5_000;

const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";

/** Asks for the server's time. */
export const selectNow = `SELECT ${now}`;

/**
 * Rows of `ready` and `leases` come and go faster than statistics follow, and a plan for a table that was empty a minute ago
 * reads all of it. Every statement of ours has an index to go by, so that the planner is told to use it. There is but one plan
 * for each, so that one which is remembered is never made again for other values.
 */
const planning = {
  jit: "off",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  enable_mergejoin: "off",
  plan_cache_mode: "force_generic_plan",
};

const locking = (lockMs: number) => ({ lock_timeout: String(lockMs) });

/** One statement makes all settings, which costs less than one for each; for the transaction, or for the session. */
function setting(settings: Readonly<Record<string, string>>, isLocal: boolean): string {
  const calls = Object.entries(settings).map(
    ([name, value]) => `set_config('${name}', '${value}', ${isLocal})`,
  );
  return `SELECT ${calls.join(", ")}`;
}

/**
 * The isolation is said, too, because a database may have another default, under which those who meet would fail instead of
 * waiting for each other.
 */
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED";

function beginWith(settings: Readonly<Record<string, string>>): string {
  return `${begin}; ${setting(settings, true)}, ${now}`;
}

const beginAnywhere = beginWith({ ...planning, ...locking(lockTimeoutMs) });
const beginWhereSettled = beginWith(locking(lockTimeoutMs));

/**
 * Begins a transaction, in a session that has the settings, whose statements are planned for their values: what people ask for
 * finds few rows or most of them, and one plan for both goes through all.
 */
export const beginLook = beginWith({ plan_cache_mode: "auto" });

/** Begins a transaction, in a session that has the settings or in any, and asks for the time. `lockMs` is how long it waits for a lock. */
export function beginText(isSettled: boolean, lockMs = lockTimeoutMs): string {
  if (lockMs === lockTimeoutMs) return isSettled ? beginWhereSettled : beginAnywhere;
  return beginWith({ ...(isSettled ? null : planning), ...locking(lockMs) });
}

/** Makes the settings for a session that nobody else gets, where a statement may be a transaction of its own. */
export async function settle(client: PoolClient): Promise<void> {
  const isolation = { default_transaction_isolation: "read committed" };
  await client.query(setting({ ...planning, ...isolation, ...locking(lockTimeoutMs) }, false));
}
