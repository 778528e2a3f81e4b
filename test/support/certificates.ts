// Certificates for tests: authorities of their own, and whom they vouch for.
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const freshKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/** Makes an authority that nobody trusts yet: `<name>.pem` and `<name>.key`. */
export async function makeAuthority(folder: string, name: string): Promise<void> {
  const files = ["-keyout", `${name}.key`, "-out", `${name}.pem`, "-days", "2"];
  const words = ["req", "-x509", ...freshKey, ...files, "-subj", `/CN=${name}`];
  await run("openssl", words, { cwd: folder });
}

/** Makes the certificate of a server or client at 127.0.0.1, for which an authority vouches: `<name>.pem` and `<name>.key`. */
export async function makeCertificate(
  folder: string,
  authority: string,
  name: string,
  subject = `/CN=${name}`,
): Promise<void> {
  const files = ["-keyout", `${name}.key`, "-out", `${name}.csr`];
  await run("openssl", ["req", ...freshKey, ...files, "-subj", subject], { cwd: folder });
  await writeFile(join(folder, "names"), "subjectAltName=IP:127.0.0.1\n");
  const sign = ["x509", "-req", "-in", `${name}.csr`, "-CA", `${authority}.pem`, "-days", "2"];
  const more = ["-CAkey", `${authority}.key`, "-CAcreateserial", "-extfile", "names"];
  await run("openssl", [...sign, ...more, "-out", `${name}.pem`], { cwd: folder });
}
