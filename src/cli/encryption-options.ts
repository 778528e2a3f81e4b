/**
 * The keys that payloads and results are encrypted with, as the settings name them.
 */
import type { EncryptionKey } from "../client/vault.js";
import { Failure } from "./failure.js";
import { type Given, settingValue } from "./settings.js";

/** The ring of keys; `undefined` where none is named. */
export function encryptionKeys(given: Given): readonly EncryptionKey[] | undefined {
  return settingValue(given, "encryptionKeys")
    ?.split(",")
    .map((text) => {
      const [, id, key] = /^([^=]+)=(.+)$/s.exec(text.trim()) ?? [];
      // What was given is not repeated, because it may be a key.
      if (id === undefined || key === undefined)
        throw new Failure("usage", "Encryption keys are given as name=key, with commas between.");
      return { id, key };
    });
}
