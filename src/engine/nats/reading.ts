/**
 * Reading what a stream holds now: by direct get, or by a consumer that lives no longer than the reading. It pushes to an
 * inbox, so that reading takes one request, whose subject names the filter and can be permitted.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { Incoming } from "./incoming.js";
import type { Part, StoredMessage } from "./port.js";
import { firstHeader, HeaderName, statusOf } from "./raw-headers.js";
import { directMessage, placeOf, storedMessage } from "./read-message.js";
import type { Receiver } from "./receiving.js";

/** Where is read from. */
export interface ReadingFrom {
  readonly connection: NatsConnection;
  readonly receiver: Receiver;
  readonly stream: string;
  /** Where a direct get of many messages is asked for. */
  readonly directSubject: string;
  readonly newInbox: () => string;
  /** Calls when the connection is lost. Gives the way to stop. */
  readonly onLost: (call: () => void) => () => void;
  readonly newName: () => string;
  /** Makes a consumer, and gives how many messages wait for it. */
  readonly create: (subject: string, body: object) => Promise<number>;
}

/** How long a consumer outlives its reader, in nanoseconds. */
const outlivesNs = 1e9;

/** How long a reader waits for the next message of those that are there. */
const stallMs = 5_000;

/** Makes a consumer that pushes what lies under a filter, and gives how many messages wait for it. */
export function consumerOf(from: ReadingFrom, filter: string, inbox: string, extra: object) {
  const name = from.newName();
  const config = {
    name,
    filter_subject: filter,
    deliver_subject: inbox,
    ack_policy: "none",
    mem_storage: true,
    num_replicas: 1,
    inactive_threshold: outlivesNs,
    ...extra,
  };
  const subject = `CONSUMER.CREATE.${from.stream}.${name}.${filter}`;
  return from.create(subject, { stream_name: from.stream, config });
}

/** All there is. */
export const everything: Part = { after: 0, limit: Number.POSITIVE_INFINITY };

/** How many messages one direct get asks for. */
const directMax = 1_000;

/** What ends the messages of a direct get: all were sent, or there are none. */
const endOfBatch = 204;
const notFound = 404;

/** The status of a request that nobody was there to answer. */
const nobodyThere = 503;

/** Where a server says how many messages of a direct get are left. */
const pendingHeader = new HeaderName("Nats-Num-Pending");

/** What a direct get of many messages gave; `null` if the server refuses to give so many. */
type DirectAnswer = {
  readonly messages: readonly StoredMessage[];
  readonly pending: number;
} | null;

/** Messages under a filter, by direct get: cheaper than a consumer, for those who may read everything. */
export async function readDirect(
  from: ReadingFrom,
  filter: string,
  { after, limit }: Part = everything,
): Promise<readonly StoredMessage[]> {
  const messages: StoredMessage[] = [];
  for (let seq = after + 1; ; seq = (messages.at(-1)?.seq ?? after) + 1) {
    const batch = Math.min(directMax, limit - messages.length);
    const answer = await getDirect(from, { seq, next_by_subj: filter, batch });
    if (answer === null) throw timeout();
    messages.push(...answer.messages);
    if (answer.pending === 0 || messages.length >= limit) return messages;
  }
}

/** The newest message of each subject under some filters. */
export async function readLastOfEach(
  from: ReadingFrom,
  filters: readonly string[],
): Promise<readonly StoredMessage[] | null> {
  return (await getDirect(from, { multi_last: filters }))?.messages ?? null;
}

/** Asks for many messages at once. */
function getDirect(from: ReadingFrom, request: object): Promise<DirectAnswer> {
  const inbox = from.newInbox();
  const messages: StoredMessage[] = [];
  return new Promise((resolve, reject) => {
    const finish = (end: () => void) => {
      clearTimeout(timer);
      forget();
      subscription.unsubscribe();
      end();
    };
    const giveUp = () => finish(() => reject(timeout()));
    const timer = setTimeout(giveUp, stallMs);
    const forget = from.onLost(giveUp);
    const heard = (message: Incoming) => {
      // What the server itself says has no body, and reading headers is dear.
      const code = message.hasData ? 0 : (statusOf(message) ?? 0);
      timer.refresh();
      if (code === endOfBatch) {
        const pending = Number(firstHeader(message, pendingHeader) ?? 0);
        finish(() => resolve({ messages, pending }));
      } else if (code === notFound) finish(() => resolve({ messages, pending: 0 }));
      else if (code === nobodyThere) finish(() => reject(noResponders()));
      else if (code > 0) finish(() => resolve(null));
      else messages.push(directMessage(message));
    };
    const subscription = from.receiver.subscribe(inbox, heard, (error) =>
      finish(() => reject(error)),
    );
    from.connection.publish(from.directSubject, JSON.stringify(request), { reply: inbox });
  });
}

/** Messages under a filter, or the newest of each subject, by a consumer whose filter can be permitted. */
export async function readAll(
  from: ReadingFrom,
  filter: string,
  part: Part = everything,
  which: "all" | "last_per_subject" = "all",
): Promise<readonly StoredMessage[]> {
  const inbox = from.newInbox();
  const messages: StoredMessage[] = [];
  let finish: (error?: Error) => void = () => {};
  const finished = new Promise<void>((resolve, reject) => {
    finish = (error) => (error ? reject(error) : resolve());
  });
  finished.catch(() => {});
  let timer: NodeJS.Timeout | undefined;
  const forget = from.onLost(() => finish(timeout()));
  const heard = (message: Incoming) => {
    if (!message.hasData && statusOf(message)) return;
    const { seq, pending } = placeOf(message);
    messages.push(storedMessage(message, seq));
    timer?.refresh();
    if (pending === 0) finish();
  };
  const subscription = from.receiver.subscribe(inbox, heard, finish);
  try {
    const count = await consumerOf(from, filter, inbox, { deliver_policy: which });
    if (count === 0) return [];
    timer = setTimeout(() => finish(timeout()), stallMs);
    await finished;
    return part === everything
      ? messages
      : messages.filter(({ seq }) => seq > part.after).slice(0, part.limit);
  } finally {
    clearTimeout(timer);
    forget();
    subscription.unsubscribe();
  }
}

function timeout(): Error {
  return named("TimeoutError", "The server stopped sending in the middle.");
}

function noResponders(): Error {
  return named("NoRespondersError", "Nobody is there to answer.");
}

/** An error as the library names it. */
function named(name: string, message: string): Error {
  const error = new Error(message);
  error.name = name;
  return error;
}
