// One webhook against real receivers that fail, hang, redirect, lie and lead astray.
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer, type Socket } from "node:net";
import { Webhook } from "standardwebhooks";
import { describe, expect, it, onTestFinished } from "vitest";
import { AddressRules, type Lookup } from "#millrace/client/webhooks/addresses.js";
import { Deliverer, deliveryTimeoutMs } from "#millrace/client/webhooks/deliverer.js";
import type { CloudEvent } from "#millrace/core/cloud-event.js";
import { FakeClock } from "#millrace/testing/fake-clock.js";
import { Receiver, status } from "./receiver.js";

const secrets = [
  `whsec_${Buffer.alloc(32, 1).toString("base64")}`,
  `whsec_${Buffer.alloc(32, 2).toString("base64")}`,
];

const event: CloudEvent = {
  specversion: "1.0",
  id: "event-1",
  source: "/millrace/shop",
  type: "millrace.job.completed",
  subject: "job-1",
  time: "2030-01-01T00:00:00.000Z",
  datacontenttype: "application/json",
  data: {},
};

function deliverer(
  options: { readonly allowAddresses?: readonly string[]; readonly lookup?: Lookup } = {},
) {
  const clock = new FakeClock(Date.now()); // clock: receivers check that a signature is fresh
  const made = new Deliverer({ clock, allowAddresses: ["127.0.0.0/8"], ...options });
  onTestFinished(() => made.close());
  const send = (url: string) => made.deliver({ url, secrets, event });
  return { clock, send };
}

