// The guide of the HTTP API is true: its tables say what the code says.
import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { refusalCodes } from "#millrace/server/http/refusal.js";
import { routes } from "#millrace/server/http/routes/all.js";
import { stateAliases } from "#millrace/server/http/state-aliases.js";

const guide = await readFile(new URL("../../docs/guides/http-api.md", import.meta.url), "utf8");

/** The rows of the guide's tables, each as its cells. */
const rows = guide
  .split("\n")
  .filter((line) => line.startsWith("| `"))
  .map((line) => line.slice(2, -2).split(" | "));

describe("the guide of the HTTP API", () => {
  it("has every route, in order, with what it needs and does", () => {
    const documented = rows.filter(([first = ""]) => /^`[A-Z]+ \//.test(first));
    const needs = { nothing: "–", work: "`work:<service>`" } as { readonly [need: string]: string };
    const served = routes.map((route) => [
      `\`${route.method.toUpperCase()} ${route.path}\``,
      needs[route.needs] ?? `\`${route.needs}\``,
      route.summary,
    ]);
    expect(documented).toEqual(served);
  });

  it("has every word for a state", () => {
    const documented = rows.filter(([, state = ""]) => /^`[a-z]+`$/.test(state));
    expect(documented.filter(([, , more]) => more === undefined)).toEqual(
      Object.entries(stateAliases).map(([word, state]) => [`\`${word}\``, `\`${state}\``]),
    );
  });

  it("has every code, with its statuses", () => {
    const documented = rows.filter(([, statuses = ""]) => /^\d/.test(statuses));
    expect(documented.map(([code, statuses]) => [code, statuses])).toEqual(
      Object.entries(refusalCodes).map(([code, statuses]) => [`\`${code}\``, statuses.join(", ")]),
    );
  });
});
