// The text of a creation leaves out what is implied, and the event that is read from it says everything.
import { expect, it } from "vitest";
import type { EventOf } from "#millrace/core/event.js";
import { createdBody, createdValues, eventFrom } from "#millrace/engine/sql/rows.js";

const context = { requestId: "r-1", traceId: "t", traceparent: "p" };
const head = { jobId: "j-1", service: "shop", type: "send", context };

const plain: EventOf<"created"> = {
  ...head,
  name: "created",
  ...{ id: "e-1", actor: "client:one", at: 1_000, version: 1, run: 1, tries: 0 },
  ...{ state: "pending", previousState: null },
  ...{
    typeVersion: 1,
    queue: "send",
    payload: { to: "a" },
    maxTries: 5,
    priority: 0,
    runAt: 1_000,
  },
  ...{ deadLetter: true, tags: [], blockers: [] },
};

const special: EventOf<"created"> = {
  ...plain,
  ...{ typeVersion: 2, queue: "mail", payload: null, maxTries: 1, priority: -4, runAt: 0 },
  ...{ deadLetter: false, tags: ["vip"], deadline: 5_000 },
  blockers: [{ kind: "job", id: "b-1", onFailure: "unreachable" }] as never,
};

function readBack({ state, at, id, actor }: EventOf<"created">, body: string) {
  return eventFrom(head, createdValues(state, at, id, actor, body));
}

it("most creations say no more than their payload", () => {
  expect(createdBody(plain)).toBe('{"payload":{"to":"a"}}');
});

it.each([
  ["what is implied", plain],
  ["anything else", special],
])("%s is read as it was", (_, event) => {
  expect(readBack(event, createdBody(event))).toEqual(event);
});

it("texts of earlier versions, which leave nothing out, are read as they were", () => {
  const { typeVersion, queue, payload, maxTries, priority, runAt, deadLetter, tags, blockers } =
    plain;
  const whole = {
    typeVersion,
    queue,
    payload,
    maxTries,
    priority,
    runAt,
    deadLetter,
    tags,
    blockers,
  };
  expect(readBack(plain, JSON.stringify(whole))).toEqual(plain);
});
