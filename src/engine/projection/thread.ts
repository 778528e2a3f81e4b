/**
 * The thread of a projection in a SQLite file.
 */
import { serve } from "../sqlite/serve.js";
import { Memory } from "./known.js";
import { type Read, readItem } from "./reads.js";
import { onSqlite } from "./transaction.js";
import { performWrite, type Writes } from "./writes.js";

/** A writing operation; each item is what it is asked. */
interface Write {
  readonly kind: keyof Writes;
  readonly items: readonly Writes[keyof Writes]["ask"][];
}

/** What is remembered, and of which version of the file: whatever another connection commits makes a new one. */
let memory = new Memory();
let version: number | null = null;

serve<Write, Read>({
  fileKind: "projection",
  *writeAll(tx, writes) {
    const [file] = yield { sql: "SELECT data_version FROM pragma_data_version", values: [] };
    if (file?.data_version !== version) memory = new Memory();
    version = Number(file?.data_version);
    const answers: unknown[][] = [];
    for (const { kind, items } of writes) {
      const answered: unknown[] = [];
      for (const ask of items) answered.push(yield* performWrite(onSqlite(tx, memory), kind, ask));
      answers.push(answered);
    }
    return answers;
  },
  readItem,
});
