import { startServer } from "#millrace/server/http/server.js";
const s = await startServer({ url: process.argv[2], bind: "127.0.0.1:0" });
process.stdout.write(s.url + "\n");
let last = process.cpuUsage();
process.on("SIGUSR2", () => { const d = process.cpuUsage(last); last = process.cpuUsage(); console.log(JSON.stringify(d)); });
process.on("SIGTERM", () => s.stop().then(() => process.exit(0)));
setInterval(() => {}, 1e6);
