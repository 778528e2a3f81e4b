/**
 * A key that is not there cannot be locked, so a row stands in for it: an empty one, of no service, which nobody is shown.
 * The first job of the key takes its place; should there be none, it goes as keys do that nobody has used for long.
 *
 * One that is there is not made again. The attempt would wait for whoever is changing it, and then for whoever does so next: only a
 * lock has a place in line. Whoever locks keys therefore makes sure that they still were there, because one that is just being
 * removed can be seen as well.
 */
export function insertKeys(hashes: string): string {
  return `INSERT INTO keys (hash, service, type, key, max_active, max_queued, when_full, takeovers, outcome_at)
    SELECT hash, '', '', '', 0, 0, '', 0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM ${hashes} AS i (hash) WHERE (SELECT true FROM keys k WHERE k.hash = i.hash) IS NULL ON CONFLICT (hash) DO NOTHING`;
}

/** What is thrown where a key is not there any more when it is to be locked. */
export const keyRemoved = "A key was removed while it was to be locked.";
