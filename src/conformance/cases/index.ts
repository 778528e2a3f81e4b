/**
 * Every case of the suite, concern by concern.
 */
import type { ConformanceCase } from "../case.js";
import { admissionCases } from "./admission.js";
import { batchCases } from "./batches.js";
import { blockerCases } from "./blockers.js";
import { cancelCases } from "./cancel.js";
import { capCases } from "./caps.js";
import { chainCases } from "./chains.js";
import { claimCases } from "./claim.js";
import { claimOrderCases } from "./claim-order.js";
import { createCases } from "./create.js";
import { deadlineCases } from "./deadline.js";
import { delayCases } from "./delay.js";
import { endedSlotCases } from "./ended-slots.js";
import { deleteCases, feedCases } from "./feed.js";
import { fencingCases } from "./fencing.js";
import { followCases } from "./follow.js";
import { hintCases } from "./hints.js";
import { historyCases } from "./history.js";
import { keyLapseCases } from "./key-lapses.js";
import { keyCases } from "./keys.js";
import { leaseCases } from "./leases.js";
import { listCases } from "./lists.js";
import { noteCases } from "./notes.js";
import { pauseCases } from "./pause.js";
import { idempotencyCases, recordCases } from "./records.js";
import { runCases } from "./runs.js";
import { settleCases } from "./settle.js";
import { togetherCases } from "./together.js";
import { viewCases } from "./views.js";

/** What every engine must do, as cases that any test runner can run. */
export const conformanceCases: readonly ConformanceCase[] = [
  ...createCases,
  ...claimCases,
  ...claimOrderCases,
  ...leaseCases,
  ...settleCases,
  ...togetherCases,
  ...fencingCases,
  ...followCases,
  ...chainCases,
  ...blockerCases,
  ...cancelCases,
  ...delayCases,
  ...deadlineCases,
  ...runCases,
  ...keyCases,
  ...keyLapseCases,
  ...admissionCases,
  ...endedSlotCases,
  ...capCases,
  ...pauseCases,
  ...recordCases,
  ...idempotencyCases,
  ...noteCases,
  ...historyCases,
  ...listCases,
  ...viewCases,
  ...feedCases,
  ...deleteCases,
  ...batchCases,
  ...hintCases,
];
