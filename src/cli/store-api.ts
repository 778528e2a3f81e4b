/**
 * The HTTP API on a store, in this process and without a socket. Whoever may open the store may do everything.
 */
import { userInfo } from "node:os";
import { InvalidOption } from "../client/errors.js";
import { given as defined } from "../client/reads.js";
import type { Caller } from "../server/http/caller.js";
import { openApp } from "../server/http/server.js";
import type { Api } from "./api.js";
import { encryptionKeys } from "./encryption-options.js";
import { Failure } from "./failure.js";
import { type Given, numberValue } from "./settings.js";
import { storeFailure } from "./store-failure.js";

/** Opens a store and answers for it. */
export async function storeApi(url: string, given: Given): Promise<Api> {
  const options = {
    ...{ url, caller: caller() },
    ...defined({
      encryptionKeys: encryptionKeys(given),
      auditRetentionMs: numberValue(given, "auditRetentionMs"),
    }),
  };
  const app = await openApp(options).catch((error: unknown) => {
    throw error instanceof InvalidOption
      ? new Failure("usage", error.message)
      : storeFailure(error);
  });
  // The engine names the store without the password that a URL may hold.
  return {
    where: app.engine.url,
    fetch: async (request) => app.fetch(request),
    close: () => app.close(),
  };
}

/** Whoever has the store may do everything; the log remembers them by their name on this machine. */
function caller(): Caller {
  const actor = `admin:${userName()}` as const;
  return { id: actor, actor, capabilities: "all" };
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return "command-line";
  }
}
