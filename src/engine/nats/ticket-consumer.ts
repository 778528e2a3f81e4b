/**
 * The consumer that hands out the tickets of a lane and priority: how it is made, and what is wrong with one that is there and
 * was made otherwise.
 */
import type { ConsumerConfig } from "./port.js";

/** How often a message may be delivered before the advisories speak of it; retries are counted in the log instead. */
const deliveriesMax = 1_000;

/** The fewest tickets that have to be out at once, one for each job that runs; it is what servers set by themselves. */
const pendingMin = 1_000;

/** What a server is asked to make. */
export function ticketConsumer({ name, filter, ackWaitMs }: ConsumerConfig) {
  return {
    name,
    durable_name: name,
    filter_subject: filter,
    deliver_policy: "all",
    ack_policy: "explicit",
    ack_wait: ackWaitMs * 1e6,
    max_deliver: deliveriesMax,
    max_ack_pending: -1,
  };
}

/** A consumer as its server describes it. */
export interface FoundConsumer {
  readonly filter_subject?: string;
  readonly ack_policy?: string;
  readonly ack_wait?: number;
  readonly deliver_subject?: string;
  readonly headers_only?: boolean;
  readonly max_deliver?: number;
  readonly max_ack_pending?: number;
}

/** Why a consumer that is there cannot hand out the tickets under a filter; `null` if it can. */
export function flawOf(found: FoundConsumer, filter: string): string | null {
  if (found.filter_subject !== filter)
    return `It hands out ${found.filter_subject || "something else"} and not ${filter}.`;
  if (found.ack_policy !== "explicit") return "Its messages are not acknowledged one by one.";
  if (found.deliver_subject)
    return `It pushes to ${found.deliver_subject}, where no worker listens, instead of waiting to be asked.`;
  if (found.headers_only) return "It hands out headers alone.";
  if (isBelow(found.max_deliver, deliveriesMax))
    return `It gives a job up after ${found.max_deliver} deliveries (max_deliver), whatever tries the job has left; it needs ${deliveriesMax} of them, or no limit.`;
  if (isBelow(found.max_ack_pending, pendingMin))
    return `It lets no more than ${found.max_ack_pending} jobs run at once (max_ack_pending); it needs ${pendingMin} of them, or no limit.`;
  return null;
}

/** A server takes whatever is not positive for no limit. */
function isBelow(limit: number | undefined, least: number): boolean {
  return limit !== undefined && limit > 0 && limit < least;
}
