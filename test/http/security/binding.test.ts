// Where a server may listen, and what it says where it may not; TLS and client certificates, with authorities that the
// test makes itself.
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { type RequestOptions, request } from "node:https";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect as connectSecured } from "node:tls";
import { InvalidOption } from "millrace";
import { type ServerOptions, startServer } from "millrace/server";
import { beforeAll, describe, expect, it } from "vitest";
import { makeAuthority, makeCertificate } from "../../support/certificates.js";
import { openServer } from "../api.js";

/** The files of an authority, a server and a client that it vouches for, and a client of another authority. */
interface Certificates {
  readonly folder: string;
  readonly authority: string;
  readonly server: { readonly tlsCert: string; readonly tlsKey: string };
}

let certificates: Certificates;

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), "millrace-tls-"));
  for (const name of ["ours", "theirs"]) await makeAuthority(folder, name);
  await makeCertificate(folder, "ours", "server");
  await makeCertificate(folder, "ours", "anna smith");
  await makeCertificate(folder, "theirs", "mallory");
  certificates = {
    folder,
    authority: join(folder, "ours.pem"),
    server: { tlsCert: join(folder, "server.pem"), tlsKey: join(folder, "server.key") },
  };
  return () => rm(folder, { recursive: true, force: true });
});

/** Why a server refuses to start. */
async function refusalOf(options: ServerOptions): Promise<string> {
  try {
    const server = await startServer({ url: "memory:", ...options });
    await server.stop();
    return "It starts.";
  } catch (error) {
    if (!(error instanceof InvalidOption)) throw error;
    return `${error.field}: ${error.message}`;
  }
}

