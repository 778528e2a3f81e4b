/**
 * The thread of the SQLite engine.
 */
import { readItem } from "./reads.js";
import { serve } from "./serve.js";
import { writeAll } from "./writes.js";

serve({ fileKind: "store", writeAll, readItem });
