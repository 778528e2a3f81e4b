/**
 * The pruner: removes ended jobs that retention lets go, and forgets the traces of removed ones
 * once nobody can still need them.
 */
import { readByAll } from "../client/webhooks/stored-webhook.js";
import { definitionsOf, type ServiceContract } from "../contract/definition.js";
import { retentionDefaults } from "../contract/settings.js";
import { type EndedState, endedStates, isEnded } from "../core/job.js";
import { type DutyDone, type DutyRound, tend } from "./duty.js";

type RetentionRule = { readonly [State in EndedState]: number };

/** How long ended jobs are kept. */
export interface RetentionRules {
  /** The rule of each type of the contract. Versions share the longest time. */
  readonly types: ReadonlyMap<string, RetentionRule>;
  /** The rule of types that the contract does not name. */
  readonly otherwise: RetentionRule;
}

/** What may be removed. */
interface Retention extends RetentionRules {
  /** The time up to which everybody who follows the log has read it. */
  readonly readUntil: number;
  /** The time up to which nobody still needs the jobs of a type that have ended. */
  readonly mayGoUntil: (type: string) => number;
}

/** Reads the retention rules of a contract. */
export function retentionRules(contract: ServiceContract): RetentionRules {
  const types = new Map(
    Object.entries(contract.jobs).map(([type, entry]) => {
      const rules = definitionsOf(entry).map((definition) => definition.settings.retention);
      const longest = endedStates.map((state) => {
        return [state, Math.max(...rules.map((rule) => rule[state]))] as const;
      });
      return [type, Object.fromEntries(longest) as RetentionRule];
    }),
  );
  return { types, otherwise: { ...retentionDefaults, ...contract.retention } };
}

/** Whether some jobs are not kept at all. */
export function discardsAny({ types }: RetentionRules): boolean {
  return [...types.values()].some((rule) => endedStates.some((state) => rule[state] === 0));
}

/**
 * Removes what is not kept at all, which workers do themselves unless they were interrupted, or somebody follows the log:
 * nothing is removed that has not been read.
 */
export async function discardUnkept(round: DutyRound, retention: Retention): Promise<DutyDone> {
  const parts: DutyDone[] = [];
  for (const [type, rule] of retention.types) {
    for (const state of endedStates) {
      if (rule[state] === 0) parts.push(await removeEnded(round, retention, type, state, 0));
    }
  }
  return sum(parts);
}

/** Removes every ended job whose time has run out and whose log has been read, and forgets old traces. */
export async function prune(
  round: DutyRound,
  retention: Retention,
  tombstoneMs: number,
): Promise<DutyDone> {
  const { engine, service } = round.runtime;
  const parts: DutyDone[] = [];
  const counts = await engine.query("counts", { filter: { service } });
  const seen = new Set<string>();
  for (const { type, state, count } of counts) {
    const name = `${type}/${state}`;
    if (!isEnded(state) || count === 0 || seen.has(name)) continue;
    seen.add(name);
    const keepMs = (retention.types.get(type) ?? retention.otherwise)[state];
    if (Number.isFinite(keepMs))
      parts.push(await removeEnded(round, retention, type, state, keepMs));
  }
  const readUntil = Math.min(retention.readUntil, await readByAll(engine));
  if (round.mayGoOn()) await engine.prune(Math.min(engine.now() - tombstoneMs, readUntil));
  return sum(parts);
}

function removeEnded(
  round: DutyRound,
  { mayGoUntil }: Retention,
  type: string,
  state: EndedState,
  keepMs: number,
): Promise<DutyDone> {
  const { engine, service } = round.runtime;
  const ask = {
    kind: "retention",
    service,
    type,
    state,
    endedBefore: Math.min(engine.now() - keepMs, mayGoUntil(type)),
  } as const;
  return tend(round, ask, (_job, _due, origin) => ({
    command: "delete",
    reason: "retention",
    ...origin,
  }));
}

function sum(parts: readonly DutyDone[]): DutyDone {
  const changed = parts.reduce((total, part) => total + part.changed, 0);
  return { changed, isFull: parts.some((part) => part.isFull) };
}
