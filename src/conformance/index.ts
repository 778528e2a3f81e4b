/**
 * `millrace/conformance`: the suite that every engine passes, and the checker that reads only a log.
 */
export type { ConformanceCase, ConformanceStore, ConformanceTarget } from "./case.js";
export { conformanceCases } from "./cases/index.js";
export {
  type CheckOptions,
  checkLog,
  LogChecker,
  type LogRule,
  type Violation,
} from "./checker.js";
export { Environment, type LaneAsk, type NewJob, type Wish } from "./environment.js";
export { MovableClock } from "./movable-clock.js";
export type { FoldRow } from "./row-of-fold.js";
export { type CaseOutcome, runCase, runConformance } from "./run.js";
