/**
 * The queue name that is guarded, because misconfigured deployments make it without meaning to.
 */
import type { Backend } from "./backend.js";
import { badArgument } from "./refusal.js";

const guardedName = "DEFAULT";

/** Refuses the guarded name unless the server was told to allow it. */
export function checkQueueName(
  { allowsDefaultQueue }: Pick<Backend, "allowsDefaultQueue">,
  queue: string,
): void {
  if (queue !== guardedName || allowsDefaultQueue) return;
  const message = `A queue ${guardedName} is often made by mistake; start the server with --allow-create-default to allow it.`;
  throw badArgument("default_queue_guarded", message, "queue");
}
