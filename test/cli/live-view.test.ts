// The live view of `millrace dev`: it draws in place and keeps within the terminal.
import type { WriteStream } from "node:tty";
import { type JobEvent, jobStates } from "millrace";
import { describe, expect, it } from "vitest";
import { LiveView } from "#millrace/cli/view/live-view.js";
import { bar, duration, type Paint } from "#millrace/cli/view/paint.js";
import type { Counts, Picture } from "#millrace/cli/view/watch.js";

const unpainted: Paint = (_, text) => text;

function terminal(columns: number, rows: number) {
  const written: string[] = [];
  const out = { columns, rows, write: (text: string) => written.push(text) };
  return { written, out: out as unknown as WriteStream };
}

function picture(running: number): Picture {
  const counts = Object.fromEntries(
    jobStates.map((state, index) => [state, index * 1_000]),
  ) as Counts;
  const event = {
    name: "retry",
    type: "chargeCard",
    jobId: "01ABCDEF",
    state: "retry",
    at: 0,
    runAt: 300,
  };
  return {
    counts,
    created: 1_234,
    running: Array.from({ length: running }, (_, index) => ({
      id: `job-${index}`,
      type: "renderInvoice",
      tries: 1,
      startedAt: 0,
      progress: { current: index % 10, total: 10, step: "a step with a rather long description" },
    })),
    notable: Array.from({ length: 20 }, () => {
      return {
        ...event,
        error: { message: "The bank did not answer. ".repeat(5) },
      } as unknown as JobEvent;
    }),
    seen: 20,
    throughput: 99.6,
  };
}

describe("the live view", () => {
  it.for([
    { columns: 200, rows: 60 },
    { columns: 80, rows: 24 },
    { columns: 40, rows: 12 },
  ])("fits $columns columns and $rows rows", ({ columns, rows }) => {
    const { written, out } = terminal(columns, rows);
    new LiveView(out, unpainted, "A title that is ".repeat(20)).show(picture(30), 1_500);
    const drawn = written.at(-1) ?? "";
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the codes are what is taken out.
    const lines = drawn.replaceAll(/\u001b\[[\d?]*[A-Za-z]|\r/g, "").split("\n");
    expect(lines.length).toBeLessThanOrEqual(rows);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(columns);
  });

  it("draws over what it drew before, and below what was said since", () => {
    const { written, out } = terminal(80, 24);
    const view = new LiveView(out, unpainted, "Shop");
    view.show(picture(1), 100);
    const lines = (written.at(-1)?.match(/\n/g) ?? []).length;
    view.show(picture(1), 200);
    expect(written.at(-1)?.startsWith(`\u001b[${lines}A`)).toBe(true);
    view.say("Stopping.");
    view.show(picture(1), 300);
    expect(written.at(-1)?.startsWith("\r")).toBe(true);
  });
});

it("draws bars and durations", () => {
  expect([bar(0, 4), bar(0.001, 4), bar(0.5, 4), bar(1, 4), bar(2, 4)]).toEqual([
    "",
    "▏",
    "██",
    "████",
    "████",
  ]);
  expect([duration(7), duration(1_500), duration(12_345)]).toEqual(["7 ms", "1.50 s", "12.3 s"]);
});
