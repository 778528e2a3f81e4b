// All four stores, for behaviour that is proven end to end on each of them.
import { freshStoreUrl } from "./nats.js";
import { freshSchema } from "./postgres.js";
import { type Store, stores } from "./stores.js";

export const everyStore: readonly Store[] = [
  ...stores,
  { name: "postgres", freshUrl: async () => (await freshSchema()).storeUrl },
  { name: "nats", freshUrl: freshStoreUrl },
];

export type { Store };
