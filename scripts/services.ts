// Starts the servers that Millrace runs on, for a person to play with: `npm run services`.
// They end with Ctrl-C, and their data with them.
import { startNats } from "./nats-server.js";
import { startPostgres } from "./postgres-server.js";

const [postgres, nats] = await Promise.all([startPostgres(), startNats({ syncAlways: true })]);
console.log(`PostgreSQL  ${postgres.url}`);
console.log(`NATS        ${nats.url}`);
console.log("Ctrl-C stops them and removes their data.");

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
await Promise.all([postgres.stop(), nats.stop()]);
