// Holds the project to its own rules. Each rule is a function under test/tidy/, and each finding
// names the file, the line and the remedy.
import { describe, expect, it } from "vitest";
import { describeFinding, isSource, isTest, type Rule, readProject } from "./tidy/files.js";
import { testsAllRun, testsDoNotSleep } from "./tidy/honesty.js";
import { coreImportsOnlyHashes, coreIsPure } from "./tidy/purity.js";
import {
  importsHaveNoCycles,
  nothingIsExportedWholesale,
  roomsImportOnlyRoomsBelow,
  sourceImportsItselfByPath,
} from "./tidy/rooms.js";
import {
  filesAreShort,
  filesHaveTellingNames,
  lockfileHasNoAddresses,
  noRegistryIsNamed,
  nothingIsLeftOver,
  sourceFilesSayWhatTheyAreFor,
  sourcePrintsNothing,
} from "./tidy/wording.js";

const rules: Record<string, Rule> = {
  "rooms import only rooms below": roomsImportOnlyRoomsBelow,
  "src imports itself by path": sourceImportsItselfByPath,
  "imports have no cycles": importsHaveNoCycles,
  "nothing is exported wholesale": nothingIsExportedWholesale,
  "core imports only hashes": coreImportsOnlyHashes,
  "core is pure": coreIsPure,
  "files are short": filesAreShort,
  "files have telling names": filesHaveTellingNames,
  "source files say what they are for": sourceFilesSayWhatTheyAreFor,
  "nothing is left over": nothingIsLeftOver,
  "source prints nothing": sourcePrintsNothing,
  "no registry is named": noRegistryIsNamed,
  "the lockfile has no addresses": lockfileHasNoAddresses,
  "tests all run": testsAllRun,
  "tests do not sleep": testsDoNotSleep,
};

describe("the project is tidy", () => {
  const files = readProject();

  it("finds the files that it has to judge", () => {
    expect(files.filter(isSource).length).toBeGreaterThan(0);
    expect(files.filter(isTest).length).toBeGreaterThan(0);
    expect(files.map(({ path }) => path)).toContain("package-lock.json");
  });

  for (const [name, rule] of Object.entries(rules)) {
    it(name, () => {
      expect(rule(files).map(describeFinding)).toEqual([]);
    });
  }
});
