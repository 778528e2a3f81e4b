// Handlers in processes of their own: a module, two ways in which it goes wrong, and a program.
import { connect } from "millrace";
import { text } from "./isolated/contract.js";

const service = await connect(text, { url: "memory:", graceMs: 200 });

service.jobs.count.handle({ module: new URL("./isolated/count.js", import.meta.url) });
service.jobs.sort.handle({
  exec: ({ lines }) => ["sh", "-c", 'printf "%s\\n" "$@" | sort', "sh", ...lines],
  output: "text",
});
await service.start();

for (const text of ["one two three", "exit", "loop"]) {
  const ref = await service.jobs.count.create({ text }).orThrow();
  await ref.wait();
  const { state, result, error } = await ref.get().orThrow();
  console.log(`${text}: ${state}, ${result ? `${result.words} words` : error?.message}`);
}
const sorted = await service.jobs.sort.run({ lines: ["pear", "apple"] }).orThrow();
console.log(`sorted: ${sorted.split("\n").join(", ")}`);
await service.stop();
