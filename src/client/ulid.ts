/**
 * ULIDs: 26 letters that sort by time, 10 for the millisecond and 16 random ones. Two are made for each job, so that they are
 * put together from a few ready parts.
 */

/** Crockford's letters, each of which stands for five bits. */
const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** Ten bits as two letters. */
const pairs: readonly string[] = [...letters].flatMap((first) =>
  [...letters].map((second) => first + second),
);
const pairBits = 10;
const pairCount = 2 ** pairBits;

/** How many pairs tell the time, and how many are drawn once a millisecond. The three that are left count. */
const timePairs = 5;
const drawnPairs = 5;

/** Counting starts in the lower half of 30 bits, so that it never comes to an end within a millisecond. */
const countStartMax = 2 ** 29;

/**
 * Makes a source of ULIDs, each higher than the one before, also when the clock stands still or steps back. `random` gives
 * numbers from 0 up to, but not including, 1.
 */
export function createUlids(random: () => number): (now: number) => string {
  let time = -1;
  let head = "";
  let count = 0;
  return (now) => {
    if (now > time) {
      time = now;
      head = timeText(now);
      for (let drawn = 0; drawn < drawnPairs; drawn++) head += pair(random() * pairCount);
      count = Math.floor(random() * countStartMax);
    } else {
      count += 1;
    }
    return head + pair(count >> (2 * pairBits)) + pair(count >> pairBits) + pair(count);
  };
}

function timeText(now: number): string {
  let text = "";
  let rest = Math.floor(now);
  for (let told = 0; told < timePairs; told++) {
    text = pair(rest % pairCount) + text;
    rest = Math.floor(rest / pairCount);
  }
  return text;
}

/** The lowest ten bits of a number. */
function pair(bits: number): string {
  return pairs[bits & (pairCount - 1)] ?? "";
}
