/**
 * The keys that jobs are signed and checked with, as the settings name them.
 */
import type { SigningOptions } from "../client/signing.js";
import { type Given, isOn, settingValue } from "./settings.js";

/** The option `signing` of a server or a service; `undefined` where no key is named. */
export function signingOptions(given: Given, signs: boolean): SigningOptions | undefined {
  const sign = signs ? settingValue(given, "sign") : undefined;
  const verify = settingValue(given, "verify")?.split(",");
  if (sign === undefined && verify === undefined) return undefined;
  return {
    ...(sign === undefined ? null : { sign }),
    ...(verify === undefined ? null : { verify }),
    optional: isOn(given, "signaturesOptional"),
  };
}
