/**
 * Writing text among bytes. Most of a message is short pieces that are known already, and a text made of them would be
 * made to be copied once.
 */

/** From so many characters on a text is copied faster than its characters are written one by one. */
const copiedFrom = 32;

const zeroCode = "0".charCodeAt(0);

/** Bytes that are written one after the other. Who takes some keeps them; they are not written to again. */
export class Writing {
  #bytes = Buffer.alloc(0);
  #begin = 0;
  #end = 0;

  /** Whether there is room for so many more bytes. */
  hasRoom(length: number): boolean {
    return this.#end + length <= this.#bytes.length;
  }

  /** Makes room for so many bytes. What was written and not taken is gone. */
  makeRoom(length: number): void {
    this.#bytes = Buffer.allocUnsafeSlow(length);
    this.#begin = 0;
    this.#end = 0;
  }

  /** How many bytes were written since some were last taken. */
  get length(): number {
    return this.#end - this.#begin;
  }

  /** Takes what was written since the last time; `null` where nothing was. */
  take(): Buffer | null {
    if (this.#begin === this.#end) return null;
    const taken = this.#bytes.subarray(this.#begin, this.#end);
    this.#begin = this.#end;
    return taken;
  }

  /** Writes a text whose characters have one byte each. */
  put(text: string): void {
    const { length } = text;
    if (length < copiedFrom) {
      const bytes = this.#bytes;
      const at = this.#end;
      for (let index = 0; index < length; index++) bytes[at + index] = text.charCodeAt(index);
    } else this.#bytes.write(text, this.#end, "latin1");
    this.#end += length;
  }

  /** Writes a text that is so many bytes long. */
  putText(text: string, length: number): void {
    this.#bytes.write(text, this.#end, length === text.length ? "latin1" : "utf8");
    this.#end += length;
  }

  putBytes(bytes: Buffer): void {
    this.#bytes.set(bytes, this.#end);
    this.#end += bytes.length;
  }

  /** Writes a whole number that is not negative. */
  putNumber(number: number): void {
    let left = number;
    const end = this.#end + digitsOf(number);
    for (let at = end - 1; at >= this.#end; at--) {
      const rest = Math.floor(left / 10);
      this.#bytes[at] = zeroCode + left - rest * 10;
      left = rest;
    }
    this.#end = end;
  }
}

/** How many digits a whole number has that is not negative. */
export function digitsOf(number: number): number {
  let digits = 1;
  for (let limit = 10; number >= limit; limit *= 10) digits += 1;
  return digits;
}
