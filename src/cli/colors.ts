/**
 * The colours that an output may have.
 */
import picocolors from "picocolors";

/** Colours, or functions that leave text as it is. */
export type Colors = ReturnType<typeof picocolors.createColors>;

/** Colours if they are wanted. */
export function colorsIf(isWanted: boolean): Colors {
  return picocolors.createColors(isWanted);
}
