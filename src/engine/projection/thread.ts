/**
 * The thread of a projection in a SQLite file.
 */
import { serve } from "../sqlite/serve.js";
import { type Read, readItem } from "./reads.js";
import { projectionDialect } from "./transaction.js";
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
      for (const ask of items) {
        // Another process may have cleared the projection and numbered the lanes anew, so that nobody remembers them.
        const own = { ...tx, dialect: projectionDialect, lanes: new Map() };
        const store = { lock: "", empty: "DELETE FROM", nextAt: Number.POSITIVE_INFINITY };
        answered.push(yield* performWrite({ ...own, ...store }, kind, ask));
      }
      answers.push(answered);
    }
    return answers;
  },
  readItem,
});
