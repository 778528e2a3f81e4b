// raw keep-alive sockets, one request in flight each
import net from "node:net";
const [, , url, connections, total] = process.argv;
const u = new URL(url);
const body = JSON.stringify({ service: "shop", type: "greet", payload: { orderId: "o-1", to: "a@b.example", items: [1, 2, 3] } });
const req = `POST /v1/jobs HTTP/1.1\r\nHost: ${u.host}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
let sent = 0, done = 0, bad = 0;
const t0 = performance.now();
await Promise.all(Array.from({ length: +connections }, () => new Promise((resolve) => {
  const s = net.connect(+u.port, u.hostname);
  s.setNoDelay(true);
  const next = () => { if (sent >= +total) { s.end(); resolve(); return; } sent++; s.write(req); };
  let acc = "";
  s.on("data", (d) => { acc += d.toString("latin1"); const i = acc.indexOf("\r\n\r\n"); if (i < 0) return; const m = /content-length: (\d+)/i.exec(acc); const chunked = /transfer-encoding: chunked/i.test(acc); const len = m ? +m[1] : 0; if (!chunked && acc.length < i + 4 + len) return; if (chunked && !acc.endsWith("0\r\n\r\n")) return; if (!acc.startsWith("HTTP/1.1 201")) bad++; acc = ""; done++; next(); });
  s.on("connect", next);
})));
const ms = performance.now() - t0;
console.log(JSON.stringify({ perSecond: Math.round(done / ms * 1000), done, bad, cpu: process.cpuUsage() }));
