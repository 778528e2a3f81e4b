/**
 * Encryption of payloads and results, so that the store never sees them: AES-256-GCM under the first key of a ring, bound to
 * the job that they belong to. All keys of the ring open what was sealed with them.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from "node:crypto";
import { TaggedError } from "better-result";
import type { Job, JobKey } from "../core/job.js";
import { canonicalHash, canonicalJson, type Json } from "../core/json.js";
import { nameProblem } from "../core/names.js";
import { isSealed, type Sealed } from "../core/secrets.js";
import { EncryptionRequired, InvalidOption } from "./errors.js";
import { isObject } from "./option-checks.js";
import { readEncryptionKey } from "./signing-keys.js";

const algorithm = "aes-256-gcm";
const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** How many keys a ring may hold. */
const keysMax = 20;

/** A key with its name, which is stored with what it has sealed. */
export interface EncryptionKey {
  readonly id: string;
  /** 64 hexadecimal digits, 32 bytes in base64, or the path of a file that holds either. */
  readonly key: string;
}

/** The keys that payloads and results are encrypted with. */
export interface EncryptionOptions {
  /** The first one seals. The others open what they have sealed before, and are kept as long as that is. */
  readonly keys: readonly EncryptionKey[];
}

/** A payload or a result cannot be decrypted: its key is not there, or it is not what was encrypted. */
export class DecryptionFailed extends TaggedError("DecryptionFailed")<{
  readonly message: string;
  readonly id: string;
  readonly code: "encryption_key_missing" | "encryption_invalid";
}> {}

/** Makes a fresh key, as hexadecimal text. */
export function generateEncryptionKey(): string {
  return randomBytes(keyBytes).toString("hex");
}

/** What is sealed: a part of a job, or the payload of a schedule, whose name then stands in place of the job's id. */
type Part = "payload" | "result" | "schedule";

/** A ring of keys. */
export class Vault {
  readonly #keys: ReadonlyMap<string, Buffer>;
  readonly #first: string;
  readonly #last: string;

  /** Throws `InvalidOption` for keys that cannot be used; `option` is what they were given as. */
  constructor({ keys }: EncryptionOptions, option = "encryption.keys") {
    if (!Array.isArray(keys) || keys.length === 0 || keys.length > keysMax)
      throw invalid(option, `It must be a list of 1 to ${keysMax} keys.`);
    const ids = keys.map((key: unknown, place): string => {
      const field = `${option}[${place}]`;
      if (!isObject(key)) throw invalid(field, "It must be an object with id and key.");
      const problem = nameProblem("id", key.id);
      if (problem !== null) throw invalid(`${field}.id`, problem);
      return String(key.id);
    });
    if (new Set(ids).size < ids.length)
      throw invalid(option, "Two keys have the same id; give each its own.");
    this.#keys = new Map(
      keys.map(({ id, key }, place) => [id, readEncryptionKey(`${option}[${place}].key`, key)]),
    );
    this.#first = ids[0] ?? "";
    this.#last = ids.at(-1) ?? "";
  }

  /** Encrypts a part of a job. */
  seal(value: Json, job: JobKey, part: Part): Json {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv(algorithm, this.#key(this.#first), nonce);
    cipher.setAAD(boundTo(job, part));
    const text = Buffer.concat([cipher.update(JSON.stringify(value), "utf8"), cipher.final()]);
    const data = Buffer.concat([nonce, cipher.getAuthTag(), text]).toString("base64");
    return { $sealed: 1, key: this.#first, data } satisfies Sealed;
  }

  /** Decrypts a part of a job; `null` where it is not what was encrypted. */
  open({ key, data }: Sealed, job: JobKey, part: Part): { readonly value: Json } | null {
    const bytes = Buffer.from(data, "base64");
    try {
      const nonce = bytes.subarray(0, nonceBytes);
      const decipher = createDecipheriv(algorithm, this.#key(key), nonce, {
        authTagLength: tagBytes,
      });
      decipher.setAAD(boundTo(job, part));
      decipher.setAuthTag(bytes.subarray(nonceBytes, nonceBytes + tagBytes));
      const text = decipher.update(bytes.subarray(nonceBytes + tagBytes), undefined, "utf8");
      return { value: JSON.parse(text + decipher.final("utf8")) as Json };
    } catch {
      return null;
    }
  }

  /** Whether this is what the ring would make of a value now: encrypted, with the first key. */
  isCurrent(value: Json): boolean {
    return isSealed(value) && value.key === this.#first;
  }

  /** Whether the ring has the key of that name. */
  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /** A hash of a payload from which nobody without the keys can guess it. It changes when the last key does. */
  fingerprint(payload: Json): string {
    const hmac = createHmac("sha256", this.#key(this.#last));
    return hmac.update(canonicalJson(["fingerprint", payload])).digest("hex");
  }

  #key(id: string): Buffer {
    const key = this.#keys.get(id);
    if (key === undefined) throw new Error(`The ring has no key ${id}.`);
    return key;
  }
}

