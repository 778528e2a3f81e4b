/**
 * What travels between the threads most, as little of it as can be. To copy values from thread to thread one by one takes
 * about as long as to store them, and to copy one text takes next to nothing. So plain creates that stand one after the other
 * travel as one text, and where everything was appended, that is all that the answer says.
 */
import type { AppendOutcome } from "../engine.js";
import type { PlainCreate } from "../sql/plain.js";
import type { Operation, PackedCreates, Reply } from "./protocol.js";

type Create = Operation & { readonly kind: "create"; readonly items: readonly PlainCreate[] };

/** What stands between two values. JSON has it only escaped. */
const separator = "\0";

/** How many values a create has. */
const width = 14;

/** The text of a deadline where there is none. */
const none = "";

/** Operations with their creates packed. */
export function pack(operations: readonly Operation[]): readonly (Operation | PackedCreates)[] {
  const packed: (Operation | PackedCreates)[] = [];
  let creates: Create[] = [];
  const flush = () => {
    if (creates.length > 0) packed.push(packCreates(creates));
    creates = [];
  };
  for (const operation of operations) {
    if (isPackable(operation)) {
      creates.push(operation);
      continue;
    }
    flush();
    packed.push(operation);
  }
  flush();
  return packed;
}

/** The operations as they were before they were packed. */
export function unpack(operations: readonly (Operation | PackedCreates)[]): readonly Operation[] {
  return operations.flatMap((operation) =>
    isPacked(operation) ? unpackCreates(operation) : operation,
  );
}

function isPacked(operation: Operation | PackedCreates): operation is PackedCreates {
  return operation.kind === "packed";
}

/** Names and ids are anybody's, and one that holds what stands between values travels as it is. */
function isPackable(operation: Operation): operation is Create {
  if (operation.kind !== "create") return false;
  for (const [id, service, queue, type, , , , , , , , eventId, actor] of (operation as Create)
    .items)
    for (const name of [id, service, queue, type, eventId, actor])
      if (name.includes(separator)) return false;
  return true;
}

function packCreates(creates: readonly Create[]): PackedCreates {
  const texts: string[] = [];
  for (const { items } of creates) for (const item of items) texts.push(item.join(separator));
  const sizes = creates.map(({ items }) => items.length);
  return { kind: "packed", text: texts.join(separator), sizes };
}

function unpackCreates({ text, sizes }: PackedCreates): readonly Create[] {
  const values = text.split(separator);
  let start = 0;
  return sizes.map((size) => {
    const items: PlainCreate[] = [];
    for (let index = 0; index < size; index++, start += width) items.push(createAt(values, start));
    return { kind: "create", items };
  });
}

function createAt(values: readonly string[], start: number): PlainCreate {
  const text = (place: number) => values[start + place] as string;
  const number = (place: number) => Number(values[start + place]);
  return [
    text(0),
    text(1),
    text(2),
    text(3),
    number(4),
    number(5),
    number(6),
    number(7),
    text(8) === none ? null : number(8),
    number(9),
    text(10),
    text(11),
    text(12),
    text(13),
  ];
}

const appended: AppendOutcome = { outcome: "appended" };
const oneAppended: Reply = { answer: [appended] };

/** The answers to operations, or `null` where every item of each was appended, and that is all there is to say. */
export function packReplies(replies: readonly Reply[]): readonly Reply[] | null {
  return replies.every(isAppended) ? null : replies;
}

/** The answers to operations as they were before they were packed. */
export function unpackReplies(
  replies: readonly Reply[] | null,
  operations: readonly Operation[],
): readonly Reply[] {
  return replies ?? operations.map(({ items = [] }) => appendedReply(items.length));
}

function isAppended(reply: Reply): boolean {
  return (
    "answer" in reply &&
    Array.isArray(reply.answer) &&
    reply.answer.every((item) => item?.outcome === "appended" && item.policy === undefined)
  );
}

function appendedReply(count: number): Reply {
  return count === 1 ? oneAppended : { answer: new Array(count).fill(appended) };
}
