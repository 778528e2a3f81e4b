// What travels between the threads of the SQLite engine comes out as it went in.
import { expect, it } from "vitest";
import type { PlainCreate } from "#millrace/engine/sql/plain.js";
import { pack, packReplies, unpack, unpackReplies } from "#millrace/engine/sqlite/packing.js";

const body = JSON.stringify({ payload: { text: 'a "quote", ein Wort: süß, 字, \0 and 😀' } });
const context = '["r-1","00-8c8fe332b181ca08dd8e32e1cb5b8ce3-5d9671931fdce41b-01"]';

function create(id: string, deadline: number | null, actor = "client:one"): PlainCreate {
  return [id, "shop", "mail", "send", 2, -3, 5, 1_794e9, deadline, 1, context, "e-1", actor, body];
}

const calls = [
  { kind: "create", items: [create("a", null), create("b", 1_795e9)] },
  { kind: "create", items: [create("c", 0)] },
  { kind: "claim", items: [{ limit: 1 }] },
  { kind: "create", items: [] },
  { kind: "create", items: [create("d", null, "client:o\0ne"), create("e", null)] },
  { kind: "create", items: [create("f", null)] },
];

it("creates travel as texts, in the order of the calls, and keep their values", () => {
  const packed = pack(calls);
  expect(packed.map(({ kind }) => kind)).toEqual(["packed", "claim", "packed", "create", "packed"]);
  expect(unpack(structuredClone(packed))).toEqual(calls);
});

it("answers travel as nothing where all was appended, and as they are where something was not", () => {
  const appended = { outcome: "appended" };
  const all = calls.map(({ items }) => ({ answer: items.map(() => appended) }));
  expect(packReplies(all)).toBeNull();
  expect(unpackReplies(packReplies(all), calls)).toEqual(all);
  for (const other of [
    { answer: [{ outcome: "exists" }] },
    { answer: [{ outcome: "appended", policy: { outcome: "accepted" } }] },
    { answer: null },
    { fault: { kind: "busy" as const, message: "" } },
  ])
    expect(packReplies([...all, other])).toEqual([...all, other]);
});
