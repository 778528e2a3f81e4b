/**
 * `millrace/testing`: a service in memory with a clock that the test moves, for any test runner.
 *
 * @packageDocumentation
 */
export type { DrainOptions } from "./drain.js";
export { JobsStuck } from "./errors.js";
export { FakeClock, fakeStart } from "./fake-clock.js";
export type { JobMatch, Partly } from "./matching.js";
export type { WaitingJob } from "./open-jobs.js";
export type { TestClock } from "./test-clock.js";
export {
  type TestJob,
  type TestMatch,
  type TestOptions,
  TestService,
  testService,
} from "./test-service.js";
