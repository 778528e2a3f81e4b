// Authorities and certificates that tests make for themselves, with openssl.
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Makes the key and the certificate of an authority: `<name>.key` and `<name>.pem`. */
export async function makeAuthority(folder: string, name: string): Promise<void> {
  const parts = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const files = ["-keyout", `${name}.key`, "-out", `${name}.pem`, "-days", "2"];
  await run("openssl", ["req", ...parts, ...files, "-subj", `/CN=${name}`], { cwd: folder });
}

/** Makes a key, and a certificate for 127.0.0.1 that an authority vouches for: `<name>.key` and `<name>.pem`. */
export async function makeCertificate(
  folder: string,
  authority: string,
  name: string,
  subject = `/CN=${name}`,
): Promise<void> {
  const parts = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const files = ["-keyout", `${name}.key`, "-out", `${name}.csr`];
  await run("openssl", ["req", ...parts, ...files, "-subj", subject], { cwd: folder });
  await writeFile(join(folder, "names"), "subjectAltName=IP:127.0.0.1\n");
  const sign = ["x509", "-req", "-in", `${name}.csr`, "-CA", `${authority}.pem`, "-days", "2"];
  const more = ["-CAkey", `${authority}.key`, "-CAcreateserial", "-extfile", "names"];
  await run("openssl", [...sign, ...more, "-out", `${name}.pem`], { cwd: folder });
}
