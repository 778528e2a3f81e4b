// What a worker of the benchmark can be asked, and what it says by itself.

/** What the process of a worker has used. */
export interface Usage {
  /** The processor time so far, in milliseconds. */
  readonly processorMs: number;
  /** The most memory that the process has held so far. */
  readonly memoryMaxMb: number;
  /** The 99th percentile of the delay of the process's event loop since the first job after the last start, where jobs are counted. */
  readonly loopDelayMs: number;
}

/** A handler was entered: for which job, and when on the clock that all processes share. */
export interface Entry {
  readonly number: number;
  readonly at: bigint;
}

/** What is told about entries into handlers: how many there were, now and then, or each one at once. */
export type Watch = "count" | "each";

/** Where a worker tells of its entries. */
export interface EntryListener {
  onEntry(entry: Entry): void;
  /** There were that many entries since it was last told. */
  onCount(count: number): void;
}

/** The questions by name. */
export interface WorkerCalls {
  /** Connects to the store; `stop` ends that, and it may be opened again. */
  open(): Promise<void>;
  /** Starts to take jobs. From then on entries into handlers are told. */
  start(): Promise<void>;
  usage(): Promise<Usage>;
  /** Stops the worker and lets go of the store. */
  stop(): Promise<void>;
}
