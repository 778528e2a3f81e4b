/**
 * The start of a job, and its completion by the worker that holds it, where it has no key and waited for nothing: most
 * events of most logs. Nothing has to be asked for them, and so they are rows at once. Whatever is not as usual, all else
 * in this folder sees to.
 */
import type { EventOf, JobEvent } from "../../core/event.js";
import { ignoredReason } from "../../core/evolve.js";
import { detailOf } from "../sql/change.js";
import { endStatement } from "../sql/place.js";
import { insertLease, type Slim } from "../sql/slim.js";
import type { Statement } from "../sql/statement.js";
import { deleteReady, readyPlace } from "./keys.js";
import { deleteLease, isDelayed, type Known, standing } from "./known.js";
import type { ProjectionTransaction } from "./transaction.js";

/** A job after a plain event, and the rows that make it so. */
export interface PlainChange {
  readonly known: Known;
  readonly statements: readonly Statement[];
}

/** What an event does to a job; `null` where it is not plain. */
export function plainChange(
  tx: ProjectionTransaction,
  known: Known | undefined,
  event: JobEvent,
  leaseUntil: number | undefined,
): PlainChange | null {
  if (known === undefined || known.slim.key !== null) return null;
  if (event.name !== "started" && event.name !== "completed") return null;
  if (!isWhole(event) || ignoredReason(standing(known), event) !== null) return null;
  if (event.name === "started") return started(known, event, leaseUntil ?? event.at);
  return completed(tx, known, event);
}

/** Whether an event has all that its name promises, and comes from a worker. A log may hold others. */
function isWhole({ at, run, tries, token, actor }: EventOf<"started" | "completed">): boolean {
  return (
    typeof at === "number" &&
    typeof run === "number" &&
    typeof tries === "number" &&
    typeof token === "number" &&
    typeof actor === "string" &&
    actor.startsWith("worker:")
  );
}

function started(known: Known, event: EventOf<"started">, until: number): PlainChange | null {
  const { slim } = known;
  const { version, run, tries, token, worker, at } = event;
  if (isDelayed(slim) || typeof worker !== "string") return null;
  const { n, id, lane, rank, runAt, deadline } = slim;
  const lease = [id, n, lane, rank, runAt, version, run, tries, token, deadline, null, null];
  return {
    known: {
      service: known.service,
      slim: { ...after(slim, event), state: "active", token, startedAt: at, noted: 1 },
      lease: { until, blocked: false },
      worker,
      chainId: known.chainId,
    },
    statements: [
      { sql: deleteReady, values: readyPlace(slim) },
      { sql: insertLease, values: [...lease, worker, at, at, at, until, 0] },
    ],
  };
}

function completed(
  tx: ProjectionTransaction,
  known: Known,
  event: EventOf<"completed">,
): PlainChange | null {
  const { slim } = known;
  const { state, version, run, tries, at } = event;
  if (state !== "completed" || event.aggregate !== undefined || known.lease === null) return null;
  if ("error" in event || "reason" in event) return null;
  tx.woke.ended = true;
  tx.woke.ready = true;
  const end = { state, version, run, tries, at, detail: detailOf(event), aggregate: null };
  return {
    known: {
      service: known.service,
      slim: { ...after(slim, event), state },
      lease: null,
      worker: null,
      chainId: known.chainId,
    },
    statements: [{ sql: deleteLease, values: [slim.id] }, endStatement(slim, end)],
  };
}

function after(slim: Slim, { version, run, tries, at }: JobEvent): Slim {
  return { ...slim, version, run, tries, updatedAt: at, detail: null };
}
