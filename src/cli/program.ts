/**
 * The command line as a whole: every command, and what they have in common.
 */
import { Command } from "commander";
import { packageVersion } from "../service/package-version.js";
import { addAudit } from "./commands/audit.js";
import { addBench } from "./commands/bench.js";
import { addChain } from "./commands/chain.js";
import { addContext } from "./commands/context.js";
import { addContract } from "./commands/contract.js";
import { addDev } from "./commands/dev.js";
import { addDlq } from "./commands/dlq.js";
import { addDoctor } from "./commands/doctor.js";
import { addJob } from "./commands/job.js";
import { addKey } from "./commands/key.js";
import { addNats } from "./commands/nats.js";
import { addQueue } from "./commands/queue.js";
import { addRebuild } from "./commands/rebuild.js";
import { addSchedule } from "./commands/schedule.js";
import { addServer } from "./commands/server.js";
import { addInfo, addService } from "./commands/service.js";
import { addSigning } from "./commands/signing.js";
import { addToken } from "./commands/token.js";
import { addVerify } from "./commands/verify.js";
import { addWebhook } from "./commands/webhook.js";
import { addWorker } from "./commands/worker.js";
import { addCompletion } from "./completion.js";
import { addSettings, type Run } from "./define.js";
import { exitCodes } from "./failure.js";

const adders = [
  ...[addDev, addServer, addWorker, addJob, addDlq, addQueue, addKey, addChain, addService],
  ...[
    addSchedule,
    addWebhook,
    addContract,
    addToken,
    addAudit,
    addSigning,
    addContext,
    addInfo,
    addNats,
    addRebuild,
    addVerify,
    addDoctor,
  ],
  addBench,
] as const;

/** Makes the program. `run` carries a command out. */
export function createProgram(run: Run): Command {
  const program = new Command("millrace")
    .description("Durable jobs: run them, look at them, tell them what to do.")
    .version(packageVersion(), "-V, --version", "print the version")
    .option("--json", "print data as one JSON document")
    .option("--ndjson", "print data as lines of JSON")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [command]", "show help for a command")
    .showHelpAfterError("(--help shows what there is)")
    .configureHelp({ showGlobalOptions: true })
    .addHelpText("after", afterHelp());
  addSettings(program, "all");
  for (const add of adders) add(program, run);
  addCompletion(program);
  return program;
}

function afterHelp(): string {
  const codes = Object.values(exitCodes).map(
    ({ code, meaning }) => `  ${String(code).padStart(3)}  ${meaning}`,
  );
  return [
    "\nExamples:",
    "  $ millrace dev ./worker.ts",
    '  $ millrace job create shop sendReceipt \'{"orderId":"o-1"}\' --wait',
    "  $ millrace dlq replay --service shop --server https://jobs.example",
    "\nExit codes:",
    ...codes,
  ].join("\n");
}
