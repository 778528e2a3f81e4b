// The example of every client library runs as it is written, against a real server.
import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { startChild } from "../crash/children.js";
import { freshDatabase } from "../support/postgres.js";

const folder = fileURLToPath(new URL("../../examples/transactions/", import.meta.url));
const names = (await readdir(folder)).filter((name) => name.endsWith(".ts") && name !== "shop.ts");

describe("the example", () => {
  it("is there for every client of PostgreSQL", () => {
    expect(names.map((name) => name.replace(".ts", "")).sort()).toEqual([
      "drizzle",
      "knex",
      "kysely",
      "node-postgres",
      "postgres-js",
      "prisma",
      "typeorm",
    ]);
  });

  it.for(names)("%s runs", async (name) => {
    const environment = { MILLRACE_TEST_POSTGRES_URL: await freshDatabase() };
    const example = startChild(`../../examples/transactions/${name}`, [], { environment });
    expect(await example.ended).toEqual({
      code: 0,
      signal: null,
      lines: ["o-2: sold out", "receipts: o-1"],
      errors: "",
    });
  });
});
