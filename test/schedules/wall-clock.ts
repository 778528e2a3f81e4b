// What cron expressions mean, told by the platform's own calendar: every minute of a span is looked at in its zone.

const minuteMs = 60_000;

/** The wall clock of a zone at a time: minute, hour, day, month and weekday. */
export function wallClock(timeZone: string) {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    hourCycle: "h23",
    minute: "numeric",
    hour: "numeric",
    day: "numeric",
    month: "numeric",
    weekday: "short",
  });
  const weekdays = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  return (at: number) => {
    const parts = Object.fromEntries(
      format.formatToParts(at).map(({ type, value }) => [type, value]),
    );
    return {
      minute: Number(parts.minute),
      hour: Number(parts.hour),
      day: Number(parts.day),
      month: Number(parts.month),
      weekday: weekdays.indexOf(parts.weekday ?? ""),
    };
  };
}

export type WallClock = ReturnType<ReturnType<typeof wallClock>>;

/** Every minute after one time, up to another, whose wall clock fits. */
export function minutesThat(
  fit: (clock: WallClock) => boolean,
  timeZone: string,
  after: number,
  until: number,
): readonly number[] {
  const clockAt = wallClock(timeZone);
  const found: number[] = [];
  for (let at = after + minuteMs; at <= until; at += minuteMs) {
    if (fit(clockAt(at))) found.push(at);
  }
  return found;
}

/** The minutes at which the wall clock of a zone jumps: each with what was on it before and after. */
export function jumps(timeZone: string, after: number, until: number) {
  const clockAt = wallClock(timeZone);
  const minuteOfDay = ({ hour, minute }: WallClock) => hour * 60 + minute;
  const found: { at: number; from: number; to: number }[] = [];
  let before = minuteOfDay(clockAt(after));
  for (let at = after + minuteMs; at <= until; at += minuteMs) {
    const now = minuteOfDay(clockAt(at));
    if (now !== (before + 1) % (24 * 60)) found.push({ at, from: before, to: now });
    before = now;
  }
  return found;
}
