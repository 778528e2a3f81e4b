// The text format of Prometheus, read by rules of its own and not by the library that wrote it.
import { expect } from "vitest";

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly samples: readonly Sample[];
}

const sampleLine = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (Na[nN]|[+-]?Inf|[0-9eE.+-]+)$/;
const labelPart = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?/g;

/** Reads the whole text; a line that is not of the format throws. */
export function parse(text: string): ReadonlyMap<string, Family> {
  const families = new Map<string, Family & { samples: Sample[] }>();
  let current = "";
  for (const line of text.split("\n").filter((each) => each !== "")) {
    const comment = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line);
    if (comment) {
      const [, kind, name = "", rest = ""] = comment;
      current = name;
      const family = families.get(name) ?? { name, type: "", help: "", samples: [] };
      families.set(name, { ...family, ...(kind === "HELP" ? { help: rest } : { type: rest }) });
      continue;
    }
    const match = sampleLine.exec(line);
    if (!match) throw new Error(`Not a line of the format: ${line}`);
    const [, name = "", inner = "", value = ""] = match;
    const labels = Object.fromEntries(
      [...inner.matchAll(labelPart)].map((part) => part.slice(1, 3)),
    );
    if (!name.startsWith(current)) throw new Error(`${name} stands under ${current}.`);
    families.get(current)?.samples.push({ name, labels, value: Number(value) });
  }
  return families;
}

/** The samples of a name whose labels include those given, summed; `undefined` when there is none. */
export function sum(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const found = [...families.values()]
    .flatMap(({ samples }) => samples)
    .filter(
      (sample) =>
        sample.name === name &&
        Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
    );
  return found.length === 0 ? undefined : found.reduce((total, { value }) => total + value, 0);
}

/** Compares several sums at once; each key is a name, with labels as Prometheus writes them. */
export function expectSums(
  families: ReadonlyMap<string, Family>,
  expected: Readonly<Record<string, number | undefined>>,
): void {
  const actual = Object.keys(expected).map((key) => {
    const [name = "", inner = ""] = key.split("{");
    const labels = Object.fromEntries(
      [...inner.matchAll(labelPart)].map((part) => part.slice(1, 3)),
    );
    return [key, sum(families, name, labels)];
  });
  expect(Object.fromEntries(actual)).toEqual(expected);
}
