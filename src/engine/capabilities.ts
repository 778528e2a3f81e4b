/**
 * What an engine can do, as booleans. Code asks for a capability, never for an engine's name.
 */

/** The declared differences between engines. */
export interface Capabilities {
  /** Jobs can commit with the caller's own data. */
  readonly transactions: boolean;
  /** That data may be written with a client that answers at once, as better-sqlite3 does. */
  readonly synchronousTransactions: boolean;
  /** Claims follow priority, run time and id exactly; otherwise priority is by lane, and a lane goes by who became claimable first. */
  readonly strictPriority: boolean;
  /** Lists and counts show an append as soon as it is acknowledged. */
  readonly immediateViews: boolean;
  /** Jobs survive the end of the process. */
  readonly durable: boolean;
  /** Several processes can share the store. */
  readonly shared: boolean;
}
