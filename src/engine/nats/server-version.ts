/**
 * Versions of servers, and what each of them can do.
 */

type Version = readonly [major: number, minor: number, patch: number];

/** The first server that compares per job, and so the first that can be used. */
const versionNeeded: Version = [2, 11, 0];

/** The first server that knows atomic batches, and the first that handles them well. */
const versionOfAtomic: Version = [2, 12, 0];
const versionOfGoodAtomic: Version = [2, 14, 4];

/** Under which name a stream's information tells the version of the server that leads it. */
const leaderKey = "_nats.ver";

/** The version of a server, and what follows from it. */
export class ServerVersion {
  static readonly needed = versionNeeded.join(".");
  readonly #version: Version;

  /** What cannot be read is taken for a server that can do nothing. */
  constructor(text = "") {
    const [, major, minor, patch] = /^(\d+)\.(\d+)\.(\d+)/.exec(text) ?? [];
    this.#version = [Number(major ?? 0), Number(minor ?? 0), Number(patch ?? 0)];
  }

  get isUsable(): boolean {
    return !this.#isOlder(versionNeeded);
  }

  /** Whether it can be asked for a stream that takes atomic batches. */
  get knowsBatches(): boolean {
    return !this.#isOlder(versionOfAtomic);
  }

  /** Whether it may be sent such batches. */
  get handlesBatches(): boolean {
    return !this.#isOlder(versionOfGoodAtomic);
  }

  toString(): string {
    return this.#version.join(".");
  }

  #isOlder(than: Version): boolean {
    const differing = this.#version.findIndex((part, index) => part !== than[index]);
    return differing >= 0 && (this.#version[differing] ?? 0) < (than[differing] ?? 0);
  }
}

/** What a stream's information says of atomic batches. */
interface AboutBatches {
  readonly allow_atomic?: boolean;
  readonly metadata?: Readonly<Record<string, string>>;
}

/** Whether a stream takes atomic batches, and the server that leads it handles them well. */
export function takesBatches({ allow_atomic, metadata }: AboutBatches = {}): boolean {
  return allow_atomic === true && new ServerVersion(metadata?.[leaderKey]).handlesBatches;
}
