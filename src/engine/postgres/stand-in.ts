/**
 * A key that is not there cannot be locked, so a row stands in for it: an empty one, of no service, which nobody is shown.
 * The first job of the key takes its place; should there be none, it goes as keys do that nobody has used for long.
 */
export function insertKeys(hashes: string): string {
  return `INSERT INTO keys (hash, service, type, key, max_active, max_queued, when_full, takeovers, outcome_at)
    SELECT hash, '', '', '', 0, 0, '', 0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM ${hashes} AS i (hash) ON CONFLICT (hash) DO NOTHING`;
}
