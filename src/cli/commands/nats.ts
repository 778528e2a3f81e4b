/**
 * `millrace nats`: what a NATS server has to be told.
 */
import { type Command, Option } from "commander";
import { manifest } from "../../contract/manifest.js";
import {
  type InboxOwner,
  inboxPrefix,
  type PermissionScope,
  permissionsOf,
  permissionsText,
  type Role,
} from "../../engine/nats/permissions.js";
import { define, group, option, type Run } from "../define.js";
import { Failure } from "../failure.js";
import { list } from "../values.js";
import { loadContract } from "../worker-module.js";

interface PermissionOptions {
  readonly prefix: string;
  readonly domain?: string;
  readonly module?: string;
  readonly others?: readonly string[];
}

const roles = ["service", "admin", "observer", "operator"] as const;

/** Adds the commands. */
export function addNats(program: Command, run: Run): void {
  const nats = group(program, "nats", "what a NATS server has to be told");
  define<PermissionOptions>(nats, run, {
    words: "permissions <role>",
    says: `print the least permissions of a user: ${roles.join(", ")}`,
    examples: [
      "millrace nats permissions service --module ./worker.ts",
      "millrace nats permissions observer --prefix jobs --json",
    ],
    options: [
      option("--module <file>", "the module of the service, for its job types"),
      option("--others <files>", "modules of other services, to be kept out of theirs", list),
      new Option("--prefix <prefix>", "the prefix of the deployment").default("millrace"),
      option("--domain <domain>", "the JetStream domain"),
    ],
    run: async ({ output }, { args: [kind = ""], options }) => {
      const { prefix, domain } = options;
      const scope: PermissionScope = { prefix, ...(domain !== undefined && { domain }) };
      const role = await roleOf(kind, options);
      const permissions = permissionsOf(scope, role);
      const inbox = inboxPrefix(prefix, inboxOwner(role));
      output.document(
        { permissions, inboxPrefix: inbox },
        () => `# The inboxes of this user begin with ${inbox}.\n${permissionsText(permissions)}`,
      );
    },
  });
}

function inboxOwner(role: Role): InboxOwner {
  return role.kind === "service" ? role.manifest.service : role;
}

async function roleOf(kind: string, { module, others = [] }: PermissionOptions): Promise<Role> {
  switch (kind) {
    case "admin":
    case "observer":
    case "operator":
      return { kind };
    case "service": {
      if (module === undefined)
        throw new Failure(
          "usage",
          "The permissions of a service follow from its module; give --module.",
        );
      const contracts = await Promise.all([module, ...others].map(loadContract));
      const [own, ...rest] = contracts.map((contract) => manifest(contract));
      if (own === undefined) throw new Error("A module gave no contract.");
      return { kind, manifest: own, others: rest };
    }
    default:
      throw new Failure("usage", `${kind} is no role; there are ${roles.join(", ")}.`);
  }
}
