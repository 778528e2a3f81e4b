// The books: a table of the callers' own beside the jobs in PostgreSQL. What is written there is written in the
// transaction that creates, completes or carries out a job, so that the books and the log must agree, whoever was killed when.
import type { JobEvent } from "millrace";
import type { Pool, PoolClient } from "pg";

/** What a row says: the job was created, completed without a worker, being carried out, or carried out, in its transaction. */
export type Entry = "created" | "completed" | "begun" | "done";

/** The ids of jobs that are created in transactions of the caller's begin so. */
export const bookedPrefix = "booked-";

/** The name of the table, where the store is one that the callers' transactions can be part of. */
export function booksOf(url: string): string | null {
  if (!url.startsWith("postgres:")) return null;
  const schema = new URL(url).searchParams.get("schema") ?? "millrace";
  return `${schema}.books`;
}

export async function makeBooks(pool: Pool, table: string): Promise<void> {
  await pool.query(`CREATE TABLE ${table} (what text, job text)`);
}

export async function enter(
  tx: PoolClient,
  table: string,
  what: Entry,
  job: string,
): Promise<void> {
  await tx.query(`INSERT INTO ${table} VALUES ($1, $2)`, [what, job]);
}

/** What was begun in the same transaction is done. */
export async function finish(tx: PoolClient, table: string, job: string): Promise<void> {
  await tx.query(`UPDATE ${table} SET what = 'done' WHERE job = $1 AND what = 'begun'`, [job]);
}

/** What a run has written into the books, and where they and the log disagree. */
export interface BooksReport {
  readonly counts: Readonly<Record<Entry, number>>;
  readonly problems: readonly string[];
}

/** Compares the books with the log: each entry once, and none without its event. */
export async function compareBooks(
  pool: Pool,
  table: string,
  events: readonly JobEvent[],
): Promise<BooksReport> {
  const { rows } = await pool.query<{ what: Entry; job: string }>(`SELECT what, job FROM ${table}`);
  const logged: Record<Entry, string[]> = { created: [], completed: [], begun: [], done: [] };
  for (const event of events) {
    if (event.name === "created" && event.jobId.startsWith(bookedPrefix))
      logged.created.push(event.jobId);
    if (event.name !== "completed") continue;
    if (event.completedBy === null) logged.completed.push(event.jobId);
    else if (event.type === "charge") logged.done.push(event.jobId);
  }
  const problems: string[] = [];
  const counts = { created: 0, completed: 0, begun: 0, done: 0 };
  for (const what of Object.keys(counts) as Entry[]) {
    const booked = rows.filter((row) => row.what === what).map(({ job }) => job);
    counts[what] = booked.length;
    const [inBooks, inLog] = [timesOf(booked), timesOf(logged[what])];
    for (const job of new Set([...inBooks.keys(), ...inLog.keys()])) {
      const [times, due] = [inBooks.get(job) ?? 0, inLog.get(job) ?? 0];
      if (times !== due)
        problems.push(
          `${job} stands ${times} times in the books as ${what}, and ${due} times in the log.`,
        );
    }
  }
  return { counts, problems };
}

function timesOf(ids: readonly string[]): ReadonlyMap<string, number> {
  const times = new Map<string, number>();
  for (const id of ids) times.set(id, (times.get(id) ?? 0) + 1);
  return times;
}
