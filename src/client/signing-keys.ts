/**
 * Keys as people keep them: as text, or in a file that holds it.
 */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
} from "node:crypto";
import { readFileSync } from "node:fs";
import { InvalidOption } from "./errors.js";

/** A pair of keys in hexadecimal. */
export interface SigningKeys {
  /** 32 bytes, to be kept secret by those who create jobs. */
  readonly privateKey: string;
  /** 32 bytes, for those who run them. */
  readonly publicKey: string;
}

const keyBytes = 32;

/** What stands before the raw bytes of a key in its standard form (RFC 8410). */
const privatePrefix = Buffer.from("302e020100300506032b657004220420", "hex");
const publicPrefix = Buffer.from("302a300506032b6570032100", "hex");

/** Makes a fresh pair of keys. */
export function generateSigningKeys(): SigningKeys {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const rawOf = (key: KeyObject, type: "pkcs8" | "spki") =>
    key.export({ format: "der", type }).subarray(-keyBytes).toString("hex");
  return { privateKey: rawOf(privateKey, "pkcs8"), publicKey: rawOf(publicKey, "spki") };
}

/** Reads a private key: 64 digits, or 128 where the public key follows it, or the path of a file with them. */
export function readPrivateKey(field: string, given: string): KeyObject {
  const bytes = readKey(field, given, "A private", [keyBytes, 2 * keyBytes]).subarray(0, keyBytes);
  const key = Buffer.concat([privatePrefix, bytes]);
  return createPrivateKey({ key, format: "der", type: "pkcs8" });
}

/** Reads a public key: 64 digits, or the path of a file with them. */
export function readPublicKey(field: string, given: string): KeyObject {
  const key = Buffer.concat([publicPrefix, readKey(field, given, "A public", [keyBytes])]);
  return createPublicKey({ key, format: "der", type: "spki" });
}

/** The bytes of a key out of text, or out of a file that holds such text. */
function readKey(field: string, given: string, kind: string, lengths: readonly number[]): Buffer {
  const digits = lengths.map((length) => length * 2).join(" or ");
  return readKeyText(field, given, `${kind} key is ${digits} hexadecimal digits`, (text) =>
    /^[0-9a-f]+$/i.test(text) && lengths.includes(text.length / 2)
      ? Buffer.from(text, "hex")
      : null,
  );
}

/** The bytes of a key of 32 bytes for encryption out of hexadecimal text or base64, or out of a file that holds either. */
export function readEncryptionKey(field: string, given: string): Buffer {
  const digits = keyBytes * 2;
  const rule = `An encryption key is ${digits} hexadecimal digits, or ${keyBytes} bytes in base64`;
  return readKeyText(field, given, rule, (text) => {
    if (/^[0-9a-f]+$/i.test(text) && text.length === digits) return Buffer.from(text, "hex");
    return /^[A-Za-z0-9+/]{43}=$/.test(text) ? Buffer.from(text, "base64") : null;
  });
}

/** The text that was given is not repeated, because it may be most of a key. */
function readKeyText(
  field: string,
  given: string,
  rule: string,
  read: (text: string) => Buffer | null,
): Buffer {
  const noKey = (problem: string) => {
    const message = `${field}: ${rule}, or the path of a file that holds them; ${problem}.`;
    return new InvalidOption({ field, message });
  };
  if (typeof given !== "string") throw noKey("it is no text");
  const own = read(given);
  if (own !== null) return own;
  const text = readFile(given);
  if (text === null) throw noKey("it is neither that nor a file that can be read");
  const bytes = read(text);
  if (bytes === null) throw noKey("the file holds something else");
  return bytes;
}

function readFile(path: string): string | null {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return null;
  }
}
