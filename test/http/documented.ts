// The OpenAPI document as a judge: it finds the operation that a request was for, and says what in its answer is not
// as documented.
import { type Schema, Validator } from "@cfworker/json-schema";
import { openApiDocument } from "#millrace/server/http/openapi.js";
import { routes } from "#millrace/server/http/routes/all.js";

/** A parameter of an operation. */
export interface Parameter {
  readonly name: string;
  readonly in: "path" | "query" | "header";
  readonly required: boolean;
  readonly schema: Schema;
}

/** An operation of the document, as far as the tests read it. */
export interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: { readonly [type: string]: { schema: Schema } } };
  readonly responses: {
    readonly [status: string]: {
      readonly content?: { readonly [contentType: string]: { readonly schema: Schema } };
      readonly headers?: { readonly [name: string]: unknown };
    };
  };
}

/** The document, as far as the tests read it. */
export interface ApiDocument {
  readonly paths: { readonly [path: string]: { readonly [method: string]: Operation } };
  readonly components: { readonly schemas: { readonly [name: string]: Schema } };
}

/** The document that the server gives. */
export const apiDocument = openApiDocument(routes, "0.0.0") as ApiDocument;

/** An operation with its place in the document. */
export interface PlacedOperation {
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
}

/** Every operation of the document. */
export const operations: readonly PlacedOperation[] = Object.entries(apiDocument.paths).flatMap(
  ([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation })),
);

/** The operation that a request is for; one without parameters in its path goes first. */
export function operationOf(method: string, pathname: string): PlacedOperation | undefined {
  const segments = pathname.split("/");
  const fitting = operations.filter(({ method: own, path }) => {
    const parts = path.split("/");
    return (
      own === method.toLowerCase() &&
      parts.length === segments.length &&
      parts.every((part, index) =>
        part.startsWith("{") ? segments[index] !== "" : part === segments[index],
      )
    );
  });
  return fitting.sort((one, other) => braces(one.path) - braces(other.path))[0];
}

function braces(path: string): number {
  return path.split("{").length;
}

const validators = new Map<Schema, Validator>();

/** A validator of a schema of the document, with everything that it refers to. */
function validatorOf(schema: Schema): Validator {
  const known = validators.get(schema);
  if (known !== undefined) return known;
  const { components } = apiDocument;
  const made = new Validator({ ...schema, components }, "2020-12", true);
  validators.set(schema, made);
  return made;
}

/** What an answer is judged by. */
export interface Answered {
  readonly method: string;
  readonly pathname: string;
  readonly status: number;
  readonly contentType: string | null;
  /** The body as it was read; `undefined` for a stream. */
  readonly text: string | undefined;
}

/** What in an answer the document does not say, as a sentence; `null` when everything is documented. */
export function undocumented(answered: Answered): string | null {
  const { method, pathname, status, contentType, text } = answered;
  const placed = operationOf(method, pathname);
  if (placed === undefined) return `${method} ${pathname} is no operation of the document.`;
  const { operationId, responses } = placed.operation;
  const response = responses[String(status)];
  if (response === undefined) return `${operationId} does not document the status ${status}.`;
  if (response.content === undefined)
    return text === undefined || text === ""
      ? null
      : `${operationId} ${status} has a body: ${text}`;
  const media = contentType?.split(";")[0] ?? "";
  const content = response.content[media];
  if (content === undefined) return `${operationId} ${status} does not document ${media}.`;
  if (media !== "application/json" && media !== "application/problem+json") return null;
  const { valid, errors } = validatorOf(content.schema).validate(JSON.parse(text ?? ""));
  if (valid) return null;
  const [first] = errors.slice(-1);
  return `${operationId} ${status} at ${first?.instanceLocation}: ${first?.error} in ${text}`;
}
