/**
 * How the process of a try ended, and the sentence that its job keeps of it.
 */
import type { IsolateSettings } from "../../contract/isolate.js";
import type { ActiveJob } from "../active-job.js";

/** Why the worker ended a process. */
export type Cause =
  /** Its handler has given its verdict, or nobody needs it any more. */
  | { readonly kind: "done" }
  /** It did not become ready. */
  | { readonly kind: "load"; readonly loadMaxMs: number }
  /** It was asked to stop and did not. */
  | { readonly kind: "grace"; readonly graceMs: number }
  | { readonly kind: "output"; readonly bytesMax: number }
  | { readonly kind: "result"; readonly bytesMax: number }
  | { readonly kind: "memory"; readonly bytes: number }
  /** It could not be started. */
  | { readonly kind: "start"; readonly message: string }
  /** It said something that its worker does not understand. */
  | { readonly kind: "protocol" };

/** How a process ended. */
export interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Why the worker ended it, if it did. */
  readonly cause: Cause | null;
  /** The end of what it said on stderr. */
  readonly tail: string;
  /** Whether JavaScript's engine has said that its heap is full. */
  readonly isHeapFull: boolean;
  /** Whether processes that it had started were still there when its work was done, and were ended. */
  readonly leftOthers: boolean;
  readonly limits: Pick<IsolateSettings, "memoryMb" | "cpuSeconds" | "mayLeaveProcesses">;
}

const bytesPerMb = 1024 * 1024;

/** What the log of a job says of processes that were left behind. */
const leftMessage = "Processes that it had started were still running and were ended.";

/** What becomes of work that was done while others still ran: the log says so, and unless they may, it has failed. */
export function checkLeft(
  who: string,
  ending: Ending,
  isDone: boolean,
  job: Pick<ActiveJob<unknown>, "log">,
): void {
  if (!ending.leftOthers) return;
  if (isDone && !ending.limits.mayLeaveProcesses) {
    const remedy = "wait for them, or allow it with isolate.mayLeaveProcesses";
    throw new Error(
      `${who} left processes behind that it had started, and they were killed; ${remedy}.`,
    );
  }
  void job.log(leftMessage, "warn");
}

/** Says how a process ended. `who` is the beginning of the sentence. */
export function endingSentence(who: string, ending: Ending): string {
  const { cause, limits, code, signal, tail, isHeapFull } = ending;
  switch (cause?.kind) {
    case "load":
      return `${who} was not ready within ${cause.loadMaxMs} ms and was killed.`;
    case "grace":
      return `${who} did not stop within ${cause.graceMs} ms and was killed.`;
    case "output":
      return `${who} printed more than ${cause.bytesMax} bytes and was killed.`;
    case "result":
      return `${who} gave a result of more than ${cause.bytesMax} bytes and was killed.`;
    case "memory": {
      const held = Math.ceil(cause.bytes / bytesPerMb);
      return `${who} held ${held} MB of memory, more than the ${limits.memoryMb} MB that it may, and was killed.`;
    }
    case "start":
      return `${who} could not be started: ${cause.message}.`;
    case "protocol":
      return `${who} said something that its worker does not understand, and was killed.`;
    case "done":
    case undefined:
      break;
  }
  if (isHeapFull && signal === "SIGABRT")
    return `${who} ran out of memory: its heap may hold ${limits.memoryMb} MB.`;
  if (signal === "SIGXCPU")
    return `${who} used more than ${limits.cpuSeconds} s of processor time and was ended.`;
  const how = signal === null ? `ended with exit code ${code}` : signalSentence(signal);
  return tail === "" ? `${who} ${how}.` : `${who} ${how}: ${tail}`;
}

function signalSentence(signal: NodeJS.Signals): string {
  return signal === "SIGKILL"
    ? "was killed (SIGKILL), perhaps because the machine has no memory left"
    : `was ended by ${signal}`;
}
