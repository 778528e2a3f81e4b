/**
 * Taking tickets from consumers. An inbox that was emptied serves the next fetch, because a server has to be told of
 * every new one and of its end. A consumer that does not answer is not waited for again and again, and what it gives out when
 * nobody waits any more is given back.
 */
import { type Clock, systemClock } from "../clock.js";
import type { Incoming } from "./incoming.js";
import type { Delivery } from "./port.js";
import { statusOf } from "./raw-headers.js";
import { deliveredText, placeOf } from "./read-message.js";
import type { Listening, Receiver } from "./receiving.js";
import type { Requests } from "./requests.js";
import type { Sender } from "./sending.js";

/** How long the answer to a fetch is waited for, besides the time that the server may take. */
const fetchTimeoutMs = 5_000;

/** The same where a consumer did not answer the last time, until it does: others have jobs for whoever waits. */
const silentTimeoutMs = 250;

/** How many inboxes wait for the next fetch, and how many for answers that are late. */
const idleMax = 64;
const lateMax = 64;

/** The status of a request that nobody was there to answer. */
const noResponders = 503;

/** What fetches are made over. */
export interface FetchingFrom {
  readonly receiver: Receiver;
  readonly sender: Sender;
  readonly requests: Requests;
  readonly newInbox: () => string;
  /** Calls after a while; by the machine's own clock where nothing else is given. */
  readonly after?: Clock["after"];
}

/** A fetch that is under way, or one that nobody waits for any more. */
interface Fetch {
  /** Where it was asked for. */
  readonly subject: string;
  /** How many may still come. */
  left: number;
  readonly take: (delivery: Delivery) => void;
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
  readonly #after: Clock["after"];
  readonly #idle: Inbox[] = [];
  /** Those to which an answer may still come that nobody waits for, the oldest first. */
  readonly #late = new Set<Inbox>();
  /** Where nothing was answered the last time. */
  readonly #silent = new Set<string>();

  constructor(from: FetchingFrom) {
    this.#from = from;
    this.#after = from.after ?? systemClock.after;
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
        callOff();
        forget();
        inbox.fetch = null;
      };
      // What comes too late must not be taken for what the next one has asked for.
      const giveUp = () => {
        end();
        this.#giveBackLate(inbox, subject, limit - deliveries.length);
        resolve(deliveries);
      };
      const timeoutMs = this.#silent.has(subject) ? silentTimeoutMs : fetchTimeoutMs;
      const callOff = this.#after(timeoutMs + waitMs, () => {
        if (deliveries.length === 0) this.#silent.add(subject);
        giveUp();
      });
      const forget = requests.onLost(giveUp);
      const over = (given: readonly Delivery[] | null) => {
        end();
        if (this.#idle.length < idleMax) this.#idle.push(inbox);
        else inbox.subscription.unsubscribe();
        resolve(given);
      };
      inbox.fetch = {
        subject,
        left: limit,
        take: (delivery) => void deliveries.push(delivery),
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
      if (inbox.fetch === null) return;
      if (this.#silent.size > 0) this.#silent.delete(inbox.fetch.subject);
      take(inbox.fetch, message);
    };
    const subscription = this.#from.receiver.subscribe(name, heard, (error) =>
      this.#lose(inbox, error),
    );
    const inbox: Inbox = { name, subscription, fetch: null };
    return inbox;
  }

  /** Has an inbox give back what comes to it from now on, so that nobody waits until it is offered again by itself. */
  #giveBackLate(inbox: Inbox, subject: string, left: number): void {
    const { sender } = this.#from;
    const over = () => {
      this.#late.delete(inbox);
      inbox.fetch = null;
      inbox.subscription.unsubscribe();
    };
    const take = ({ reply }: Delivery) => void sender.send({ subject: reply, body: "-NAK" });
    inbox.fetch = { subject, left, take, finish: over, miss: over, fail: over };
    this.#late.add(inbox);
    const [oldest] = this.#late;
    if (this.#late.size > lateMax) oldest?.fetch?.finish();
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
    fetch.take(deliveryOf(message));
    fetch.left -= 1;
    if (fetch.left === 0) fetch.finish();
  } else if (statusOf(message) === noResponders) fetch.miss();
  else fetch.finish();
}

/** A delivery as it came. */
function deliveryOf(message: Incoming): Delivery {
  const { seq, delivered } = placeOf(message);
  const { subject, reply } = message;
  return { subject, seq, body: deliveredText(message), reply, isRedelivery: delivered > 1 };
}