/** A server that speaks whatever it likes. */
async function rawServer(speak: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("data", () => speak(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

describe("a request", () => {
  it("is a CloudEvent with the headers of Standard Webhooks, signed with every secret", async () => {
    const receiver = await Receiver.open();
    const answer = await deliverer().send(`${receiver.url}/hooks?x=1`);
    expect(answer).toMatchObject({ delivered: true, status: 204 });
    const [received] = receiver.received;
    expect(received?.path).toBe("/hooks?x=1");
    expect(received?.event).toEqual(event);
    expect(received?.headers["content-type"]).toBe("application/cloudevents+json; charset=utf-8");
    expect(received?.headers["webhook-id"]).toBe("event-1");
    for (const secret of secrets) {
      expect(new Webhook(secret).verify(received?.body ?? "", received?.headers ?? {})).toEqual(
        event,
      );
    }
    const other = new Webhook(`whsec_${Buffer.alloc(32, 3).toString("base64")}`);
    expect(() => other.verify(received?.body ?? "", received?.headers ?? {})).toThrow();
  });

  it.each([200, 201, 202, 204, 299])("is delivered with the status %i", async (code) => {
    const receiver = await Receiver.open();
    receiver.answer = status(code);
    expect(await deliverer().send(receiver.url)).toMatchObject({ delivered: true, status: code });
  });

  it.each([400, 404, 410, 429, 500, 503])("fails with the status %i", async (code) => {
    const receiver = await Receiver.open();
    receiver.answer = status(code);
    expect(await deliverer().send(receiver.url)).toMatchObject({ delivered: false, status: code });
  });

  it.each([301, 302, 303, 307, 308])("does not follow a redirect: %i", async (code) => {
    const target = await Receiver.open();
    const receiver = await Receiver.open();
    receiver.answer = status(code, { location: target.url });
    const answer = await deliverer().send(receiver.url);
    expect(answer).toMatchObject({ delivered: false, status: code });
    expect(answer.error).toContain("redirects are not followed");
    expect(target.received).toEqual([]);
  });
});

describe("a receiver", () => {
  it("that does not answer has its time", async () => {
    const receiver = await Receiver.open();
    receiver.answer = () => {};
    const { clock, send } = deliverer();
    const sent = send(receiver.url);
    await receiver.count(1);
    await clock.advance(deliveryTimeoutMs);
    expect(await sent).toMatchObject({ delivered: false, durationMs: deliveryTimeoutMs });
  });

  it("that never ends its answer has its time, too", async () => {
    const receiver = await Receiver.open();
    receiver.answer = (_received, response) => {
      response.writeHead(200);
      response.write("still");
    };
    const { clock, send } = deliverer();
    const sent = send(receiver.url);
    await receiver.count(1);
    await clock.advance(deliveryTimeoutMs);
    expect((await sent).delivered).toBe(false);
  });

  it("that sends no end of data is not listened to for ever", async () => {
    const receiver = await Receiver.open();
    let closed: Promise<unknown> = Promise.resolve();
    receiver.answer = (_received, response) => {
      closed = once(response, "close");
      const flood = () => {
        while (!response.destroyed && response.write(Buffer.alloc(64 * 1024)));
      };
      response.on("drain", flood);
      flood();
    };
    expect(await deliverer().send(receiver.url)).toMatchObject({ delivered: true, status: 200 });
    await closed;
  });

  it.each([
    ["closes before it answers", ""],
    ["closes within the status line", "HTTP/1.1 20"],
    ["closes within the headers", "HTTP/1.1 200 OK\r\nContent-"],
    ["closes before all of what it promised", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"],
    ["closes within a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"],
    ["speaks something else", "220 mail.example ESMTP\r\n"],
    ["gives two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"],
    ["has headers without end", `HTTP/1.1 200 OK\r\nX: ${"x".repeat(100_000)}\r\n\r\n`],
  ])("that %s is a failure", async (_what, said) => {
    const url = await rawServer((socket) => socket.end(said));
    const answer = await deliverer().send(url);
    expect(answer.delivered).toBe(false);
    expect(answer.error).toBeTruthy();
  });

  it("that nobody is at is a failure", async () => {
    const url = await rawServer(() => {});
    const { port } = new URL(url);
    const gone = await deliverer().send(`http://127.0.0.2:${port}/`);
    expect(gone).toMatchObject({ delivered: false });
    expect(gone.error).toContain("ECONNREFUSED");
  });

  it("that was hung up on before is called again", async () => {
    const receiver = await Receiver.open();
    const { send } = deliverer();
    expect((await send(receiver.url)).delivered).toBe(true);
    receiver.answer = (_received, response, request) => {
      response.on("finish", () => request.socket.destroy());
      response.writeHead(204).end();
    };
    expect((await send(receiver.url)).delivered).toBe(true);
    expect((await send(receiver.url)).delivered).toBe(true);
  });
});

describe("an address", () => {
  it.each([
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.0.0.1/",
    "http://0.0.0.0/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.100.100.200/",
    "http://10.0.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::ffff:0:127.0.0.1]/",
  ])("that is not public is refused: %s", async (url) => {
    const answer = await deliverer({ allowAddresses: [] }).send(url);
    expect(answer.delivered).toBe(false);
    expect(answer.error).toContain("is not a public address; allow its network");
  });

  it("is checked as the name resolves when the connection is made", async () => {
    const receiver = await Receiver.open();
    const { port } = new URL(receiver.url);
    const inside: Lookup = (_host, _options, callback) =>
      callback(null, [{ address: "127.0.0.1", family: 4 }]);
    const both: Lookup = (_host, _options, callback) =>
      callback(null, [
        { address: "93.184.216.34", family: 4 },
        { address: "127.0.0.1", family: 4 },
      ]);
    for (const lookup of [inside, both]) {
      const { send } = deliverer({ allowAddresses: [], lookup });
      const answer = await send(`http://rebind.example:${port}/`);
      expect(answer.error).toContain("127.0.0.1 is not a public address");
    }
    const { send } = deliverer({ allowAddresses: [] });
    expect((await send(`http://localhost:${port}/`)).error).toContain("is not a public address");
    expect(receiver.received).toEqual([]);
  });

  it.each(["93.184.216.34", "8.8.8.8", "172.32.0.1", "2606:2800:220:1::1", "2a00:1450::1"])(
    "that is public may be reached: %s",
    (address) => {
      expect(new AddressRules().allows(address)).toBe(true);
    },
  );

  it("is used if its network is allowed", async () => {
    const receiver = await Receiver.open();
    const { port } = new URL(receiver.url);
    const lookup: Lookup = (_host, _options, callback) =>
      callback(null, [{ address: "127.0.0.1", family: 4 }]);
    const { send } = deliverer({ allowAddresses: ["127.0.0.1/32"], lookup });
    expect((await send(`http://inside.example:${port}/`)).delivered).toBe(true);
    expect(receiver.received[0]?.headers.host).toBe(`inside.example:${port}`);
  });
});
