// Events as bytes: what goes in comes out, in pieces that one transaction applies.
import { describe, expect, it } from "vitest";
import {
  appliedLengthMax,
  appliedMax,
  Packer,
  portions,
  unpacked,
} from "#millrace/engine/projection/packed.js";

function add(packer: Packer, seq: number, body = "{}", leaseUntil?: number): void {
  packer.add(seq, `p.jobs.shop.mail.job-${seq}.created`, Buffer.from(body), leaseUntil);
}

describe("packed events", () => {
  it("are the same afterwards, whatever they say", () => {
    const packer = new Packer();
    const bodies = ["", "{}", '{"text":"żółw 🐢"}', `{"long":"${"x".repeat(400_000)}"}`];
    for (const [index, body] of bodies.entries())
      add(packer, 10 ** 12 + index, body, index === 1 ? 5_000 : undefined);
    const packed = packer.take();
    expect(packed).toMatchObject({ count: 4, last: 10 ** 12 + 3 });
    expect(packer.take()).toBeNull();
    const read = packed && [...unpacked(packed)];
    expect(read?.map(({ event }) => event.body)).toEqual(bodies);
    expect(read?.map(({ leaseUntil }) => leaseUntil)).toEqual([
      undefined,
      5_000,
      undefined,
      undefined,
    ]);
    expect(read?.[2]).toMatchObject({
      seq: 10 ** 12 + 2,
      event: { subject: `p.jobs.shop.mail.job-${10 ** 12 + 2}.created` },
    });
  });

  it("come in pieces of bounded number and length, of which no later one changes an earlier", () => {
    const packer = new Packer();
    for (let seq = 1; seq <= appliedMax + 10; seq++) add(packer, seq);
    expect(packer.count).toBe(appliedMax + 10);
    const first = packer.take();
    add(packer, appliedMax + 11, `"${"y".repeat(appliedLengthMax)}"`);
    add(packer, appliedMax + 12);
    expect(first).toMatchObject({ count: appliedMax, last: appliedMax });
    expect(first && [...unpacked(first)].at(-1)?.seq).toBe(appliedMax);
    expect(packer.take()).toMatchObject({ count: 11, last: appliedMax + 11 });
    expect(packer.take()).toMatchObject({ count: 1, last: appliedMax + 12 });
    expect(packer.count).toBe(0);
  });

  it("are given a few at a time, from behind a position", () => {
    const packer = new Packer();
    for (let seq = 1; seq <= 9; seq++) add(packer, seq);
    const packed = packer.take();
    const given = packed && [...portions(packed, 2, 3)];
    expect(given?.map((portion) => portion.map(({ seq }) => seq))).toEqual([
      [3, 4, 5],
      [6, 7, 8],
      [9],
    ]);
  });
});