/** What holds a ring, if there is one, and whether there has to be. */
interface Keys {
  readonly vault?: Vault;
  readonly encryptionDemand?: { readonly isMade: boolean };
}

/** What is sealed opens only in its own place. */
function boundTo({ service, type, id }: JobKey, part: Part): Buffer {
  return Buffer.from(canonicalJson([service, type, id, part]));
}

/** A part of a job as it is stored: encrypted where there are keys, and refused where there should be. */
export function sealPart(
  { vault, encryptionDemand }: Keys,
  job: JobKey,
  part: Part,
  value: Json,
): Json | EncryptionRequired {
  if (vault !== undefined) return vault.seal(value, job, part);
  return encryptionDemand?.isMade ? encryptionRequired(job) : value;
}

/** Whether there should be keys, and are none. */
export function lacksVault({ vault, encryptionDemand }: Keys): boolean {
  return encryptionDemand?.isMade === true && vault === undefined;
}

/** The error of a process that has to encrypt, and has no keys. */
export function encryptionRequired({ service, id }: JobKey): EncryptionRequired {
  const message = `What ${service} stores of ${id} must be encrypted, and this process has no keys: give encryption at connect, or encryptionKeys to the server.`;
  return new EncryptionRequired({ id, message });
}

/** A part of a job as its handler gets it, or why it cannot be. What is not encrypted is given as it is. */
export function openPart(
  { vault }: Keys,
  job: Pick<Job, "id" | "service" | "type">,
  part: Part,
  value: Json,
): Json | DecryptionFailed {
  if (!isSealed(value)) return value;
  const { id } = job;
  const what = part === "schedule" ? `payload of the schedule ${id}` : `${part} of job ${id}`;
  if (!vault?.has(value.key)) {
    const message = `The ${what} is encrypted with the key ${value.key}, which this process does not have; add it to encryption.keys at connect, or to the server's encryptionKeys.`;
    return new DecryptionFailed({ id, code: "encryption_key_missing", message });
  }
  const opened = vault.open(value, job, part);
  if (opened !== null) return opened.value;
  const message = `The ${what} cannot be decrypted: it is not what was encrypted for it.`;
  return new DecryptionFailed({ id, code: "encryption_invalid", message });
}

/** A job with what can be decrypted of it, or why something cannot be. */
export function openJob(runtime: Keys, job: Job): Job | DecryptionFailed {
  if (!isSealed(job.payload) && !isSealed(job.result)) return job;
  const payload = openPart(runtime, job, "payload", job.payload);
  if (payload instanceof DecryptionFailed) return payload;
  if (job.result === undefined) return { ...job, payload };
  const result = openPart(runtime, job, "result", job.result);
  return result instanceof DecryptionFailed ? result : { ...job, payload, result };
}

/** A job with what can be decrypted of it; the rest stays as it is stored. */
export function openedJob(runtime: Keys, job: Job): Job {
  const opened = openJob(runtime, job);
  return opened instanceof DecryptionFailed ? job : opened;
}

/** The hash by which two payloads are compared without being stored. */
export function payloadHash({ vault }: Keys, payload: Json): string {
  return vault === undefined ? canonicalHash(payload) : vault.fingerprint(payload);
}

function invalid(field: string, problem: string): InvalidOption {
  return new InvalidOption({ field, message: `${field}: ${problem}` });
}