describe("a bind", () => {
  it("that is not loopback needs TLS with tokens, mTLS, or consent", async () => {
    const { server, authority } = certificates;
    const remedy =
      "give --tls-cert and --tls-key (callers then need tokens), also --tls-client-ca for mTLS, or --unsafe-bind if a proxy in front of the server asks who comes.";
    for (const bind of ["0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "host.example:0"])
      expect(await refusalOf({ bind })).toBe(`bind: ${bind} is not loopback: ${remedy}`);
    expect(await refusalOf({ bind: "0.0.0.0:0", auth: "token" })).toContain("not loopback");
    expect(await refusalOf({ bind: "0.0.0.0:0", auth: "none", ...server })).toContain("loopback");
    const allowed: readonly ServerOptions[] = [
      { bind: "127.0.0.1:0" },
      { bind: "localhost:0" },
      { bind: "0.0.0.0:0", ...server },
      { bind: "0.0.0.0:0", ...server, tlsClientCa: authority },
      { bind: "0.0.0.0:0", unsafeBind: true },
    ];
    for (const options of allowed) expect(await refusalOf(options)).toBe("It starts.");
  });

  it("asks for tokens wherever it is not on loopback", async () => {
    const open = await openServer({ url: "memory:", bind: "0.0.0.0:0", ...certificates.server });
    expect(open.auth).toBe("token");
    const proxied = await openServer({ url: "memory:", bind: "0.0.0.0:0", unsafeBind: true });
    expect(proxied.auth).toBe("none");
    const asked = await openServer({ url: "memory:", auth: "token" });
    expect(asked.auth).toBe("token");
  });

  it("must be an address that is free", async () => {
    const { port } = await openServer({ url: "memory:" });
    expect(await refusalOf({ bind: `127.0.0.1:${port}` })).toBe(
      `bind: 127.0.0.1:${port} is taken by another program; give another --bind, such as 127.0.0.1:0 for a free port.`,
    );
    for (const bind of ["8080", "localhost", "::1:80", "localhost:70000", "a:b"])
      expect(await refusalOf({ bind })).toBe(
        `bind: "${bind}" is not an address to listen on; give host:port, such as 127.0.0.1:8080 or [::1]:8080.`,
      );
  });

  it("with TLS needs both files, which must be PEM", async () => {
    const { server, folder, authority } = certificates;
    const both = "TLS needs a certificate and its key; give both --tls-cert and --tls-key.";
    expect(await refusalOf({ tlsCert: server.tlsCert })).toBe(`tlsKey: ${both}`);
    expect(await refusalOf({ tlsKey: server.tlsKey })).toBe(`tlsCert: ${both}`);
    expect(await refusalOf({ tlsClientCa: authority })).toBe(`tlsCert: ${both}`);
    const missing = { ...server, tlsKey: join(folder, "none.key") };
    expect(await refusalOf(missing)).toMatch(/^tlsKey: .*none\.key cannot be read: ENOENT/);
    const names = { ...server, tlsKey: join(folder, "names") };
    expect(await refusalOf(names)).toMatch(/^tlsKey: .*names is not a PEM file\.$/);
    const broken = join(folder, "broken.pem");
    await writeFile(broken, "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
    expect(await refusalOf({ ...server, tlsCert: broken })).toMatch(
      /^tlsCert: .*broken\.pem is not a certificate: /,
    );
    const swapped = { ...server, tlsKey: join(folder, "mallory.key") };
    expect(await refusalOf(swapped)).toMatch(
      /^tlsKey: .*mallory\.key is not the key of .*server\.pem: /,
    );
    expect(await refusalOf({ ...server, tlsClientCa: broken })).toMatch(
      /^tlsClientCa: .*broken\.pem is not a certificate: /,
    );
  });
});

async function get(
  url: string,
  options: RequestOptions,
): Promise<{ status: number; body: string }> {
  const sent = request(url, { agent: false, ...options });
  sent.end();
  const [response] = await once(sent, "response");
  return { status: response.statusCode, body: await text(response) };
}

async function clientFiles(name: string): Promise<RequestOptions> {
  const { folder, authority } = certificates;
  const [ca, cert, key] = await Promise.all(
    [authority, join(folder, `${name}.pem`), join(folder, `${name}.key`)].map((file) =>
      readFile(file),
    ),
  );
  return { ca, cert, key } as RequestOptions;
}

describe("TLS", () => {
  it("serves those who trust its authority, not below 1.2", async () => {
    const { url } = await openServer({ url: "memory:", ...certificates.server });
    expect(url).toMatch(/^https:/);
    const ca = await readFile(certificates.authority);
    expect(await get(`${url}/healthz`, { ca })).toEqual({ status: 200, body: '{"status":"ok"}' });
    await expect(get(`${url}/healthz`, {})).rejects.toThrow();
    const old = { ca, maxVersion: "TLSv1.1", minVersion: "TLSv1" } as const;
    await expect(get(`${url}/healthz`, old)).rejects.toThrow();
  });

  it("carries refusals of what is no HTTP, and survives callers that speak no TLS", async () => {
    const { url, port } = await openServer({ url: "memory:", ...certificates.server });
    const ca = await readFile(certificates.authority);
    const secured = connectSecured({ host: "127.0.0.1", port, ca });
    secured.write("nonsense\r\n\r\n");
    const answer = await text(secured);
    expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(answer).toContain('"details":{"reason":"not_http"}');
    const plain = connect(port, "127.0.0.1");
    plain.on("error", () => {});
    plain.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await once(plain.resume(), "close");
    expect((await get(`${url}/healthz`, { ca })).status).toBe(200);
  });

  it("with a client authority takes only clients that it vouches for, and names them", async () => {
    const { server, authority } = certificates;
    const options = { ...server, tlsClientCa: authority };
    const { url, auth } = await openServer({ url: "memory:", ...options });
    expect(auth).toBe("mtls");
    const { body } = await get(`${url}/v1/info`, await clientFiles("anna smith"));
    expect(JSON.parse(body)).toMatchObject({ auth: "mtls", actor: "admin:anna-smith" });
    const { ca } = await clientFiles("server");
    await expect(get(`${url}/healthz`, { ca })).rejects.toThrow();
    const stranger = { ...(await clientFiles("mallory")), ca };
    await expect(get(`${url}/healthz`, stranger)).rejects.toThrow();
  });
});
