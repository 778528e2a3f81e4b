/**
 * Renewing leases, many in one statement.
 */
import type { HeldLease, RenewOutcome } from "../engine.js";
import { renewLease } from "../sql/lease.js";
import { arrays, type Step } from "../sql/statement.js";
import { list, table } from "./text.js";
import type { PostgresTransaction } from "./transaction.js";

const renew = `UPDATE leases SET until = i.until, heartbeat_at = i.at
  FROM (SELECT l.ctid AS place, i.until, i.at FROM (SELECT *, ?::bigint AS at FROM ${table("i", {
    id: "text",
    token: "int",
    until: "bigint",
  })}) AS i JOIN leases l ON l.id = i.id AND l.token = i.token ORDER BY l.id FOR NO KEY UPDATE OF l SKIP LOCKED) AS i
  WHERE leases.ctid = i.place RETURNING leases.id, leases.token, leases.cancel`;

type Renewed = readonly [id: string, token: number, cancel: number];

const standing = `SELECT l.id, l.token, l.cancel FROM ${table("i", { id: "text", token: "int" })}
  JOIN leases l ON l.id = i.id AND l.token = i.token`;

/** Extends leases. One that another transaction has locked is its holder's own, who works inside that transaction. */
export function* renewLeases(
  tx: PostgresTransaction,
  held: readonly HeldLease[],
): Step<readonly RenewOutcome[]> {
  const ids = held.map(({ job }) => job.id);
  const tokens = held.map(({ token }) => token);
  const untils = held.map(({ leaseMs }) => tx.now + leaseMs);
  const values = [tx.now, list(ids), list(tokens), list(untils)];
  const found = new Map<string, Renewed>();
  const remember = (rows: readonly Renewed[]) => {
    for (const row of rows) found.set(`${row[0]}#${row[1]}`, row);
  };
  remember(arrays<Renewed>(yield { sql: renew, values, raw: true }));
  if (found.size < held.length)
    remember(
      arrays<Renewed>(yield { sql: standing, values: [list(ids), list(tokens)], raw: true }),
    );
  const outcomes: RenewOutcome[] = [];
  for (const [index, lease] of held.entries()) {
    const row = found.get(`${lease.job.id}#${lease.token}`);
    outcomes.push(
      row
        ? { outcome: "held", leaseUntil: untils[index] ?? 0, cancelRequested: row[2] === 1 }
        : yield* renewLease(tx, lease),
    );
  }
  return outcomes;
}
