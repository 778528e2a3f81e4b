/**
 * `millrace doctor`: looks at this machine and at the store or server, and says what is wrong and what to do about it.
 */
import type { Command } from "commander";
import type { Colors } from "../colors.js";
import { define, option, type Run } from "../define.js";
import { type Finding, failed, note } from "../doctor/finding.js";
import { nodeFinding } from "../doctor/machine.js";
import { Failure, messageOf } from "../failure.js";
import type { Session } from "../session.js";

/** Adds the command. */
export function addDoctor(program: Command, run: Run): void {
  define<{ monitor?: string }>(program, run, {
    words: "doctor",
    says: "check Node.js, drivers, the filesystem, servers, durability, clocks and schemas",
    examples: [
      "millrace doctor",
      "millrace doctor --url nats://localhost:4222 --monitor http://localhost:8222",
    ],
    options: [option("--monitor <url>", "the monitoring port of a NATS server")],
    run: async (session, { options: { monitor } }) => {
      const findings = [nodeFinding(), ...(await findingsOf(session, monitor))];
      const failures = findings.filter(({ status }) => status === "failed").length;
      const { output } = session;
      if (output.format === "text")
        output.line(findings.map((finding) => findingText(finding, output.colors)).join("\n"));
      else output.list({ entries: findings }, []);
      if (failures > 0)
        throw new Failure(
          "failure",
          failures === 1 ? "One thing does not work." : `${failures} things do not work.`,
        );
    },
  });
}

async function findingsOf(
  session: Session,
  monitor: string | undefined,
): Promise<readonly Finding[]> {
  const target = session.target();
  if (target.kind === "server")
    return (await import("../doctor/server.js")).serverFindings(await session.api());
  const { url } = target;
  try {
    if (/^(?:nats|tls):/i.test(url))
      return await (await import("../doctor/nats.js")).natsFindings(url, monitor);
    if (/^postgres(?:ql)?:/i.test(url))
      return await (await import("../doctor/postgres.js")).postgresFindings(url);
    if (/^file:/i.test(url)) return await (await import("../doctor/sqlite.js")).sqliteFindings(url);
    if (/^memory:/i.test(url)) return [note("store", "A store in memory ends with its process.")];
  } catch (error) {
    return [failed("store", messageOf(error), "Mend the URL.")];
  }
  return [failed("store", `${url} names no store.`, "Use file:…, postgres://… or nats://….")];
}

const marks = {
  ok: { sign: "✓", color: "green" },
  note: { sign: "·", color: "dim" },
  warning: { sign: "!", color: "yellow" },
  failed: { sign: "✗", color: "red" },
} as const;

const checkWidth = 13;

function findingText({ check, status, says, remedy }: Finding, colors: Colors): string {
  const { sign, color } = marks[status];
  const line = `${colors[color](sign)} ${check.padEnd(checkWidth)} ${says}`;
  return remedy === undefined ? line : `${line}\n  ${" ".repeat(checkWidth)} → ${remedy}`;
}
