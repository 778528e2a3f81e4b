/**
 * Whether somebody follows the log of a service, so that jobs which are not kept must not be removed before they were read.
 */
import { recordId } from "../engine/record.js";
import type { Runtime } from "./runtime.js";

/** A look into the store. Who asks before it has begun shares it. */
interface Look {
  hasBegun: boolean;
  readonly isRead: Promise<boolean>;
}

const looks = new WeakMap<Runtime, Look>();

/**
 * Whether the service has webhooks. The answer is never older than the question, because a webhook that was made before a job
 * ended must be told of that; so those who ask while a look is under way share the next.
 */
export function isLogRead(runtime: Runtime): Promise<boolean> {
  const last = looks.get(runtime);
  if (last !== undefined && !last.hasBegun) return last.isRead;
  const before = last?.isRead.catch(() => false) ?? Promise.resolve(false);
  const look: Look = {
    hasBegun: false,
    isRead: before.then(async () => {
      look.hasBegun = true;
      const ask = { prefix: recordId.webhooks(runtime.service), limit: 1 };
      return (await runtime.engine.query("records", ask)).length > 0;
    }),
  };
  looks.set(runtime, look);
  return look.isRead;
}
