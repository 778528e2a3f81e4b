/**
 * What the doctor looks at of a `file:` store. The file is opened for reading only, and left as it is.
 */
import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import type { Database } from "better-sqlite3";
import { filePath } from "../../engine/sqlite/engine.js";
import { applicationId, migrations } from "../../engine/sqlite/schema.js";
import { messageOf } from "../failure.js";
import { type Finding, failed, ok, schemaFinding, warning } from "./finding.js";
import { filesystemFindings, notThereYet, sqliteDriverFinding } from "./machine.js";

/** The write-ahead log is cut at 64 MiB; one that is much longer is held open by a reader that does not end. */
const walWarnBytes = 512 * 1024 * 1024;

/** Looks at a file. */
export async function sqliteFindings(url: string): Promise<readonly Finding[]> {
  const path = filePath(url);
  const driver = sqliteDriverFinding();
  const around = [driver, ...(await filesystemFindings(path))];
  if (around.some(({ status }) => status === "failed")) return around;
  if (!existsSync(path)) return [...around, notThereYet(path)];
  return [...around, ...fileFindings(path)];
}

function fileFindings(path: string): readonly Finding[] {
  const Driver = createRequire(import.meta.url)("better-sqlite3") as new (
    path: string,
    options: { readonly: boolean; fileMustExist: boolean },
  ) => Database;
  let database: Database;
  try {
    database = new Driver(path, { readonly: true, fileMustExist: true });
  } catch (error) {
    return [failed("store", messageOf(error), "Check the path and the rights of this user.")];
  }
  try {
    const id = Number(database.pragma("application_id", { simple: true }));
    if (id !== applicationId)
      return [failed("store", `${path} is not a store of jobs.`, "Name another file.")];
    return [
      modeFinding(String(database.pragma("journal_mode", { simple: true }))),
      schemaFinding(Number(database.pragma("user_version", { simple: true })), migrations.length),
      integrityFinding(String(database.pragma("quick_check(1)", { simple: true }))),
      walFinding(path),
      ok("durability", "What is acknowledged has been fsynced."),
    ];
  } catch (error) {
    return [failed("store", messageOf(error), "Restore the file from a backup.")];
  } finally {
    database.close();
  }
}

function modeFinding(mode: string): Finding {
  return mode === "wal"
    ? ok("journal", "The file is in WAL mode.")
    : warning(
        "journal",
        `The file is in ${mode} mode.`,
        "It is put into WAL mode at the next start.",
      );
}

function integrityFinding(verdict: string): Finding {
  return verdict === "ok"
    ? ok("integrity", "The file is sound.")
    : failed("integrity", `The file is damaged: ${verdict}`, "Restore it from a backup.");
}

function walFinding(path: string): Finding {
  const wal = `${path}-wal`;
  const bytes = existsSync(wal) ? statSync(wal).size : 0;
  const says = `The write-ahead log has ${Math.round(bytes / 1024 ** 2)} MiB.`;
  return bytes < walWarnBytes
    ? ok("wal", says)
    : warning("wal", says, "End the process that holds an old reading transaction open.");
}
