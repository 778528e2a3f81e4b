/**
 * Finds the route of a request by its path. A path without parameters is one look into a map; the others are compared
 * part by part with the routes that have as many parts.
 */

/** A route that was found, and the values of the parameters in its path. */
export interface Match<Found> {
  readonly found: Found;
  readonly params: { readonly [name: string]: string };
}

interface Entry<Found> {
  readonly method: string;
  readonly parts: readonly Part[];
  readonly found: Found;
}

/** A part of a path: a word, or the parameter of a name. */
interface Part {
  readonly word: string;
  readonly isParameter: boolean;
}

const noParams = {};

/** The routes of an app by method and path. */
export class Router<Found> {
  /** By method and then by path: to join the two for one map would make a text of every request. */
  readonly #plain = new Map<string, Map<string, Match<Found>>>();
  readonly #entries = new Map<number, Entry<Found>[]>();

  /** Adds a route. Its path has parameters in braces. */
  add(method: string, path: string, found: Found): void {
    const parts = path.split("/").map(partOf);
    const isPlain = !parts.some(({ isParameter }) => isParameter);
    if (isPlain) {
      const plain = this.#plain.get(method) ?? new Map<string, Match<Found>>();
      this.#plain.set(method, plain.set(path, { found, params: noParams }));
    }
    const alike = this.#entries.get(parts.length) ?? [];
    this.#entries.set(parts.length, [...alike, { method, parts, found }]);
  }

  /** The route of a request; one whose path has no parameters goes before one that has. */
  match(method: string, path: string): Match<Found> | undefined {
    const plain = this.#plain.get(method)?.get(path);
    if (plain !== undefined) return plain;
    const words = path.split("/");
    const entry = this.#alike(words).find((own) => own.method === method && fits(own, words));
    return entry && { found: entry.found, params: paramsOf(entry, words) };
  }

  /** The methods that a path can be asked with. */
  methods(path: string): readonly string[] {
    const words = path.split("/");
    const fitting = this.#alike(words).filter((entry) => fits(entry, words));
    return [...new Set(fitting.map(({ method }) => method))];
  }

  #alike(words: readonly string[]): readonly Entry<Found>[] {
    return this.#entries.get(words.length) ?? [];
  }
}

function partOf(text: string): Part {
  return text.startsWith("{")
    ? { word: text.slice(1, -1), isParameter: true }
    : { word: text, isParameter: false };
}

function fits<Found>({ parts }: Entry<Found>, words: readonly string[]): boolean {
  return parts.every(({ word, isParameter }, index) =>
    isParameter ? words[index] !== "" : words[index] === word,
  );
}

function paramsOf<Found>({ parts }: Entry<Found>, words: readonly string[]) {
  const params: { [name: string]: string } = {};
  for (const [index, { word, isParameter }] of parts.entries())
    if (isParameter) params[word] = decoded(words[index] ?? "");
  return params;
}

function decoded(text: string): string {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
