// The mutants stay usable: each still applies to the source, and names tests that exist.
// `npm run mutants` shows that each of them is killed.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { applyProblem, readMutants } from "./mutants/mutant.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const mutantsMin = 12;

describe("mutants", () => {
  it("are many", () => {
    expect(readMutants().length).toBeGreaterThanOrEqual(mutantsMin);
  });

  it.each(readMutants().map((mutant) => [mutant.name, mutant] as const))(
    "%s still applies to the source",
    (_name, mutant) => {
      expect(applyProblem(mutant, root)).toBeNull();
      expect(mutant.tests.filter((test) => !existsSync(`${root}${test}`))).toEqual([]);
    },
  );
});
