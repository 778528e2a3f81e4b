// Readers of the benchmark: event streams that count the jobs whose end they hear of. Prints a line when all are open;
// a line says how many ends to wait for, and the answer tells whether every stream heard of each of them once.
import { get } from "node:http";
import { createInterface } from "node:readline";

const [address = "", count = "100"] = process.argv.slice(2);
const heard: number[] = [];
let target = Number.POSITIVE_INFINITY;
let tell = () => {};

function listen(index: number): Promise<void> {
  heard[index] = 0;
  return new Promise((resolve, reject) => {
    const options = { headers: { Accept: "text/event-stream" } };
    const request = get(
      `${address}/v1/events?service=mailer&name=completed`,
      options,
      (response) => {
        response.setEncoding("latin1");
        let rest = "";
        response.on("data", (chunk: string) => {
          const lines = (rest + chunk).split("\n");
          rest = lines.pop() ?? "";
          for (const line of lines)
            if (line === "event: completed") heard[index] = (heard[index] ?? 0) + 1;
          if (heard.every((own) => own >= target)) tell();
        });
        response.once("data", () => resolve());
      },
    );
    request.on("error", reject);
  });
}

await Promise.all(Array.from({ length: Number(count) }, (_, index) => listen(index)));
console.log("open");
for await (const line of createInterface({ input: process.stdin })) {
  target = Number(line);
  if (!heard.every((own) => own >= target)) await new Promise<void>((resolve) => (tell = resolve));
  const isExact = heard.every((own) => own === target);
  console.log(
    isExact ? `each heard of all ${target} ends once` : `they heard of ${heard.join(", ")}`,
  );
}
process.exit(0);
