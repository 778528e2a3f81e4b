// How the tests run: plain Node processes, one per test file, against the built package.
import { defineConfig } from "vitest/config";
import { SummaryReporter } from "./scripts/summary-reporter.js";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/mutants/**", "node_modules/**", "dist/**"],
    globalSetup: ["test/support/postgres-setup.ts", "test/support/nats-setup.ts"],
    environment: "node",
    pool: "forks",
    // Many tests wait for servers and processes, so that two files at a time fill two cores.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    reporters: ["default", new SummaryReporter()],
    // Node itself loads the built package, so that tests, worker threads and child processes
    // run the very files that users get.
    server: { deps: { external: [/\/dist\//] } },
  },
});
