// The admin runtime on a server where everybody has no more than the permissions of a role: whoever asks as the guide says is
// answered, and whoever listens elsewhere is told where to.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectNats } from "@nats-io/transport-node";
import { connect, defineJob, defineService } from "millrace";
import {
  inboxPrefix,
  JobsClient,
  permissionsOf,
  permissionsText,
  type Role,
  startAdmin,
} from "millrace/nats";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { ownNats } from "../support/nats.js";

const prefix = "mailing";
const shop = defineService("shop", { mail: defineJob({ payload: z.object({}) }) });

const roles = {
  admin: { kind: "admin" },
  observer: { kind: "observer" },
  operator: { kind: "operator" },
} as const satisfies Record<string, Role>;

type User = keyof typeof roles;

/** An admin runtime with one job to tend, and how the others ask it. */
async function guardedAdmin() {
  const folder = await mkdtemp(join(tmpdir(), "millrace-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const users = Object.entries(roles).map(([user, role]) => {
    const permissions = permissionsText(permissionsOf({ prefix }, role));
    return `{ user: ${user}, password: ${user}, ${permissions} }`;
  });
  const server = await ownNats({ config: `authorization { users: [ ${users.join(", ")} ] }` });
  const own = server.url.replace("//", "//admin:admin@");
  const admin = await startAdmin(`${own}?prefix=${prefix}&projection=file:${folder}/view.db`);
  onTestFinished(() => admin.stop());
  const service = await connect(shop, { engine: admin.engine });
  onTestFinished(() => service.stop());
  const { id } = await service.jobs.mail.create({}).orThrow();
  const ask = async (user: User, inbox?: string) => {
    const connection = await connectNats({
      ...{ servers: server.url, user, pass: user },
      ...(inbox !== undefined && { inboxPrefix: inbox }),
    });
    onTestFinished(() => connection.close());
    return new JobsClient(connection, { prefix, actor: user });
  };
  return { id, ask };
}

it("is asked by an observer and an operator at the inboxes of their roles", async () => {
  const { id, ask } = await guardedAdmin();
  const observer = await ask("observer", inboxPrefix(prefix, roles.observer));
  const operator = await ask("operator", inboxPrefix(prefix, roles.operator));
  for (const jobs of [observer, operator]) {
    expect(await jobs.health().orThrow()).toMatchObject({ status: "healthy" });
    expect(await jobs.list({ limit: 10 }).orThrow()).toMatchObject({ entries: [{ id }] });
  }
  expect(await observer.cancel(id)).toMatchObject({ error: { _tag: "UnavailableError" } });
  expect(await observer.get(id).orThrow()).toMatchObject({ job: { state: "pending" } });
  expect(await operator.cancel(id).orThrow()).toMatchObject({ job: { state: "cancelled" } });
});

it("tells whoever may not listen at the inboxes of a connection where to", async () => {
  const { ask } = await guardedAdmin();
  for (const inbox of [undefined, inboxPrefix(prefix), inboxPrefix(prefix, roles.observer)]) {
    const jobs = await ask("operator", inbox);
    const result = await jobs.list({ limit: 10 });
    expect(result).toMatchObject({
      error: {
        _tag: "UnavailableError",
        message: expect.stringMatching(
          /may not listen at the inboxes.*inboxPrefix\("mailing", \{ kind: "operator" \}\)/,
        ),
      },
    });
  }
});
