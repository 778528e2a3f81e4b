/**
 * The filters that lists of jobs and bulk commands share.
 */
import type { Query } from "./api.js";
import { option } from "./define.js";
import { list, timeOrAgo } from "./values.js";

/** What narrows a list. */
export interface FilterOptions {
  readonly service?: string;
  readonly type?: string;
  readonly queue?: string;
  readonly state?: readonly string[];
  readonly tag?: string;
  readonly key?: string;
  readonly since?: string;
  readonly until?: string;
  readonly text?: string;
  readonly parent?: string;
  readonly chain?: string;
}

/** The filters that a bulk command takes, too. */
export const filterOptions = () => [
  option("--service <name>", "of this service"),
  option("--type <name>", "of this type"),
  option("--queue <name>", "in this queue"),
  option("--tag <tag>", "with this tag"),
  option("--key <key>", "under this concurrency key"),
  option("--since <time>", "created at or after this time, or this long ago (1h)", timeOrAgo),
  option("--until <time>", "created before this time, or this long ago", timeOrAgo),
  option("--text <part>", "with this in the id"),
];

/** The filters of a list of jobs. */
export const jobFilterOptions = () => [
  ...filterOptions(),
  option("--state <states>", "in one of these states (a comma list)", list),
  option("--parent <id>", "children of this job"),
  option("--chain <id>", "of this chain"),
];

/** The filter as the body of a bulk command has it. */
export function filterBody(options: FilterOptions): Readonly<Record<string, string>> {
  const { service, type, queue, tag, key, since, until, text } = options;
  const filter = { service, type, queue, tag, key, since, until, text };
  const given = Object.entries(filter).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as Record<string, string>;
}

/** The filter as a query. */
export function filterQuery(options: FilterOptions): Query {
  const { state, parent: parentId, chain: chainId } = options;
  return { ...filterBody(options), state, parentId, chainId };
}
