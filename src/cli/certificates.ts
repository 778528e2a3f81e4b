/**
 * Requests to servers that show a certificate of one's own authority, or ask for one. The platform's `fetch` takes
 * neither, so that these go by `node:https`.
 */
import { readFileSync } from "node:fs";
import { request as requestSecurely } from "node:https";
import { Readable } from "node:stream";
import { Failure, messageOf } from "./failure.js";
import { type Given, settingValue } from "./settings.js";

/** What a connection is made with. */
export interface Certificates {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

/** Answers without a body, which a `Response` must not be given one for. */
const bodiless: ReadonlySet<number> = new Set([204, 205, 304]);

/** Reads the files that the settings name; `null` if they name none. */
export function certificatesOf(given: Given): Certificates | null {
  const ca = settingValue(given, "ca");
  const cert = settingValue(given, "clientCert");
  const key = settingValue(given, "clientKey");
  if (ca === undefined && cert === undefined && key === undefined) return null;
  if ((cert === undefined) !== (key === undefined))
    throw new Failure(
      "usage",
      "A client certificate needs its key: --client-cert and --client-key.",
    );
  return {
    ...(ca !== undefined && { ca: readPem(ca) }),
    ...(cert !== undefined && { cert: readPem(cert) }),
    ...(key !== undefined && { key: readPem(key) }),
  };
}

function readPem(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new Failure("usage", `A certificate or key cannot be read: ${messageOf(error)}`);
  }
}

/** Sends a request as `fetch` does, with certificates. */
export async function fetchWith(request: Request, certificates: Certificates): Promise<Response> {
  const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
  const { method, signal } = request;
  const headers = Object.fromEntries(request.headers);
  return new Promise((resolve, reject) => {
    const options = { method, headers, signal, ...certificates };
    const outgoing = requestSecurely(request.url, options, (incoming) => {
      const { statusCode: status = 500 } = incoming;
      const fields = Object.entries(incoming.headers).flatMap(([name, value]) =>
        value === undefined ? [] : [[name, String(value)] as [string, string]],
      );
      const isEmpty = bodiless.has(status);
      const content = isEmpty ? null : (Readable.toWeb(incoming) as unknown as ReadableStream);
      if (isEmpty) incoming.resume();
      resolve(new Response(content, { status, headers: fields }));
    });
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}
