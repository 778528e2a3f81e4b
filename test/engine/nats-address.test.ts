// What a nats:// URL says, and that each part that cannot be used is named.

import { describe, expect, it } from "vitest";
import { isStoreError } from "#millrace/engine/errors.js";
import { type Address, addressOf } from "#millrace/engine/nats/address.js";

const plain: Address = {
  servers: ["localhost:4222"],
  where: "nats://localhost:4222",
  credentials: { kind: "none" },
  prefix: "millrace",
};

describe("a nats:// URL", () => {
  it.each<[string, Partial<Address>]>([
    ["nats://localhost", {}],
    ["nats://localhost:4222/", {}],
    ["NATS://localhost", {}],
    [
      "nats://one:1234,two,[::1]:5,[fe80::1]",
      {
        servers: ["one:1234", "two:4222", "[::1]:5", "[fe80::1]:4222"],
        where: "nats://one:1234,two:4222,[::1]:5,[fe80::1]:4222",
      },
    ],
    [
      "nats://ada:se%40cret%3A@localhost",
      { credentials: { kind: "user", user: "ada", password: "se@cret:" } },
    ],
    ["nats://ada:a:b@localhost", { credentials: { kind: "user", user: "ada", password: "a:b" } }],
    ["nats://s3cr3t@localhost", { credentials: { kind: "token", token: "s3cr3t" } }],
    [
      "nats://localhost?creds=/etc/shop.creds",
      { credentials: { kind: "creds", path: "/etc/shop.creds" } },
    ],
    ["tls://localhost", { tls: {} }],
    [
      "nats://localhost?tlsCa=ca.pem&tlsCert=cert.pem&tlsKey=key.pem",
      { tls: { caFile: "ca.pem", certFile: "cert.pem", keyFile: "key.pem" } },
    ],
    [
      "nats://localhost?prefix=shop-2&replicas=5&domain=hub&inbox=_INBOX.shop",
      { prefix: "shop-2", replicas: 5, domain: "hub", inbox: "_INBOX.shop" },
    ],
    [
      "nats://localhost?projection=postgres%3A%2F%2Fu%3Ap%40h%2Fdb%3Fschema%3Dx",
      { projection: "postgres://u:p@h/db?schema=x" },
    ],
  ])("%s is taken apart", (url, parts) => {
    expect(addressOf(url)).toEqual({ ...plain, ...parts });
  });

  it.each([
    ["nats://", "cannot be read"],
    ["nats://host:99999", "cannot be read"],
    ["nats://host:0", "cannot be read"],
    ["nats://one,,two", "cannot be read"],
    ["nats://ada:pw@one,ada:pw@two", "cannot be read"],
    ["nats://host/jobs", "cannot be read"],
    ["http://host", "cannot be read"],
    ["nats://a%zz:b@host", 'write "%" as "%25"'],
    ["nats://host?prefix=Shop", 'The prefix "Shop"'],
    ["nats://host?prefix=a.b", 'The prefix "a.b"'],
    ["nats://host?prefix=_a", 'The prefix "_a"'],
    ["nats://host?prefix=*", 'The prefix "*"'],
    [`nats://host?prefix=${"a".repeat(65)}`, "at most 64"],
    ["nats://host?replicas=0", "replicas in the URL"],
    ["nats://host?replicas=6", "replicas in the URL"],
    ["nats://host?replicas=three", "replicas in the URL"],
    ["nats://host?domain=a.b", 'The domain "a.b"'],
    ["nats://host?inbox=_INBOX.>", 'The inbox "_INBOX.>"'],
    ["nats://host?preifx=shop", '"preifx" in the URL is not known; a NATS store takes prefix'],
    ["nats://host?prefix=a&prefix=b", "prefix stands twice"],
    ["nats://host?projection=", "projection in the URL is empty"],
    ["nats://ada:pw@host?creds=a.creds", "a user and creds"],
  ])("%s is refused, saying: %s", (url, said) => {
    const problem = caught(() => addressOf(url));
    expect(problem).toMatchObject({ _tag: "StoreUnavailable" });
    expect(String(problem)).toContain(said);
  });

  it("is named without secrets when it is refused", () => {
    const problem = caught(() => addressOf("nats://ada:secret@host?replicas=9"));
    expect(JSON.stringify(problem)).not.toContain("secret");
    expect(problem).toMatchObject({ url: "nats://host:4222" });
  });
});

function caught(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    if (isStoreError(error)) return error;
    throw error;
  }
  throw new Error("Nothing was refused.");
}
