/**
 * What a worker and its warden say to each other: lines of JSON over the warden's stdin and stdout.
 */

/** What the warden is told. Groups have the number of the process that leads them. */
export type ToWarden =
  | { readonly say: "watch"; readonly group: number; readonly folder: string }
  | { readonly say: "limit"; readonly group: number; readonly memoryBytesMax: number }
  | { readonly say: "forget"; readonly group: number };

/** What it answers when it forgets a group: how much the group held if the warden has ended it for that. */
export interface FromWarden {
  readonly group: number;
  readonly overBytes: number | null;
}
