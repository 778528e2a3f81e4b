/**
 * How much waits under concurrency keys, by type: from the slim rows alone, which are few.
 */
import type { KeyCount } from "../query.js";
import { int, type Step, text } from "./statement.js";

const countUnderKeys = `SELECT l.service, l.type, sum(c.blocked) AS blocked, sum(c.waiting) AS waiting FROM (
    SELECT lane, count(*) AS waiting, 0 AS blocked FROM waiting WHERE key IS NOT NULL GROUP BY lane
    UNION ALL SELECT lane, 0, count(DISTINCT key) FROM leases WHERE blocked = 1 GROUP BY lane
  ) AS c JOIN lanes l ON l.id = c.lane GROUP BY l.service, l.type ORDER BY l.service, l.type`;

/** The types of which a job waits under a key, or a key is blocked. */
export function* countKeys(): Step<readonly KeyCount[]> {
  const rows = yield { sql: countUnderKeys, values: [] };
  return rows.map((row) => ({
    service: text(row, "service"),
    type: text(row, "type"),
    waiting: int(row, "waiting"),
    blocked: int(row, "blocked"),
  }));
}
