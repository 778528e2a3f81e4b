/**
 * The driver's package, which is installed by who uses it.
 */
import { StoreUnavailable } from "../errors.js";

/** The package `pg`. */
export type PgModule = typeof import("pg");

/** Loads the driver, which is optional. */
export async function loadDriver(where: string): Promise<PgModule> {
  try {
    const module = await import("pg");
    // A CommonJS package: what it exports may stand under `default`.
    return (module.default ?? module) as PgModule;
  } catch {
    const message = 'postgres: stores need the package pg; install it with "npm install pg".';
    throw new StoreUnavailable({ url: where, message });
  }
}
