// Publishing several messages by a port that publishes one at a time, so that a test can come between any two.
import type { EachPublication, OutgoingMessage, Port } from "#millrace/engine/nats/port.js";

/** Publishes events one by one, all at once. */
export function eachAlone(
  messages: readonly OutgoingMessage[],
  publish: Port["publish"],
): Promise<readonly EachPublication[]> {
  const faulted = (error: unknown): EachPublication => ({ outcome: "fault", error });
  return Promise.all(messages.map((message) => publish("jobs", message).catch(faulted)));
}
