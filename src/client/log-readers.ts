/**
 * Whether somebody follows the log of a service, so that jobs which are not kept must not be removed before they were read.
 */
import { recordId } from "../engine/record.js";
import type { Runtime } from "./runtime.js";

/** How long an answer holds, because jobs end far more often than webhooks come and go. */
const holdsMs = 1_000;

const answers = new WeakMap<
  Runtime,
  { readonly until: number; readonly isRead: Promise<boolean> }
>();

/** Whether the service has webhooks, as of a second ago at most. */
export function isLogRead(runtime: Runtime): Promise<boolean> {
  const now = runtime.clock.monotonic();
  const known = answers.get(runtime);
  if (known !== undefined && known.until > now) return known.isRead;
  const ask = { prefix: recordId.webhooks(runtime.service), limit: 1 };
  const isRead = runtime.engine.query("records", ask).then((records) => records.length > 0);
  answers.set(runtime, { until: now + holdsMs, isRead });
  return isRead;
}
