/**
 * The thread of a projection in a SQLite file.
 */
import { serve } from "../sqlite/serve.js";
import { type Read, readItem } from "./reads.js";
import { onSqlite } from "./transaction.js";
import { performWrite, type Writes } from "./writes.js";

/** A writing operation; each item is what it is asked. */
interface Write {
  readonly kind: keyof Writes;
  readonly items: readonly Writes[keyof Writes]["ask"][];
}

serve<Write, Read>({
  fileKind: "projection",
  *writeAll(tx, writes) {
    const answers: unknown[][] = [];
    for (const { kind, items } of writes) {
      const answered: unknown[] = [];
      for (const ask of items) answered.push(yield* performWrite(onSqlite(tx), kind, ask));
      answers.push(answered);
    }
    return answers;
  },
  readItem,
});
