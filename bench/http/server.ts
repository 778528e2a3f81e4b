// The server of the benchmark: prints where it is, answers every line with its memory, and stops with its input.
import { createInterface } from "node:readline";
import { startServer } from "millrace/server";

const server = await startServer({ url: process.argv[2] ?? "", bind: "127.0.0.1:0" });
console.log(server.url);
for await (const _ of createInterface({ input: process.stdin })) {
  const { heapUsed, rss } = process.memoryUsage();
  console.log(`${Math.round(heapUsed / 1e6)}/${Math.round(rss / 1e6)}`);
}
await server.stop();
process.exit(0);
