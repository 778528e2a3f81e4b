/**
 * What happens to a transaction that others overtake.
 */

/** Others moved what a transaction was about to change; carried out again, it sees what they did. */
export class Overtaken extends Error {}
