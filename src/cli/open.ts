/**
 * Opens the way to the API: of a server, over the network, or of a store, in this process.
 */
import type { Api } from "./api.js";
import { type Certificates, certificatesOf, fetchWith } from "./certificates.js";
import type { Given } from "./settings.js";
import type { Target } from "./target.js";

/** Opens the way to a server or a store. */
export async function openApi(target: Target, given: Given): Promise<Api> {
  return target.kind === "server"
    ? serverApi(target.url, target.token, certificatesOf(given))
    : (await import("./store-api.js")).storeApi(target.url, given);
}

function serverApi(url: string, token: string | undefined, certificates: Certificates | null): Api {
  return {
    where: url,
    fetch: (request) => {
      if (token !== undefined) request.headers.set("authorization", `Bearer ${token}`);
      return certificates === null ? fetch(request) : fetchWith(request, certificates);
    },
    close: async () => {},
  };
}
