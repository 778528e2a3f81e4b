// A handler in a process of its own. What it does there harms nobody else.
import type { IsolatedHandler } from "millrace/handler";
import type { text } from "./contract.js";

const count: IsolatedHandler<typeof text.jobs.count> = async ({ payload, log }) => {
  if (payload.text === "loop") for (;;);
  if (payload.text === "exit") process.exit(3);
  await log(`counting ${payload.text.length} characters`);
  return { words: payload.text.split(/\s+/).length };
};

export default count;
