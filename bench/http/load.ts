// Callers of the benchmark: connections that each send a create when the last one was answered. They are bare sockets,
// so that they cost the machine little beside the server. A line says how many jobs to create; the answer is the rate.
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";

const [address = "", connections = "64"] = process.argv.slice(2);
const { hostname, port, host } = new URL(address);

function requestOf(number: number): string {
  const body = `{"service":"mailer","type":"send","payload":{"to":"${number}@b.example"}}`;
  return `POST /v1/jobs HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

/** One connection that creates jobs until there are no more. */
function caller(next: () => number | null): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket: Socket = connect(Number(port), hostname);
    socket.setNoDelay(true);
    let text = "";
    const send = () => {
      const number = next();
      if (number === null) socket.end(resolve);
      else socket.write(requestOf(number));
    };
    socket.on("connect", send);
    socket.on("error", reject);
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
      const end = text.indexOf("\r\n\r\n");
      const [, length] = /content-length: (\d+)/i.exec(text) ?? [];
      if (end < 0 || length === undefined || text.length < end + 4 + Number(length)) return;
      if (!text.startsWith("HTTP/1.1 201")) reject(new Error(text));
      text = "";
      send();
    });
  });
}

for await (const line of createInterface({ input: process.stdin })) {
  const count = Number(line);
  let made = 0;
  const next = () => (made < count ? made++ : null);
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: Number(connections) }, () => caller(next)));
  console.log(String(count / ((performance.now() - startedAt) / 1_000)));
}
