// A vitest reporter that ends the output with one line: `N passed, N failed`.
import type { Reporter, TestModule } from "vitest/node";

/** How many tests ended which way. Errors outside of any test count as failed. */
type Tally = { passed: number; failed: number; skipped: number };

/**
 * Prints the tally as the very last line of the process, after whatever other reporters
 * print, and makes a run in which no test ran a failure.
 */
export class SummaryReporter implements Reporter {
  #tally: Tally = { passed: 0, failed: 0, skipped: 0 };

  onInit(): void {
    process.once("exit", () => {
      if (this.#tally.passed === 0 || this.#tally.failed > 0) process.exitCode ||= 1;
      process.stdout.write(`${summaryLine(this.#tally)}\n`);
    });
  }

  onTestRunEnd(modules: readonly TestModule[], errorsOutsideTests: readonly unknown[]): void {
    this.#tally = tallyOf(modules, errorsOutsideTests.length);
  }
}

/** `12 passed, 0 failed`, with `, 1 skipped` only when something was skipped. */
function summaryLine(tally: Tally): string {
  const line = `${tally.passed} passed, ${tally.failed} failed`;
  return tally.skipped > 0 ? `${line}, ${tally.skipped} skipped` : line;
}

function tallyOf(modules: readonly TestModule[], errorsOutsideTests: number): Tally {
  const tally: Tally = { passed: 0, failed: errorsOutsideTests, skipped: 0 };
  for (const module of modules) {
    let failedInModule = 0;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      if (state === "passed") tally.passed += 1;
      else if (state === "skipped") tally.skipped += 1;
      // A test that never came to an end is no success.
      else failedInModule += 1;
    }
    // A file that does not load, or whose setup fails, fails without a failing test of its own.
    if (failedInModule === 0 && !module.ok()) failedInModule = 1;
    tally.failed += failedInModule;
  }
  return tally;
}
