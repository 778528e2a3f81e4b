// Starts the servers that Millrace runs on, for a person to play with: `npm run services`.
// They end with Ctrl-C, and their data with them.
import { startPostgres } from "./postgres-server.js";

const postgres = await startPostgres();
console.log(`PostgreSQL  ${postgres.url}`);
console.log("Ctrl-C stops it and removes its data.");

const stopSignals = ["SIGINT", "SIGTERM"] as const;
await new Promise<void>((resolve) => {
  // A promise alone does not keep a process running.
  const alive = setInterval(() => undefined, 60_000);
  for (const signal of stopSignals) {
    process.once(signal, () => {
      clearInterval(alive);
      resolve();
    });
  }
});
await postgres.stop();
