// The guide names every metric, with its type, its labels and its meaning, and no other.
import { readFile } from "node:fs/promises";
import { type Metric, Registry } from "prom-client";
import { expect, test } from "vitest";
import { createCatalog } from "#millrace/server/metrics/catalog.js";

const guide = new URL("../../../docs/guides/observability.md", import.meta.url);

/** What a metric of prom-client says of itself. */
type Described = Metric & {
  readonly name: string;
  readonly help: string;
  readonly labelNames: string[];
};

test("the table of the guide is the catalogue", async () => {
  const text = await readFile(guide, "utf8");
  const rows = text.split("\n").filter((line) => line.startsWith("| `millrace_"));
  const metrics = Object.values(createCatalog(new Registry())) as unknown as readonly Described[];
  const expected = metrics.map((metric) => {
    const { name, help, labelNames } = metric;
    const labels = labelNames.length === 0 ? " " : ` ${labelNames.join(", ")} `;
    return `| \`${name}\` | ${metric.constructor.name.toLowerCase()} |${labels}| ${help} |`;
  });
  expect(rows).toEqual(expected);
});
