// Whether the server of this container lives, for the image's health check. It is asked as it listens: over TLS where it
// has a certificate, and then a handshake is enough, because it may ask for one that nobody has in here.
import { connect } from "node:tls";

const { MILLRACE_BIND = "127.0.0.1:8080", MILLRACE_TLS_CERT } = process.env;
const port = Number(MILLRACE_BIND.slice(MILLRACE_BIND.lastIndexOf(":") + 1));
const host = "127.0.0.1";

const lives = MILLRACE_TLS_CERT
  ? new Promise((resolve) => {
      // The names in the certificate are those of the outside.
      const socket = connect({ host, port, rejectUnauthorized: false }, () => resolve(true));
      socket.on("error", () => resolve(false));
    })
  : fetch(`http://${host}:${port}/healthz`).then(
      (answer) => answer.ok,
      () => false,
    );

process.exit((await lives) ? 0 : 1);
