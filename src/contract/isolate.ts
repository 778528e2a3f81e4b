/**
 * What a definition says of tries that run in a process of their own: the limits of that process.
 * What runs in it is the handler's matter.
 */

/** The limits of the process that a try runs in. */
export interface IsolateOptions {
  /**
   * How much memory the process and those that it starts may hold, in MB; 512 by default. JavaScript's heap is limited
   * everywhere, and what all of them hold together is watched on Linux.
   */
  readonly memoryMb?: number;
  /** How much processor time each process of the try may use, in seconds; no limit but the try's time by default. */
  readonly cpuSeconds?: number;
  /**
   * The names of the worker's environment variables that the process may see, besides `PATH`, `LANG`, `LC_ALL` and `TZ`.
   */
  readonly environment?: readonly string[];
  /** How much the process may print before the try is ended, in bytes; 1 MiB by default. */
  readonly outputBytesMax?: number;
  /**
   * Whether a handler may return, and a program end, while processes that it has started still run; they are ended in either
   * case. Where it may not, which is the default, the try has failed.
   */
  readonly mayLeaveProcesses?: boolean;
}

/** The limits with every default filled in. */
export interface IsolateSettings {
  readonly memoryMb: number;
  readonly cpuSeconds?: number;
  readonly environment: readonly string[];
  readonly outputBytesMax: number;
  readonly mayLeaveProcesses?: true;
}

const isolateDefaults = { memoryMb: 512, outputBytesMax: 1024 * 1024 } as const;

/** The least memory that a process can begin to work with, and the most that a definition may name. */
export const memoryMbRange = { least: 64, most: 1024 * 1024 } as const;

/** The most processor time that a definition may name: thirty days. */
export const cpuSecondsLimit = 30 * 24 * 60 * 60;

/** The most output that a definition may let a process print. */
export const outputBytesLimit = 1024 * 1024 * 1024;

/** Fills in the defaults. */
export function resolveIsolate(isolate: true | IsolateOptions): IsolateSettings {
  const options = isolate === true ? {} : isolate;
  return {
    memoryMb: options.memoryMb ?? isolateDefaults.memoryMb,
    ...(options.cpuSeconds === undefined ? null : { cpuSeconds: options.cpuSeconds }),
    environment: options.environment ?? [],
    outputBytesMax: options.outputBytesMax ?? isolateDefaults.outputBytesMax,
    ...(options.mayLeaveProcesses ? { mayLeaveProcesses: true } : null),
  };
}
