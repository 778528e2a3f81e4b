// Writes docs/state-machine.md from the table that the code obeys (src/core/transitions.ts).
// `npm run docs:state-machine` writes the file; test/docs.test.ts checks that it is up to date.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { endedStates, type JobState, jobStates, openStates } from "#millrace/core/job.js";
import { type Transition, transitions } from "#millrace/core/transitions.js";

/** Where the document stands. */
export const stateMachinePath = fileURLToPath(new URL("../docs/state-machine.md", import.meta.url));

const meanings: { readonly [State in JobState]: string } = {
  pending: "waits for its time, for a free worker, or for its key",
  blocked: "waits for other jobs to end",
  active: "a worker holds it under a lease and a token",
  retry: "its last try failed; it waits for the next",
  completed: "done",
  failed: "retrying cannot help",
  cancelled: "stopped on request",
  expired: "its deadline came first",
  skipped: "not worth running: replaced, refused late, or skipped by its handler",
  stale: "its worker was lost while it held a key",
  dead: "retrying did not help; it waits for a person",
  dismissed: "a person has seen that it is dead",
  unreachable: "a job that it waited for ended badly",
};

/** The states from which a row with two targets leads to the second; from all others it leads to the first. */
const secondTarget: { readonly [event: string]: readonly (JobState | null)[] } = {
  created: [null],
  retried: ["failed", "cancelled", "expired", "skipped", "unreachable", "dead", "completed"],
};

type From = Transition["from"];

function stateTable(): string {
  return table(
    ["state", "ended", "meaning"],
    jobStates.map((state) => [
      `\`${state}\``,
      endedStates.some((ended) => ended === state) ? "yes" : "",
      meanings[state],
    ]),
  );
}

function eventTable(): string {
  return table(
    ["event", "from", "to", "version", "token", "meaning"],
    Object.entries(transitions).map(([name, { from, to, kind, token, meaning }]) => [
      `\`${name}\``,
      fromText(from),
      typeof to === "string" ? toText(to) : to.map(toText).join(", or "),
      kind === "change" ? "advances" : kind,
      token === "none" ? "" : token,
      meaning,
    ]),
  );
}

function fromText(from: From): string {
  if (holdsAll(from, jobStates)) return from.includes(null) ? "any, or nothing" : "any";
  if (holdsAll(from, openStates) && from.length === openStates.length) return "unfinished";
  return from.map((state) => (state === null ? "nothing" : `\`${state}\``)).join(", ");
}

function toText(to: string): string {
  return to === "same" || to === "gone" ? to : `\`${to}\``;
}

function diagram(): string {
  const edges = new Map<string, string[]>();
  for (const [name, { from, to }] of Object.entries(transitions)) {
    if (to === "same" || to === "gone") continue;
    const targets = typeof to === "string" ? [to] : to;
    const isFromAllOpen = from.length === openStates.length && holdsAll(from, openStates);
    for (const source of isFromAllOpen ? ["unfinished" as const] : from) {
      const [first = "", second] = targets;
      const mayBeSecond = second !== undefined && secondTarget[name]?.includes(source as JobState);
      for (const target of mayBeSecond ? [first, second] : [first]) {
        const edge = `  ${source ?? "[*]"} --> ${target}`;
        edges.set(edge, [...(edges.get(edge) ?? []), name]);
      }
    }
  }
  return [
    "```mermaid",
    "stateDiagram-v2",
    `  unfinished: ${openStates.join(" or ")}`,
    ...[...edges].map(([edge, names]) => `${edge}: ${names.join(", ")}`),
    "```",
  ].join("\n");
}

function listed(states: readonly JobState[]): string {
  return states.map((state) => `\`${state}\``).join(", ");
}

function holdsAll(from: From, states: readonly JobState[]): boolean {
  return states.every((state) => from.includes(state));
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`.replaceAll("|  |", "| |");
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** The whole document. */
export function stateMachineDocument(): string {
  return `# The state machine

<!-- Generated from src/core/transitions.ts by \`npm run docs:state-machine\`. Do not edit. -->

A job is a log of events, and its state is what folding the log gives. \`decide\` turns a command
into an event or refuses it, \`evolve\` folds an event into the job; both obey the table below, and
no engine changes a job in any other way. An event that the table does not allow in a job's state
changes nothing, so that any two readers of a log agree.

## States

Four states are unfinished: ${listed(openStates)}. The others have ended:
no worker touches the job again unless somebody retries it by hand.

${stateTable()}

Two more are shown and never stored: *scheduled* is \`pending\` with its run time ahead, *cancelling*
is \`active\` with a request to stop.

## Events

${eventTable()}

- **from**: *unfinished* stands for the four states above, *nothing* for a job that does not exist.
- **version**: an event that *advances* it must name the version that it was decided on, and is
  refused when the job has moved on. A *note* or a *ticket* carries the version along and disturbs
  nobody.
- **token**: *always* means that only the holder of the current token causes the event; *optional*
  means that the token is checked where the event names one. A token is current while the job is
  \`active\` under it, and every start makes a larger one.

## Diagram

Events that keep the state and \`deleted\`, which removes the job from any state, are left out. Edges
from *unfinished* hold for each of the four states that it stands for.

${diagram()}

## What follows

- One outcome per run: once a job has ended, only \`retried\` opens it again, as a new run with
  \`tries\` at 0 and the same id.
- \`tries\` counts \`started\` minus \`released\`: a shutdown or a snooze costs no try.
- A lapsed lease ends an attempt as \`retry\`, or as \`dead\` on the last try. For a keyed job its
  \`stalePolicy\` decides: \`stale\`, \`retry\` or \`keyBlocked\`.
- **failed** is what retrying cannot help, **dead** is what retrying did not help.
- \`blocked\`, \`unreachable\`, \`unblocked\` and \`acknowledged\` belong to dependencies and agents, which
  the core knows and this version's client does not create yet.
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(stateMachinePath, stateMachineDocument());
  console.log(`wrote ${stateMachinePath}`);
}
