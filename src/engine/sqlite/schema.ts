/**
 * The schema of the SQLite store, as numbered migrations that only go forward.
 */

/** Marks a file as a Millrace store ("MILL" in ASCII), so that another program's database is not written to. */
export const applicationId = 0x4d494c4c;

/** Marks a file as a projection ("MILP"), which is disposable and must never be taken for a store. */
export const projectionId = 0x4d494c50;

/** Each migration brings a store from the version before to its own. */
export const migrations: readonly string[] = [
  `
  -- Where jobs line up: a queue of a service, a type and its version.
  CREATE TABLE lanes (
    id INTEGER PRIMARY KEY,
    service TEXT NOT NULL, queue TEXT NOT NULL, type TEXT NOT NULL, type_version INTEGER NOT NULL,
    UNIQUE (service, queue, type, type_version)
  ) STRICT;

  -- The log. A job is named by the position of its first event.
  CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    name TEXT NOT NULL, version INTEGER NOT NULL, run INTEGER NOT NULL, tries INTEGER NOT NULL,
    state TEXT NOT NULL, previous TEXT, at INTEGER NOT NULL, id TEXT NOT NULL, actor TEXT NOT NULL, body TEXT,
    -- What all events of a job share; the first one holds it.
    context TEXT
  ) STRICT;
  CREATE INDEX events_of_job ON events (job, seq) WHERE name <> 'created';
  -- The highest position that a prune has seen, so that no position is given twice.
  CREATE TABLE pruned (seq INTEGER NOT NULL) STRICT;
  INSERT INTO pruned VALUES (0);
  CREATE INDEX events_deleted ON events (at) WHERE name = 'deleted';

  -- One wide row a job, written at its creation and at its end. The state is null while the job has a slim row.
  CREATE TABLE jobs (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL, run_at INTEGER NOT NULL, created_at INTEGER NOT NULL, deadline INTEGER,
    max_tries INTEGER NOT NULL, key TEXT, key_hash TEXT, key_max INTEGER, tags TEXT, parent_id TEXT, chain_id TEXT, agent TEXT,
    state TEXT, version INTEGER, run INTEGER, tries INTEGER, token INTEGER, started_at INTEGER, ended_at INTEGER,
    updated_at INTEGER, detail TEXT, aggregate TEXT
  ) STRICT;
  CREATE INDEX jobs_ended ON jobs (lane, state, ended_at) WHERE state IS NOT NULL;
  CREATE INDEX jobs_of_key ON jobs (key_hash, n) WHERE key_hash IS NOT NULL;
  CREATE INDEX jobs_of_parent ON jobs (parent_id) WHERE parent_id IS NOT NULL;
  CREATE INDEX jobs_of_chain ON jobs (chain_id) WHERE chain_id IS NOT NULL;
  CREATE INDEX jobs_first_of_chain ON jobs (n) WHERE chain_id = id;
  CREATE TABLE tags (tag TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (tag, n)) STRICT, WITHOUT ROWID;
  CREATE INDEX tags_of_job ON tags (n);

  -- One slim row for each job that has not ended: waiting, ready to be claimed, or leased.
  CREATE TABLE waiting (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL, lane INTEGER NOT NULL, rank INTEGER NOT NULL, run_at INTEGER NOT NULL,
    state TEXT NOT NULL, version INTEGER NOT NULL, run INTEGER NOT NULL, tries INTEGER NOT NULL, token INTEGER NOT NULL,
    deadline INTEGER, updated_at INTEGER NOT NULL, started_at INTEGER, detail TEXT, key TEXT, key_max INTEGER,
    noted INTEGER NOT NULL, cause TEXT NOT NULL
  ) STRICT;
  CREATE INDEX waiting_due ON waiting (lane, run_at) WHERE cause = 'due';
  CREATE INDEX waiting_of_key ON waiting (key, rank, run_at, id) WHERE key IS NOT NULL;
  CREATE INDEX waiting_blocked ON waiting (n) WHERE cause = 'blocked';
  CREATE INDEX waiting_deadline ON waiting (deadline) WHERE deadline IS NOT NULL;
  CREATE TABLE ready (
    lane INTEGER NOT NULL, rank INTEGER NOT NULL, run_at INTEGER NOT NULL, id TEXT NOT NULL, n INTEGER NOT NULL,
    state TEXT NOT NULL, version INTEGER NOT NULL, run INTEGER NOT NULL, tries INTEGER NOT NULL, token INTEGER NOT NULL,
    deadline INTEGER, updated_at INTEGER NOT NULL, started_at INTEGER, detail TEXT, key TEXT, key_max INTEGER,
    noted INTEGER NOT NULL,
    PRIMARY KEY (lane, rank, run_at, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX ready_deadline ON ready (deadline) WHERE deadline IS NOT NULL;
  CREATE TABLE leases (
    id TEXT PRIMARY KEY, n INTEGER NOT NULL, lane INTEGER NOT NULL, rank INTEGER NOT NULL, run_at INTEGER NOT NULL,
    version INTEGER NOT NULL, run INTEGER NOT NULL, tries INTEGER NOT NULL, token INTEGER NOT NULL, deadline INTEGER,
    key TEXT, key_max INTEGER, worker TEXT NOT NULL, started_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    until INTEGER NOT NULL, capped INTEGER NOT NULL, cancel INTEGER NOT NULL, blocked INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  -- One row for each place taken under a key, and under a cap by a job that was ended from outside, until the time given.
  CREATE TABLE slots (
    scope TEXT NOT NULL, job TEXT NOT NULL, token INTEGER NOT NULL, until INTEGER, PRIMARY KEY (scope, job, token)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX slots_ended ON slots (until) WHERE until IS NOT NULL;
  CREATE INDEX slots_of_ended ON slots (job) WHERE until IS NOT NULL;

  -- Which jobs and chains each job names as its blockers, in order. The state is that of a blocker which was removed.
  CREATE TABLE blockers (
    n INTEGER NOT NULL, place INTEGER NOT NULL, blocker TEXT NOT NULL, chain INTEGER NOT NULL, strict INTEGER NOT NULL,
    state TEXT, PRIMARY KEY (n, place)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX blockers_by_id ON blockers (blocker);

  CREATE TABLE keys (
    hash TEXT PRIMARY KEY, service TEXT NOT NULL, type TEXT NOT NULL, key TEXT NOT NULL,
    max_active INTEGER NOT NULL, max_queued INTEGER NOT NULL, when_full TEXT NOT NULL,
    takeovers INTEGER NOT NULL, outcome TEXT, outcome_at INTEGER
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX keys_by_use ON keys (outcome_at);
  CREATE INDEX keys_by_name ON keys (key);

  CREATE TABLE records (
    id TEXT PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL, expires_at INTEGER
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
  `,
  `
  -- One row for each job that has ended, where its slim row was before: wide rows are written once, at creation.
  CREATE TABLE ended (
    n INTEGER PRIMARY KEY, lane INTEGER NOT NULL, state TEXT NOT NULL, version INTEGER NOT NULL, run INTEGER NOT NULL,
    tries INTEGER NOT NULL, token INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
    detail TEXT, aggregate TEXT
  ) STRICT;
  INSERT INTO ended SELECT n, lane, state, version, run, tries, token, started_at, ended_at, updated_at, detail, aggregate
    FROM jobs WHERE state IS NOT NULL;
  CREATE INDEX ended_of_lane ON ended (lane, state, ended_at);
  DROP INDEX jobs_ended;
  ALTER TABLE jobs DROP COLUMN state;
  ALTER TABLE jobs DROP COLUMN version;
  ALTER TABLE jobs DROP COLUMN run;
  ALTER TABLE jobs DROP COLUMN tries;
  ALTER TABLE jobs DROP COLUMN token;
  ALTER TABLE jobs DROP COLUMN started_at;
  ALTER TABLE jobs DROP COLUMN ended_at;
  ALTER TABLE jobs DROP COLUMN updated_at;
  ALTER TABLE jobs DROP COLUMN detail;
  ALTER TABLE jobs DROP COLUMN aggregate;
  `,
  `
  -- The creation of a job stands in its wide row, and has no other in the log. What may be long comes last, where who reads
  -- the rest of the row does not pass it.
  ALTER TABLE jobs ADD COLUMN created_id TEXT;
  ALTER TABLE jobs ADD COLUMN created_by TEXT;
  ALTER TABLE jobs ADD COLUMN created_state TEXT;
  ALTER TABLE jobs ADD COLUMN context TEXT;
  ALTER TABLE jobs ADD COLUMN created_body TEXT;
  UPDATE jobs SET (created_id, created_by, created_state, context, created_body) =
    (SELECT id, actor, state, context, body FROM events WHERE seq = n);
  DELETE FROM events WHERE name = 'created';
  DROP INDEX events_of_job;
  ALTER TABLE events DROP COLUMN context;
  CREATE INDEX events_of_job ON events (job, seq);
  `,
  "-- Creations leave out what is implied, which earlier versions do not fill in.",
  `
  -- All leases, each by itself. Other stores keep some of them together.
  CREATE VIEW held AS SELECT * FROM leases;
  CREATE VIEW held_by_job AS SELECT * FROM leases;
  `,
];

/** What a projection has besides: whose it is and how far it has come, and the jobs that wait for a ticket. */
export const projectionTables = `
  CREATE TABLE projection (
    identity TEXT, origin TEXT, position INTEGER NOT NULL, ignored INTEGER NOT NULL,
    leader TEXT, leader_until INTEGER
  ) STRICT;
  INSERT INTO projection (position, ignored) VALUES (0, 0);
  -- Jobs that were put in line before their time and have had no ticket since it came.
  CREATE TABLE delayed (
    n INTEGER PRIMARY KEY, lane INTEGER NOT NULL, run_at INTEGER NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX delayed_by_time ON delayed (lane, run_at);
  `;
