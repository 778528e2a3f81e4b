// How subjects match filters: `*` is one token, `>` is one or more at the end.

type Matches = (subject: string) => boolean;

const known = new Map<string, Matches>();

/** Whether subjects lie under a filter. */
export function matcher(filter: string): Matches {
  const found = known.get(filter);
  if (found) return found;
  const escaped = filter
    .split(".")
    .map((token) => (token === "*" ? "[^.]+" : token === ">" ? ".+" : literal(token)))
    .join("\\.");
  const pattern = new RegExp(`^${escaped}$`);
  const matches: Matches =
    /[*>]/.test(filter) === false
      ? (subject) => subject === filter
      : (subject) => pattern.test(subject);
  // Filters name jobs, of which every simulation has its own.
  if (known.size > 10_000) known.clear();
  known.set(filter, matches);
  return matches;
}

function literal(token: string): string {
  return token.replace(/[$()+.?[\\\]^{|}]/g, "\\$&");
}
