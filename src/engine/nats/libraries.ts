/**
 * The client library of NATS, which is there only where somebody uses this engine.
 */
import { StoreUnavailable } from "../errors.js";

/** What the library offers. */
export type NatsLibrary = typeof import("@nats-io/transport-node");

/** Loads the library, or says how to install it. */
export async function loadNats(url: string): Promise<NatsLibrary> {
  try {
    return await import("@nats-io/transport-node");
  } catch {
    const message =
      "The package @nats-io/transport-node is not installed; run npm install @nats-io/transport-node @nats-io/jetstream.";
    throw new StoreUnavailable({ url, message });
  }
}
