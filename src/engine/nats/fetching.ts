/**
 * Taking tickets from consumers. An inbox that was emptied serves the next fetch, because a server has to be told of
 * every new one and of its end.
 */
import type { Incoming } from "./incoming.js";
import type { Delivery } from "./port.js";
import { statusOf } from "./raw-headers.js";
import { deliveredText, placeOf } from "./read-message.js";
import type { Listening, Receiver } from "./receiving.js";
import type { Requests } from "./requests.js";
import type { Sender } from "./sending.js";

/** How long the answer to a fetch is waited for, besides the time that the server may take. */
const fetchTimeoutMs = 5_000;

/** How many inboxes wait for the next fetch. */
const idleMax = 64;

/** The status of a request that nobody was there to answer. */
const noResponders = 503;

/** What fetches are made over. */
export interface FetchingFrom {
  readonly receiver: Receiver;
  readonly sender: Sender;
  readonly requests: Requests;
  readonly newInbox: () => string;
}

/** A fetch that is under way. */
interface Fetch {
  readonly limit: number;
  readonly deliveries: Delivery[];
  /** It has all that comes. */
  readonly finish: () => void;
  /** The consumer is not there. */
  readonly miss: () => void;
  readonly fail: (error: Error) => void;
}

/** Where the deliveries of one fetch after the other come in. */
interface Inbox {
  readonly name: string;
  readonly subscription: Listening;
  fetch: Fetch | null;
}

/** The fetches of a process. */
export class Fetches {
  readonly #from: FetchingFrom;
  readonly #idle: Inbox[] = [];

  constructor(from: FetchingFrom) {
    this.#from = from;
  }

  /**
   * Takes what a consumer has now, at most so many, or what comes within a time; `null` if the consumer is gone. Throws what
   * the library does.
   */
  take(subject: string, limit: number, waitMs: number): Promise<readonly Delivery[] | null> {
    const { sender, requests } = this.#from;
    const inbox = this.#idle.pop() ?? this.#newInbox();
    return new Promise((resolve, reject) => {
      const deliveries: Delivery[] = [];
      const end = () => {
        clearTimeout(timer);
        forget();
        inbox.fetch = null;
      };
      // What comes too late must not be taken for what the next one has asked for.
      const giveUp = () => {
        end();
        inbox.subscription.unsubscribe();
        resolve(deliveries);
      };
      const timer = setTimeout(giveUp, fetchTimeoutMs + waitMs);
      // The connection keeps the process alive as long as anybody can wait for an answer.
      timer.unref();
      const forget = requests.onLost(giveUp);
      const over = (given: readonly Delivery[] | null) => {
        end();
        if (this.#idle.length < idleMax) this.#idle.push(inbox);
        else inbox.subscription.unsubscribe();
        resolve(given);
      };
      inbox.fetch = {
        limit,
        deliveries,
        finish: () => over(deliveries),
        miss: () => over(null),
        fail: (error) => {
          end();
          inbox.subscription.unsubscribe();
          if (deliveries.length > 0) resolve(deliveries);
          else reject(error);
        },
      };
      const patience = waitMs === 0 ? `"no_wait":true` : `"expires":${waitMs * 1e6}`;
      sender.send({ subject, body: `{"batch":${limit},${patience}}` }, inbox.name);
    });
  }

  #newInbox(): Inbox {
    const name = this.#from.newInbox();
    const heard = (message: Incoming) => {
      if (inbox.fetch !== null) take(inbox.fetch, message);
    };
    const subscription = this.#from.receiver.subscribe(name, heard, (error) =>
      this.#lose(inbox, error),
    );
    const inbox: Inbox = { name, subscription, fetch: null };
    return inbox;
  }

  /** Nothing comes in there any more. */
  #lose(inbox: Inbox, error: Error): void {
    const place = this.#idle.indexOf(inbox);
    if (place >= 0) this.#idle.splice(place, 1);
    inbox.fetch?.fail(error);
  }
}

function take(fetch: Fetch, message: Incoming): void {
  // What the server itself says has no body, and nobody is to acknowledge it.
  if (message.hasData || message.hasReply) {
    fetch.deliveries.push(deliveryOf(message));
    if (fetch.deliveries.length === fetch.limit) fetch.finish();
  } else if (statusOf(message) === noResponders) fetch.miss();
  else fetch.finish();
}

/** A delivery as it came. */
function deliveryOf(message: Incoming): Delivery {
  const { seq, delivered } = placeOf(message);
  const { subject, reply } = message;
  return { subject, seq, body: deliveredText(message), reply, isRedelivery: delivered > 1 };
}
