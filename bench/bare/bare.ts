// Bare SQL, the yardstick: the script of the database under the run's engine.
import type { EngineName } from "../bench.js";
import type { Rounds } from "../rounds.js";
import { bareNats } from "./nats.js";
import { barePostgres } from "./postgres.js";
import type { BareScript } from "./script.js";
import { bareSqlite } from "./sqlite.js";

/** The database under an engine; under the one in memory there is none, and SQLite stands in. */
export const bareOf: Readonly<Record<EngineName, BareScript>> = {
  file: bareSqlite,
  memory: bareSqlite,
  postgres: barePostgres,
  nats: bareNats,
  "nats-always": bareNats,
};

/** The rounds of whichever script belongs to the run's engine. */
export const bare: Rounds = {
  createConcurrent: (bench) => bareOf[bench.engine].createSequential(bench),
  createSequential: (bench) => bareOf[bench.engine].createSequential(bench),
  createMany: (bench) => bareOf[bench.engine].createMany(bench),
  drain: (bench) => bareOf[bench.engine].drain(bench),
};
