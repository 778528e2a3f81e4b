/**
 * `millrace signing`: keys to sign jobs with.
 */
import { writeFile } from "node:fs/promises";
import type { Command } from "commander";
import { generateSigningKeys } from "../../client/signing-keys.js";
import { define, group, option, type Run } from "../define.js";
import { Failure, messageOf } from "../failure.js";

/** Only its owner may read a private key. */
const privateMode = 0o600;

/** Adds the commands. */
export function addSigning(program: Command, run: Run): void {
  const signing = group(program, "signing", "keys to sign jobs with: generate");
  define<{ out?: string }>(signing, run, {
    words: "generate",
    says: "make a pair of Ed25519 keys, in hexadecimal",
    examples: ["millrace signing generate --out office.key", "millrace signing generate --json"],
    options: [
      option("--out <file>", "write the private key there, the public one beside it (.pub)"),
    ],
    run: async (session, { options: { out } }) => {
      const { privateKey, publicKey } = generateSigningKeys();
      if (out === undefined) {
        const lines = `private ${privateKey}\npublic  ${publicKey}`;
        session.output.document({ privateKey, publicKey }, () => lines);
        return;
      }
      const publicFile = `${out}.pub`;
      await write(out, privateKey, privateMode);
      await write(publicFile, publicKey);
      session.output.document({ privateFile: out, publicFile, publicKey }, () => publicKey);
      session.output.note(`Wrote ${out} and ${publicFile}.`);
    },
  });
}

/** A key is never written over another. */
async function write(path: string, key: string, mode?: number): Promise<void> {
  try {
    await writeFile(path, `${key}\n`, { flag: "wx", ...(mode === undefined ? null : { mode }) });
  } catch (error) {
    throw new Failure("usage", `${path} cannot be written: ${messageOf(error)}`);
  }
}
