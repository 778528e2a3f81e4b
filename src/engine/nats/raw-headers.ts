/**
 * Reading single headers of a message. The library decodes all of them at once, which costs more than everything else
 * that is done with an event; but the bytes lie in front of the data, and are looked at there.
 */
import type { Msg } from "@nats-io/transport-node";

/** Gives the value of a header, the first if there are several; `undefined` where there is none. */
export type HeaderLookup = (name: string) => string | undefined;

/** The library's messages tell how long they are with everything, though its types do not. */
interface SizedMsg extends Msg {
  size?(): number;
}

/** What headers begin with that carry no status. */
const opening = "NATS/1.0\r\n";

/** A lookup in the headers of a message with the data that it gave. */
export function headerLookup(message: Msg, data: Uint8Array): HeaderLookup {
  const text = headerText(message, data);
  if (text === null) {
    const { headers } = message;
    return (name) => (headers?.has(name) ? headers.get(name) : undefined);
  }
  return (name) => {
    const begin = text.indexOf(`\r\n${name}:`);
    if (begin < 0) return undefined;
    const value = begin + name.length + "\r\n:".length;
    return text.slice(value, text.indexOf("\r\n", value)).trim();
  };
}

/** The headers as they were sent; `null` where they are not found in front of the data. */
function headerText(message: SizedMsg, data: Uint8Array): string | null {
  const { subject, reply = "" } = message;
  const size = message.size?.() ?? 0;
  const length = size - Buffer.byteLength(subject) - Buffer.byteLength(reply) - data.length;
  const start = data.byteOffset - length;
  if (length < opening.length || start < 0) return null;
  const text = Buffer.from(data.buffer, start, length).toString("latin1");
  return text.startsWith(opening) && text.endsWith("\r\n\r\n") ? text : null;
}
