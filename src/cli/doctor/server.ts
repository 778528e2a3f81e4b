/**
 * What the doctor looks at of a server.
 */
import { packageVersion } from "../../service/package-version.js";
import { type Api, ask, call } from "../api.js";
import { Failure, messageOf } from "../failure.js";
import { clockFinding, type Finding, failed, ok, warning } from "./finding.js";

interface Readiness {
  readonly status: string;
  readonly checks?: readonly {
    readonly name: string;
    readonly status: string;
    readonly detail?: string;
  }[];
}

/** Looks at a server through its API. */
export async function serverFindings(api: Api): Promise<readonly Finding[]> {
  const before = Date.now();
  let health: Response;
  try {
    health = await call(api, "GET", "/healthz");
  } catch (error) {
    return [failed("server", messageOf(error), "Check the URL, and that the server runs.")];
  }
  const date = health.headers.get("date");
  // The header has whole seconds; half of one is as good a guess as any.
  const aheadMs = date === null ? 0 : Date.parse(date) + 500 - (before + Date.now()) / 2;
  await health.text();
  return [
    ok("server", `${api.where} answers.`),
    transportFinding(api.where),
    ...(date === null ? [] : [clockFinding(Math.abs(aheadMs) <= 500 ? 0 : aheadMs)]),
    ...(await readinessFindings(api)),
    await versionFinding(api),
  ];
}

function transportFinding(where: string): Finding {
  const { protocol, hostname } = new URL(where);
  if (protocol === "https:") return ok("transport", "The connection is encrypted.");
  const isLocal = ["127.0.0.1", "localhost", "[::1]"].includes(hostname);
  return isLocal
    ? ok("transport", "The server is on this machine.")
    : warning(
        "transport",
        "Tokens and payloads cross the network in plain text.",
        "Serve HTTPS: --tls-cert and --tls-key.",
      );
}

async function readinessFindings(api: Api): Promise<readonly Finding[]> {
  const response = await api.fetch(new Request(`${api.where}/readyz`));
  const { checks = [], status } = (await response.json()) as Readiness;
  if (checks.length === 0) return [ok("ready", `The server is ${status}.`)];
  return checks.map(({ name, status, detail = status }) =>
    status === "ok" ? ok(name, detail) : failed(name, detail, "Look at the server's log."),
  );
}

async function versionFinding(api: Api): Promise<Finding> {
  try {
    const { version } = await ask<{ version: string }>(api, "GET", "/v1/info");
    const own = packageVersion();
    return version === own
      ? ok("version", `Server and command line are ${own}.`)
      : warning(
          "version",
          `The server is ${version}, and this command line ${own}.`,
          "Use the same version.",
        );
  } catch (error) {
    const remedy =
      error instanceof Failure && error.exit === "notPermitted"
        ? "Give a token with admin.read."
        : "Look at the server's log.";
    return failed("version", messageOf(error), remedy);
  }
}
