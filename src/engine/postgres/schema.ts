/**
 * The schema of the PostgreSQL store, as numbered migrations that only go forward.
 * Tables and columns are those of the SQLite store, and rounds besides; text compares by bytes, as it does there.
 */
import { roundMax } from "./rounds.js";

/** What a projection has besides: whose it is and how far it has come, and the jobs that wait for a ticket. */
export const projectionTables = `
  CREATE TABLE projection (
    position bigint NOT NULL, ignored bigint NOT NULL, leader_until bigint,
    identity text COLLATE "C", origin text COLLATE "C", leader text COLLATE "C"
  );
  INSERT INTO projection (position, ignored) VALUES (0, 0);
  -- Jobs that were put in line before their time and have had no ticket since it came.
  CREATE TABLE delayed (
    n bigint PRIMARY KEY, run_at bigint NOT NULL, lane int NOT NULL, version int NOT NULL, id text COLLATE "C" NOT NULL
  );
  CREATE INDEX delayed_by_time ON delayed (lane, run_at);
  `;

/** Each migration brings a store from the version before to its own. */
export const migrations: readonly string[] = [
  `
  -- Where jobs line up: a queue of a service, a type and its version.
  CREATE TABLE lanes (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service text COLLATE "C" NOT NULL, queue text COLLATE "C" NOT NULL, type text COLLATE "C" NOT NULL,
    type_version int NOT NULL,
    UNIQUE (service, queue, type, type_version)
  );

  -- The log. A job is named by the position of its first event. The transaction tells the feed what it has seen.
  CREATE SEQUENCE events_seq;
  CREATE TABLE events (
    seq bigint PRIMARY KEY DEFAULT nextval('events_seq'),
    job bigint NOT NULL,
    at bigint NOT NULL, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    version int NOT NULL, run int NOT NULL, tries int NOT NULL,
    name text COLLATE "C" NOT NULL, state text COLLATE "C" NOT NULL, previous text COLLATE "C",
    id text COLLATE "C" NOT NULL, actor text COLLATE "C" NOT NULL, body text COLLATE "C",
    -- What all events of a job share; the first one holds it.
    context text COLLATE "C"
  );
  ALTER SEQUENCE events_seq OWNED BY events.seq;
  CREATE INDEX events_of_job ON events (job, seq) WHERE name <> 'created';
  CREATE INDEX events_of_transaction ON events (xid);
  CREATE INDEX events_deleted ON events (at) WHERE name = 'deleted';

  -- One wide row a job, written at its creation and at its end. The state is null while the job has a slim row.
  CREATE TABLE jobs (
    n bigint PRIMARY KEY,
    run_at bigint NOT NULL, created_at bigint NOT NULL, deadline bigint,
    started_at bigint, ended_at bigint, updated_at bigint,
    lane int NOT NULL, priority int NOT NULL, max_tries int NOT NULL, key_max int,
    version int, run int, tries int, token int,
    id text COLLATE "C" NOT NULL UNIQUE,
    key text COLLATE "C", key_hash text COLLATE "C", tags text COLLATE "C", parent_id text COLLATE "C",
    chain_id text COLLATE "C", agent text COLLATE "C",
    state text COLLATE "C", detail text COLLATE "C", aggregate text COLLATE "C"
  );
  CREATE INDEX jobs_ended ON jobs (lane, state, ended_at) WHERE state IS NOT NULL;
  CREATE INDEX jobs_of_key ON jobs (key_hash, n) WHERE key_hash IS NOT NULL;
  CREATE INDEX jobs_of_parent ON jobs (parent_id) WHERE parent_id IS NOT NULL;
  CREATE INDEX jobs_of_chain ON jobs (chain_id) WHERE chain_id IS NOT NULL;
  CREATE INDEX jobs_first_of_chain ON jobs (n) WHERE chain_id = id;
  CREATE TABLE tags (tag text COLLATE "C" NOT NULL, n bigint NOT NULL, PRIMARY KEY (tag, n));
  CREATE INDEX tags_of_job ON tags (n);

  -- One slim row for each job that has not ended: waiting, ready to be claimed, or leased.
  CREATE TABLE waiting (
    n bigint PRIMARY KEY, run_at bigint NOT NULL, deadline bigint, updated_at bigint NOT NULL, started_at bigint,
    lane int NOT NULL, rank int NOT NULL, version int NOT NULL, run int NOT NULL, tries int NOT NULL,
    token int NOT NULL, key_max int, noted int NOT NULL,
    id text COLLATE "C" NOT NULL, state text COLLATE "C" NOT NULL, detail text COLLATE "C", key text COLLATE "C",
    cause text COLLATE "C" NOT NULL
  );
  CREATE INDEX waiting_due ON waiting (lane, run_at) WHERE cause = 'due';
  CREATE INDEX waiting_of_key ON waiting (key, rank, run_at, id) WHERE key IS NOT NULL;
  CREATE INDEX waiting_blocked ON waiting (n) WHERE cause = 'blocked';
  CREATE INDEX waiting_deadline ON waiting (deadline) WHERE deadline IS NOT NULL;
  CREATE TABLE ready (
    n bigint NOT NULL, run_at bigint NOT NULL, deadline bigint, updated_at bigint NOT NULL, started_at bigint,
    lane int NOT NULL, rank int NOT NULL, version int NOT NULL, run int NOT NULL, tries int NOT NULL,
    token int NOT NULL, key_max int, noted int NOT NULL,
    id text COLLATE "C" NOT NULL, state text COLLATE "C" NOT NULL, detail text COLLATE "C", key text COLLATE "C",
    PRIMARY KEY (lane, rank, run_at, id)
  );
  CREATE INDEX ready_deadline ON ready (deadline) WHERE deadline IS NOT NULL;
  CREATE TABLE leases (
    n bigint NOT NULL, run_at bigint NOT NULL, deadline bigint, started_at bigint NOT NULL, updated_at bigint NOT NULL,
    heartbeat_at bigint NOT NULL, until bigint NOT NULL,
    lane int NOT NULL, rank int NOT NULL, version int NOT NULL, run int NOT NULL, tries int NOT NULL,
    token int NOT NULL, key_max int, capped int NOT NULL, cancel int NOT NULL, blocked int NOT NULL,
    id text COLLATE "C" PRIMARY KEY, key text COLLATE "C", worker text COLLATE "C" NOT NULL
  );
  CREATE INDEX leases_of_lane ON leases (lane);

  -- One row for each place taken under a key, and under a cap by a job that was ended from outside, until the time given.
  CREATE TABLE slots (
    scope text COLLATE "C" NOT NULL, job text COLLATE "C" NOT NULL, token int NOT NULL, until bigint,
    PRIMARY KEY (scope, job, token)
  );
  CREATE INDEX slots_ended ON slots (until) WHERE until IS NOT NULL;
  CREATE INDEX slots_of_ended ON slots (job) WHERE until IS NOT NULL;

  -- Which jobs and chains each job names as its blockers, in order. The state is that of a blocker which was removed.
  CREATE TABLE blockers (
    n bigint NOT NULL, place int NOT NULL, chain int NOT NULL, strict int NOT NULL,
    blocker text COLLATE "C" NOT NULL, state text COLLATE "C", PRIMARY KEY (n, place)
  );
  CREATE INDEX blockers_by_id ON blockers (blocker);

  CREATE TABLE keys (
    hash text COLLATE "C" PRIMARY KEY, service text COLLATE "C" NOT NULL, type text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL, max_active int NOT NULL, max_queued int NOT NULL, when_full text COLLATE "C" NOT NULL,
    takeovers int NOT NULL, outcome text COLLATE "C", outcome_at bigint
  );
  CREATE INDEX keys_by_use ON keys (outcome_at);
  CREATE INDEX keys_by_name ON keys (key);

  CREATE TABLE records (
    id text COLLATE "C" PRIMARY KEY, version int NOT NULL, body text COLLATE "C" NOT NULL, expires_at bigint
  );
  CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

  -- Rows of these tables come and go with every job, so that they are swept early.
  ALTER TABLE ready SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
  ALTER TABLE leases SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
  ALTER TABLE waiting SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
  ALTER TABLE slots SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
  `,
  `
  -- One row for each job that has ended, where its slim row was before: wide rows are written once, at creation.
  CREATE TABLE ended (
    n bigint PRIMARY KEY, started_at bigint, ended_at bigint NOT NULL, updated_at bigint NOT NULL,
    lane int NOT NULL, version int NOT NULL, run int NOT NULL, tries int NOT NULL, token int NOT NULL,
    state text COLLATE "C" NOT NULL, detail text COLLATE "C", aggregate text COLLATE "C"
  );
  INSERT INTO ended (n, started_at, ended_at, updated_at, lane, version, run, tries, token, state, detail, aggregate)
    SELECT n, started_at, ended_at, updated_at, lane, version, run, tries, token, state, detail, aggregate
    FROM jobs WHERE state IS NOT NULL;
  CREATE INDEX ended_of_lane ON ended (lane, state, ended_at);
  DROP INDEX jobs_ended;
  ALTER TABLE jobs DROP COLUMN state, DROP COLUMN version, DROP COLUMN run, DROP COLUMN tries, DROP COLUMN token,
    DROP COLUMN started_at, DROP COLUMN ended_at, DROP COLUMN updated_at, DROP COLUMN detail, DROP COLUMN aggregate;
  `,
  `
  -- The creation of a job stands in its wide row, and has no other in the log.
  LOCK TABLE jobs, events;
  ALTER TABLE jobs ADD COLUMN xid xid8, ADD COLUMN created_id text COLLATE "C", ADD COLUMN created_by text COLLATE "C",
    ADD COLUMN created_state text COLLATE "C", ADD COLUMN context text COLLATE "C", ADD COLUMN created_body text COLLATE "C";
  UPDATE jobs SET xid = c.xid, created_id = c.id, created_by = c.actor, created_state = c.state, context = c.context,
    created_body = c.body FROM events c WHERE c.seq = jobs.n;
  ALTER TABLE jobs ALTER COLUMN xid SET DEFAULT pg_current_xact_id(), ALTER COLUMN xid SET NOT NULL,
    ALTER COLUMN created_id SET NOT NULL, ALTER COLUMN created_by SET NOT NULL, ALTER COLUMN created_state SET NOT NULL,
    ALTER COLUMN context SET NOT NULL, ALTER COLUMN created_body SET NOT NULL;
  CREATE INDEX jobs_of_transaction ON jobs (xid);
  DELETE FROM events WHERE name = 'created';
  DROP INDEX events_of_job;
  ALTER TABLE events DROP COLUMN context;
  CREATE INDEX events_of_job ON events (job, seq);
  `,
  `
  -- Events of many jobs that one transaction wrote and that are alike: one row for all of them. The first stands at the
  -- row's position and each of the others one further, so that positions are drawn that far apart.
  ALTER SEQUENCE events_seq INCREMENT BY ${roundMax};
  CREATE TABLE rounds (
    seq bigint PRIMARY KEY DEFAULT nextval('events_seq'),
    at bigint NOT NULL, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    version int NOT NULL, run int NOT NULL, tries int NOT NULL,
    name text COLLATE "C" NOT NULL, state text COLLATE "C" NOT NULL, previous text COLLATE "C" NOT NULL,
    -- What the ids begin with; the number of the job follows.
    id text COLLATE "C", actor text COLLATE "C" NOT NULL, body text COLLATE "C",
    -- How many of the jobs have not been deleted. One that has is 0.
    size int NOT NULL, jobs bigint[] NOT NULL,
    -- What the events do not share.
    ats bigint[], ids text[] COLLATE "C", bodies text[] COLLATE "C"
  );
  CREATE INDEX rounds_of_transaction ON rounds (xid);
  ALTER TABLE leases ADD COLUMN started bigint;
  ALTER TABLE ended ADD COLUMN started bigint, ADD COLUMN finished bigint;
  -- The rounds of jobs whose lease or end named them and is gone.
  CREATE TABLE rounds_of_job (job bigint NOT NULL, round bigint NOT NULL, PRIMARY KEY (job, round));
  `,
  "-- Creations leave out what is implied, which earlier versions do not fill in.",
  `
  -- One row for the leases of jobs that one claim started, as long as nothing has happened to any of them.
  CREATE TABLE shared_leases (
    -- The round of their starts.
    seq bigint PRIMARY KEY,
    at bigint NOT NULL, until bigint NOT NULL, first_job bigint NOT NULL, last_job bigint NOT NULL,
    lane int NOT NULL, capped int NOT NULL, worker text COLLATE "C" NOT NULL, jobs bigint[] NOT NULL
  );
  -- Jobs of one claim mostly follow each other, so that few leases span the number of a job.
  CREATE INDEX shared_leases_by_span ON shared_leases (last_job, first_job);
  -- Who ends the jobs looks at each of the numbers, which must not be taken out of a compressed list every time.
  ALTER TABLE shared_leases ALTER COLUMN jobs SET STORAGE PLAIN;
  ALTER TABLE shared_leases SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
  -- All leases, each by itself: for whoever goes through them, and for whoever looks for that of a job.
  CREATE VIEW held AS
    SELECT id, n, lane, version, token, until, deadline, blocked FROM leases
    UNION ALL SELECT j.id, m.n, f.lane, 2, 1, f.until, j.deadline, 0
    FROM shared_leases f CROSS JOIN LATERAL unnest(f.jobs) AS m (n) LEFT JOIN jobs j ON j.n = m.n;
  CREATE VIEW held_by_job AS
    SELECT id, n, lane, rank, run_at, run, deadline, key, key_max, version, tries, token, until, capped, worker, started_at,
      updated_at, heartbeat_at, cancel, blocked, started FROM leases
    UNION ALL SELECT j.id, j.n, f.lane, -j.priority, j.run_at, 1, j.deadline, NULL, NULL, 2, 1, 1, f.until, f.capped, f.worker, f.at,
      f.at, f.at, 0, 0, f.seq
    FROM jobs j JOIN shared_leases f ON f.last_job >= j.n AND f.first_job <= j.n AND j.n = ANY(f.jobs);
  `,
  `
  -- Jobs of keys share leases, too. Their keys stand in their wide rows. A process of an earlier version would forget them when
  -- it spreads such a lease, and cannot do so under the new name.
  ALTER TABLE shared_leases RENAME COLUMN at TO claimed_at;
  CREATE OR REPLACE VIEW held_by_job AS
    SELECT id, n, lane, rank, run_at, run, deadline, key, key_max, version, tries, token, until, capped, worker, started_at,
      updated_at, heartbeat_at, cancel, blocked, started FROM leases
    UNION ALL SELECT j.id, j.n, f.lane, -j.priority, j.run_at, 1, j.deadline, j.key_hash, j.key_max, 2, 1, 1, f.until, f.capped,
      f.worker, f.claimed_at, f.claimed_at, f.claimed_at, 0, 0, f.seq
    FROM jobs j JOIN shared_leases f ON f.last_job >= j.n AND f.first_job <= j.n AND j.n = ANY(f.jobs);
  `,
  `
  -- How often the store was restored into a server that had not come as far as its events. Cursors belong to one count.
  ALTER TABLE store ADD COLUMN moves int NOT NULL DEFAULT 0;
  `,
];
