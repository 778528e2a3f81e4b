/**
 * What client and worker tell of their work to whoever measures it: one small interface, made once in `connect`.
 * While nobody listens there is no recorder, and a call costs no more than asking for one.
 */
import type { Job, JobContext } from "../core/job.js";
import type { ClaimAnswer } from "../engine/engine.js";

/** What a process tells of its work. */
export interface Telemetry {
  /** Who records now; `null` while nobody listens. Asked once for a call or a batch. */
  recorder(): Recorder | null;
}

/** Records what is done: each method runs the work and gives what it gave, whatever the recording comes to. */
export interface Recorder {
  /** Jobs are created: one span for a call, whose trace the new jobs belong to. */
  send<Value>(ask: SendAsk, work: () => Value, sentOf: (value: Awaited<Value>) => Sent): Value;
  /** Jobs are claimed. A claim that gives none leaves no span. */
  receive(work: () => Promise<ClaimAnswer>): Promise<ClaimAnswer>;
  /** A try is carried out. What it does, and the jobs that it creates, belong to the trace of its job. */
  process<Value>(
    job: Job,
    work: () => Promise<Value>,
    triedOf: (value: Value) => Tried,
  ): Promise<Value>;
  /** What is being processed now has thrown. */
  thrown(error: unknown): void;
  /** Outcomes of tries are stored. */
  settle<Value>(jobs: readonly Job[], work: () => Value): Value;
  /** A request of somebody else's is answered, in the trace that it names. */
  serve<Value>(
    request: ServedRequest,
    work: () => Promise<Value>,
    servedOf: (value: Value) => Served,
  ): Promise<Value>;
}

/** What is to be created. */
export interface SendAsk {
  readonly service: string;
  readonly type: string;
  readonly queue: string;
  /** How many jobs, where one call creates many. */
  readonly batch?: number;
  /** The trace that the caller names for the job. */
  readonly context?: Partial<JobContext>;
}

/** What a call that creates jobs came to. */
export interface Sent {
  readonly sent: number;
  /** The id of the job, where it is one. */
  readonly id?: string;
  /** Why the others, or the one, were not created. */
  readonly failures: readonly Error[];
}

/** What a try came to. */
export interface Tried {
  readonly outcome: string;
  readonly error?: { readonly message: string; readonly reason: string };
}

/** A request over HTTP, as it came. */
export interface ServedRequest {
  readonly method: string;
  readonly path: string;
  readonly traceparent?: string;
  readonly tracestate?: string;
}

/** What a request was answered with, and the pattern of the route that answered. */
export interface Served {
  readonly status: number;
  readonly route: string;
}
