/**
 * Signing jobs and checking their signatures. A worker that has keys runs only what somebody with a private key of theirs
 * has created, however a job came into the store.
 */
import { createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import type { JobSignature } from "../core/job.js";
import { delayMaxMs } from "../core/retry.js";
import { type SignedJob, signedText } from "../core/signature.js";
import { InvalidOption, SignatureInvalid, SignatureRequired } from "./errors.js";
import {
  isObject,
  type OptionCheck,
  optionsProblem,
  whole,
  yesOrNoProblem,
} from "./option-checks.js";
import { readPrivateKey, readPublicKey } from "./signing-keys.js";

/** How many keys may be accepted at once. */
const verifyMax = 20;

/** How far the clock of a signer may be ahead. */
const aheadMaxMs = 5 * 60 * 1_000;

/** Who signs jobs, and whose signatures count. Keys are hexadecimal digits, or paths of files that hold them. */
export interface SigningOptions {
  /** The private key that signs what this process creates. */
  readonly sign?: string;
  /** The public keys of those whose jobs this process runs and creates; several while keys are changed. */
  readonly verify?: readonly string[];
  /** Lets jobs without a signature through; a bad signature never is. False by default. */
  readonly optional?: boolean;
  /** How long after its creation a job may be started; as long as it exists by default. */
  readonly expiresMs?: number;
}

/** What is wrong with the signature of a job. */
export interface SignatureProblem {
  readonly code: "signature_required" | "signature_invalid";
  readonly message: string;
}

const signingChecks: { readonly [Name in keyof SigningOptions]-?: OptionCheck } = {
  sign: () => null,
  verify: (keys) =>
    Array.isArray(keys) && keys.length >= 1 && keys.length <= verifyMax
      ? null
      : `It must be a list of 1 to ${verifyMax} public keys.`,
  optional: yesOrNoProblem,
  expiresMs: whole(1, delayMaxMs),
};

/** The keys of a process. */
export class Signing {
  readonly #private: KeyObject | undefined;
  readonly #publics: readonly KeyObject[];
  readonly #isOptional: boolean;
  readonly #expiresMs: number | undefined;

  /** Throws `InvalidOption` for keys that cannot be read. */
  constructor(options: SigningOptions) {
    const problem = optionsProblem("signing", options, signingChecks);
    if (problem !== null) throw problem;
    const { sign: own, verify: others = [], optional = false, expiresMs } = options;
    if (own === undefined && others.length === 0) {
      const message = "Give a private key to sign with, public keys to verify with, or both.";
      throw new InvalidOption({ field: "signing", message });
    }
    this.#private = own === undefined ? undefined : readPrivateKey("signing.sign", own);
    this.#publics = others.map((key, place) => readPublicKey(`signing.verify[${place}]`, key));
    this.#isOptional = optional;
    this.#expiresMs = expiresMs;
    this.#checkOwn();
  }

  /** Whether jobs have to be signed. */
  get isRequired(): boolean {
    return !this.#isOptional;
  }

  /** Whether this process can sign. */
  get canSign(): boolean {
    return this.#private !== undefined;
  }

  /** The signature of a new job; `null` where none is needed, and an error where there can be none. */
  signatureOf(
    job: SignedJob,
    given: JobSignature | undefined,
    createdAt: number,
    now: number,
  ): JobSignature | null | SignatureRequired | SignatureInvalid {
    if (given !== undefined) {
      const problem = this.problem({ ...job, signature: given, createdAt }, now);
      return problem === null ? given : signatureError(job.id, problem);
    }
    if (this.#private !== undefined) return this.#sign(job, createdAt, now);
    if (this.#publics.length === 0 || this.#isOptional) return null;
    const message = `Job ${job.id} needs a signature, and this process has no private key: give signing.sign at connect, or a signature.`;
    return new SignatureRequired({ id: job.id, message });
  }

  /** What is wrong with the signature that a job bears, or `null` when it may run. The payload is the plain one. */
  problem(
    job: SignedJob & { readonly signature?: JobSignature; readonly createdAt: number },
    now: number,
  ): SignatureProblem | null {
    if (this.#publics.length === 0) return null;
    const { id, signature } = job;
    if (signature === undefined) {
      if (this.#isOptional) return null;
      return { code: "signature_required", message: `Job ${id} bears no signature.` };
    }
    const invalid = (why: string) =>
      ({ code: "signature_invalid", message: `The signature of job ${id} ${why}.` }) as const;
    if (!this.#isSigned(job, signature)) return invalid("is not that of a key that counts here");
    if (signature.createdAt > job.createdAt + aheadMaxMs) return invalid("is from the future");
    if (signature.expiresAt !== undefined && signature.expiresAt <= now)
      return invalid("has expired");
    return null;
  }

  /** A job that counts as created earlier, as one of a schedule does, has its whole time from now on. */
  #sign(job: SignedJob, createdAt: number, now: number): JobSignature {
    const expiresMs = this.#expiresMs;
    const times =
      expiresMs === undefined ? { createdAt } : { createdAt, expiresAt: now + expiresMs };
    return { ...times, value: signed(job, times, this.#private as KeyObject) };
  }

  #isSigned(job: SignedJob, signature: JobSignature): boolean {
    const text = Buffer.from(signedText(job, signature));
    const value = Buffer.from(signature.value, "hex");
    return this.#publics.some((key) => verify(null, text, key, value));
  }

  /** Jobs that nobody would run, not even this process, are a mistake that is better told at once. */
  #checkOwn(): void {
    if (this.#private === undefined || this.#publics.length === 0) return;
    const own = createPublicKey(this.#private);
    if (this.#publics.some((key) => key.equals(own))) return;
    const message = "signing.verify: The public key of signing.sign is not among them; add it.";
    throw new InvalidOption({ field: "signing.verify", message });
  }
}

/** Signs a job with a private key, for those who create it elsewhere and send the signature along. */
export function signJob(
  privateKey: string,
  job: SignedJob,
  times: Omit<JobSignature, "value">,
): JobSignature {
  const key = readPrivateKey("privateKey", privateKey);
  return { ...times, value: signed(job, times, key) };
}

function signed(job: SignedJob, times: Omit<JobSignature, "value">, key: KeyObject): string {
  return sign(null, Buffer.from(signedText(job, times)), key).toString("hex");
}

function signatureError(
  id: string,
  { code, message }: SignatureProblem,
): SignatureRequired | SignatureInvalid {
  return code === "signature_required"
    ? new SignatureRequired({ id, message })
    : new SignatureInvalid({ id, message });
}

/** What is wrong with a signature as an option of a create, as a sentence, or `null`. */
export function signatureProblem(value: unknown): string | null {
  if (!isObject(value)) return "It must be an object with createdAt and value.";
  const { createdAt, expiresAt, value: text, ...rest } = value;
  if (Object.keys(rest).length > 0) return `It has no ${Object.keys(rest)[0]}.`;
  if (!Number.isSafeInteger(createdAt)) return "createdAt must be in milliseconds since 1970.";
  if (expiresAt !== undefined && !Number.isSafeInteger(expiresAt))
    return "expiresAt must be in milliseconds since 1970.";
  return typeof text === "string" && /^[0-9a-f]{128}$/i.test(text)
    ? null
    : "value must be the 64 bytes of the signature in hexadecimal.";
}
