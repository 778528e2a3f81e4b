// What cron expressions mean, told by the platform's own calendar: every minute of a span is looked at in its zone.

const minuteMs = 60_000;

/** Clocks are moved at full and half hours, so that between them the platform need not be asked. */
const askedMs = 30 * minuteMs;

/** What the wall clock of a zone shows. */
export interface WallClock {
  readonly minute: number;
  readonly hour: number;
  readonly day: number;
  readonly weekday: number;
}

/** The wall clock of a zone at every minute after one time, up to another. */
function* wallClocks(
  timeZone: string,
  after: number,
  until: number,
): Generator<{ readonly at: number; readonly clock: WallClock }> {
  const format = new Intl.DateTimeFormat("sv-SE", {
    timeZone,
    dateStyle: "short",
    timeStyle: "medium",
  });
  let aheadMs = 0;
  for (let at = after; at <= until; at += minuteMs) {
    if (at % askedMs === 0) aheadMs = Date.parse(`${format.format(at).replace(" ", "T")}Z`) - at;
    const shown = new Date(at + aheadMs);
    const clock = {
      minute: shown.getUTCMinutes(),
      hour: shown.getUTCHours(),
      day: shown.getUTCDate(),
      weekday: shown.getUTCDay(),
    };
    if (at > after) yield { at, clock };
  }
}

/** Every minute whose wall clock fits. */
export function minutesThat(
  fits: (clock: WallClock) => boolean,
  timeZone: string,
  after: number,
  until: number,
): readonly number[] {
  const found: number[] = [];
  for (const { at, clock } of wallClocks(timeZone, after, until)) if (fits(clock)) found.push(at);
  return found;
}

/** The minutes at which the wall clock of a zone jumps: each with the minute of the day before and after. */
export function jumps(timeZone: string, after: number, until: number) {
  const found: { readonly at: number; readonly from: number; readonly to: number }[] = [];
  let from: number | null = null;
  for (const { at, clock } of wallClocks(timeZone, after, until)) {
    const to: number = clock.hour * 60 + clock.minute;
    if (from !== null && to !== (from + 1) % (24 * 60)) found.push({ at, from, to });
    from = to;
  }
  return found;
}
