/**
 * The names that a caller may choose, and the rules that keep each of them one safe token
 * in a subject, a path, a label and a file name.
 */

const namePattern = /^[A-Za-z0-9-][A-Za-z0-9_-]{0,63}$/;
const typePattern = /^[A-Za-z0-9-](?:[A-Za-z0-9_.:-]{0,62}[A-Za-z0-9_-])?$/;
const idPattern = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;
const tagPattern = /^[^\s\p{Cc}\p{Cs}](?:[^\p{Cc}\p{Cs}]{0,126}[^\s\p{Cc}\p{Cs}])?$/u;

/** Control characters, and halves of characters: some stores keep others in their place, and two texts would become one. */
const unkeepablePattern = /[\p{Cc}\p{Cs}]/u;

/** Whether every store keeps a text as it is, so that it can tell one thing from another. */
export function isKeepable(text: string): boolean {
  return !unkeepablePattern.test(text);
}

/** The kinds of names, each with its rule in words. */
const rules = {
  service: {
    pattern: namePattern,
    rule: "letters, digits, - and _ (not first), at most 64 characters",
  },
  queue: {
    pattern: namePattern,
    rule: "letters, digits, - and _ (not first), at most 64 characters",
  },
  instance: {
    pattern: namePattern,
    rule: "letters, digits, - and _ (not first), at most 64 characters",
  },
  schedule: {
    pattern: namePattern,
    rule: "letters, digits, - and _ (not first), at most 64 characters",
  },
  type: {
    pattern: typePattern,
    rule: "letters, digits, - and _ (not first), . and : inside, at most 64 characters",
  },
  id: {
    pattern: idPattern,
    rule: "letters, digits, - and _ (a letter or digit first), at most 64 characters",
  },
  tag: { pattern: tagPattern, rule: "1 to 128 printable characters with no space at either end" },
} as const;

/** What a name is the name of. */
export type NameKind = keyof typeof rules;

/** The pattern and the rule in words of a kind of names, for those who check names by schemas. */
export function nameRule(kind: NameKind): { readonly pattern: RegExp; readonly rule: string } {
  return rules[kind];
}

/** What is wrong with a name, as a sentence, or `null` when nothing is. */
export function nameProblem(kind: NameKind, name: unknown): string | null {
  if (typeof name !== "string") return `A ${kind} name must be a string, not ${typeof name}.`;
  const { pattern, rule } = rules[kind];
  return pattern.test(name) ? null : `"${name}" is not a valid ${kind} name: use ${rule}.`;
}
