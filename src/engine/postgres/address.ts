/**
 * What a `postgres://` URL says: where the server is, and in its query what is Millrace's own.
 */
import { StoreUnavailable } from "../errors.js";

/** A URL taken apart. */
export interface Address {
  /** The URL for the driver, without what is Millrace's own. */
  readonly connectionString: string;
  /** How errors and logs name the store: without user, password and settings. */
  readonly where: string;
  readonly schema: string;
  /** The database; the user's own where the URL names none. */
  readonly database: string;
  /** Whom rights are to be granted to; empty where the URL does not say. */
  readonly user: string;
  readonly poolMax: number;
}

const schemaDefault = "millrace";
const poolMaxDefault = 10;
const poolMaxLimit = 100;

/** Takes a URL apart. `?schema=` names the schema, `?poolMax=` the most connections of this process. */
export function addressOf(given: string): Address {
  const url = parse(given);
  const where = `postgres://${url.host}${url.pathname}`;
  const refuse = (message: string) => new StoreUnavailable({ url: where, message });
  const schema = url.searchParams.get("schema") ?? schemaDefault;
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(schema))
    throw refuse(
      `The schema "${schema}" in the URL cannot be used; choose letters, digits and "_", at most 63.`,
    );
  if (schema.startsWith("pg_"))
    throw refuse(
      `The schema "${schema}" in the URL cannot be used; PostgreSQL keeps names that begin with "pg_" for itself. Choose another.`,
    );
  const poolMax = Number(url.searchParams.get("poolMax") ?? poolMaxDefault);
  if (!Number.isInteger(poolMax) || poolMax < 2 || poolMax > poolMaxLimit)
    throw refuse(`poolMax in the URL must be a whole number from 2 to ${poolMaxLimit}.`);
  for (const name of url.searchParams.keys()) {
    const meant = ownNames.includes(name) ? undefined : ownNames.find((own) => isLike(name, own));
    if (meant !== undefined)
      throw refuse(`"${name}" in the URL is not known; ${meant} is written so, if you mean that.`);
  }
  url.searchParams.delete("schema");
  url.searchParams.delete("poolMax");
  const user = decoded(url.username);
  const database = decoded(url.pathname.slice(1)) || user;
  return { connectionString: url.href, where, schema, database, user, poolMax };
}

/** What in the query is Millrace's own. All else is for the driver or the server. */
const ownNames = ["schema", "poolMax"];

/**
 * Whether a name must be a misspelling of an own one: the store would be another than was meant. The driver and the server
 * have no setting that is so near to one of them.
 */
function isLike(name: string, own: string): boolean {
  const [given, wanted] = [name, own].map((each) => each.toLowerCase().replace(/[^a-z]/g, "")) as [
    string,
    string,
  ];
  return given.includes(wanted) || isOneSlipAway(given, wanted);
}

/** Whether two words differ by one letter at most that is missing, too many, another, or in its neighbour's place. */
function isOneSlipAway(one: string, other: string): boolean {
  if (one === other) return true;
  const [short, long] = one.length <= other.length ? [one, other] : [other, one];
  let from = 0;
  while (from < short.length && short[from] === long[from]) from++;
  const [rest, longRest] = [short.slice(from), long.slice(from)];
  if (short.length < long.length) return rest === longRest.slice(1);
  const swapped = `${rest[1] ?? ""}${rest[0] ?? ""}${rest.slice(2)}`;
  return rest.slice(1) === longRest.slice(1) || swapped === longRest;
}

function parse(given: string): URL {
  try {
    return new URL(given);
  } catch {
    const message =
      "The URL of the PostgreSQL store cannot be read; it looks like postgres://user:password@host:5432/database.";
    throw new StoreUnavailable({ url: "postgres:", message });
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
