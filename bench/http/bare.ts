// The floor of the benchmark: a server that is nothing but Node's own HTTP, reads a body of JSON and answers with one.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const { service, type } = JSON.parse(Buffer.concat(chunks).toString());
    const text = JSON.stringify({ outcome: "accepted", id: "bare", service, type });
    const headers = { "Content-Type": "application/json", "Content-Length": text.length };
    response.writeHead(201, headers).end(text);
  });
});
server.listen(0, "127.0.0.1", () =>
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
);
createInterface({ input: process.stdin }).on("close", () => process.exit(0));
