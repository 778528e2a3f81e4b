// Shorthands for the parts that most measures are made of.
import { bare } from "../bare/bare.js";
import type { Bench, Contender, EngineName, Row, SystemName, Target, Targets } from "../bench.js";
import { millrace } from "../millrace/stage.js";
import type { Peer } from "../peers/peer.js";
import { type Round, type Rounds, stagedRounds } from "../rounds.js";

/** The engines whose stores outlive a process and can be shared by several. */
export const storedEngines = [
  "file",
  "postgres",
  "nats",
  "nats-always",
] as const satisfies readonly EngineName[];

/** The rounds of Millrace. */
export const millraceRounds = stagedRounds(millrace);

/** A system that takes part in a row with one number per round. */
export function contender(
  system: SystemName,
  row: string,
  round: (bench: Bench) => Promise<number>,
): Contender {
  return { system, run: async (bench) => ({ [row]: await round(bench) }) };
}

/** Bare SQL, Millrace and the installed peers, as far as they have a round. */
export function allContenders(
  peers: readonly Peer[],
  row: string,
  roundOf: (rounds: Rounds) => Round | undefined,
): Contender[] {
  const all: readonly (readonly [SystemName, Rounds])[] = [
    ["bare", bare],
    ["millrace", millraceRounds],
    ...peers.flatMap((peer) => (peer.present ? [[peer.system, peer] as const] : [])),
  ];
  return all.flatMap(([system, rounds]) => {
    const round = roundOf(rounds);
    return round === undefined ? [] : [contender(system, row, round)];
  });
}

/** A row of rates whose ratios are to bare SQL. */
export function rateRow(name: string, shows: string, targets: Targets): Row {
  const base = { system: "bare", row: name } as const;
  return { name, unit: "jobs/s", better: "higher", shows, base, targets };
}

/** A row of rates that are compared with nothing. */
export function plainRateRow(name: string, shows: string, targets: Targets): Row {
  return { name, unit: "jobs/s", better: "higher", shows, targets };
}

/** A row of amounts that are better when they are smaller. */
export function amountRow(name: string, unit: string, shows: string, targets: Targets): Row {
  return { name, unit, better: "lower", shows, targets };
}

/** At least that share of what bare SQL reaches, in the same row or another. */
export function ofBare(row: string, atLeast: number): Target {
  return { kind: "share", of: { system: "bare", row }, atLeast };
}

/** At least that share of what Millrace reaches in another row. */
export function ofMillrace(row: string, atLeast: number): Target {
  return { kind: "share", of: { system: "millrace", row }, atLeast };
}

/** At least that many times what the best peer reaches. */
export function ofBestPeer(atLeast: number): Target {
  return { kind: "best-peer", atLeast };
}

/** Less than a limit. */
export function below(limit: number): Target {
  return { kind: "below", limit };
}

/** That much or more. */
export function above(limit: number): Target {
  return { kind: "above", limit };
}
