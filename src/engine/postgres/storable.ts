/**
 * Text that PostgreSQL can hold: everything but the character 0, which it has no way to store. Columns show a
 * replacement in its place; the event, which is JSON, keeps it.
 */
import type { Statement } from "../sql/statement.js";

type Values = Statement["values"];

/** The values of a statement as the server takes them. */
export function storable(values: Values): Values {
  return values.some(hasNull) ? values.map(withoutNull) : values;
}

function hasNull(value: Values[number]): boolean {
  return typeof value === "string" && value.includes("\0");
}

function withoutNull(value: Values[number]): Values[number] {
  return typeof value === "string" ? value.replaceAll("\0", "\ufffd") : value;
}
