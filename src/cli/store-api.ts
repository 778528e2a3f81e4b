/**
 * The HTTP API on a store, in this process and without a socket. Whoever may open the store may do everything.
 */
import { userInfo } from "node:os";
import { openApp } from "../server/http/server.js";
import type { Api } from "./api.js";
import { storeFailure } from "./store-failure.js";

/** Opens a store and answers for it. */
export async function storeApi(url: string): Promise<Api> {
  const app = await openApp({ url, actor: actorName() }).catch((error: unknown) => {
    throw storeFailure(error);
  });
  return { where: url, fetch: async (request) => app.fetch(request), close: () => app.close() };
}

/** The name under which the log remembers who did something. */
function actorName(): `admin:${string}` {
  try {
    return `admin:${userInfo().username}`;
  } catch {
    return "admin:command-line";
  }
}
