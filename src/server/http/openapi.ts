/**
 * The OpenAPI document, written from the routes: the schemas in it are the ones that check requests.
 */
import { z } from "zod";
import { refusalCodes } from "./refusal.js";
import type { AnswerSpec, Route } from "./route.js";

type JsonSchema = { readonly [keyword: string]: unknown };

/** The envelope of every error. */
export const errorOut = z
  .object({
    error: z.object({
      code: z.enum(Object.keys(refusalCodes) as [keyof typeof refusalCodes]),
      message: z.string(),
      details: z.looseObject({
        reason: z.string().meta({ description: "Finer than the code; stable." }),
        field: z
          .string()
          .optional()
          .meta({ description: "The part of the request that is at fault." }),
      }),
      requestId: z.string(),
    }),
  })
  .meta({ id: "Error" });

/** The same as a problem of RFC 9457. */
const problemOut = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.number().int(),
    detail: z.string(),
    code: z.enum(Object.keys(refusalCodes) as [keyof typeof refusalCodes]),
    reason: z.string(),
    field: z.string().optional(),
    requestId: z.string(),
  })
  .meta({ id: "Problem" });

/** What any route may answer besides its own answers, by what it takes. */
function commonStatuses(route: Route): readonly number[] {
  const takesInput = route.params ?? route.query ?? route.body;
  if (route.operation === "health") return [];
  return [
    ...(takesInput ? [400] : []),
    ...(route.needs === "nothing" ? [] : [401]),
    403,
    ...(route.body ? [413, 415] : []),
    429,
    500,
    503,
  ];
}

const statusWords: { readonly [status: number]: string } = {
  400: "The request is not valid.",
  401: "There is no token, or not one that counts.",
  403: "The caller may not do this.",
  404: "It is not there.",
  409: "The state of things forbids it.",
  413: "The body is too large.",
  415: "The body is of another media type.",
  422: "The request is well formed and cannot be carried out.",
  429: "Too many requests or streams.",
  500: "Something is wrong with the server.",
  503: "The store cannot be used now.",
};

/** Writes the document. */
export function openApiDocument(routes: readonly Route[], version: string): unknown {
  const schemas = new Schemas();
  const paths: { [path: string]: { [method: string]: unknown } } = {};
  for (const route of routes) {
    paths[route.path] ??= {};
    const methods = paths[route.path];
    if (methods !== undefined) methods[route.method] = operation(route, schemas);
  }
  const groups = [...new Set(routes.map(({ group }) => group))];
  return {
    openapi: "3.1.0",
    info: {
      title: "Millrace",
      version,
      description: "Durable jobs: create them, watch them, run them, operate them.",
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    tags: groups.map((name) => ({ name })),
    security: [{}, { token: [] }],
    paths,
    components: {
      schemas: schemas.all(),
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
    },
  };
}

function operation(route: Route, schemas: Schemas): unknown {
  const {
    operation: operationId,
    group,
    summary,
    description,
    params,
    query,
    headers,
    body,
  } = route;
  const parameters = [
    ...parametersOf(params, "path", schemas),
    ...parametersOf(query, "query", schemas),
    ...Object.entries(headers ?? {}).map(([name, words]) => ({
      ...{ name, in: "header", required: false, description: words, schema: { type: "string" } },
    })),
  ];
  return {
    ...{ operationId, tags: [group], summary },
    ...(description === undefined ? null : { description }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: {
        required: !body.safeParse({}).success,
        content: { "application/json": { schema: schemas.use(body, "input") } },
      },
    }),
    responses: responses(route, schemas),
    ...(route.needs === "nothing" && { security: [{}] }),
  };
}

function responses(route: Route, schemas: Schemas): unknown {
  const own = Object.entries(route.answers).map(([status, answer]) => {
    return [status, response(answer, schemas)] as const;
  });
  const common = commonStatuses(route)
    .filter((status) => route.answers[status] === undefined)
    .map((status) => [String(status), errorResponse(statusWords[status] ?? "", schemas)] as const);
  return Object.fromEntries([...own, ...common]);
}

function response({ description, body, others, headers }: AnswerSpec, schemas: Schemas): unknown {
  if (body === errorOut) return errorResponse(description, schemas);
  const content = {
    ...(body && { "application/json": { schema: schemas.use(body, "output") } }),
    ...Object.fromEntries(
      Object.entries(others ?? {}).map(([contentType, words]) => [
        contentType,
        { schema: { type: "string", description: words } },
      ]),
    ),
  };
  const described = Object.entries(headers ?? {}).map(([name, words]) => [
    name,
    { description: words, schema: { type: "string" } },
  ]);
  return {
    description,
    ...(described.length > 0 && { headers: Object.fromEntries(described) }),
    ...(Object.keys(content).length > 0 && { content }),
  };
}

function errorResponse(description: string, schemas: Schemas): unknown {
  return {
    description,
    content: {
      "application/json": { schema: schemas.use(errorOut, "output") },
      "application/problem+json": { schema: schemas.use(problemOut, "output") },
    },
  };
}

function parametersOf(
  shape: z.ZodObject | undefined,
  where: "path" | "query",
  schemas: Schemas,
): readonly unknown[] {
  if (shape === undefined) return [];
  return Object.entries(shape.shape).map(([name, part]) => {
    const schema = schemas.use(part as z.ZodType, "input");
    const isRequired = where === "path" || !(part as z.ZodType).safeParse(undefined).success;
    return { name, in: where, required: isRequired, schema };
  });
}

/** The schemas of the document. Those with an id are written once, and referred to. */
class Schemas {
  readonly #named = new Map<string, JsonSchema>();

  /** A schema as the document has it where it is used. */
  use(schema: z.ZodType, io: "input" | "output"): JsonSchema {
    return this.#hoist(jsonSchemaOf(schema, io));
  }

  all(): { readonly [name: string]: JsonSchema } {
    return Object.fromEntries([...this.#named].sort(([one], [other]) => (one < other ? -1 : 1)));
  }

  /** Takes the definitions out of a schema, and lets its references point to where they are now. */
  #hoist(schema: JsonSchema): JsonSchema {
    const { $defs = {}, $schema: _, ...rest } = schema;
    for (const [name, definition] of Object.entries($defs as { [name: string]: JsonSchema }))
      this.#named.set(name, moved(definition) as JsonSchema);
    const { id } = rest as { readonly id?: string };
    if (id === undefined) return moved(rest) as JsonSchema;
    this.#named.set(id, moved(rest) as JsonSchema);
    return { $ref: `#/components/schemas/${id}` };
  }
}

/** The JSON Schema of one of our schemas. */
export function jsonSchemaOf(schema: z.ZodType, io: "input" | "output"): JsonSchema {
  return z.toJSONSchema(schema, { io, target: "draft-2020-12", unrepresentable: "any" });
}

function moved(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(moved);
  if (typeof part !== "object" || part === null) return part;
  const { id: _, ...rest } = part as { id?: unknown; [name: string]: unknown };
  const isNamed = typeof (part as { id?: unknown }).id === "string";
  const entries = Object.entries(isNamed ? rest : part).map(([name, value]) => {
    if (name === "$ref" && typeof value === "string")
      return [name, value.replace("#/$defs/", "#/components/schemas/")];
    return [name, moved(value)];
  });
  return Object.fromEntries(entries);
}
