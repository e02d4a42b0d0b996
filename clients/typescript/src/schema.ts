// Types that are checked at run time: Standard Schema v1, which Zod, Valibot, ArkType and others have.

import { InvalidValue } from "./errors.js";

/** https://standardschema.dev */
export interface StandardSchemaV1<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Result<Output> | Promise<Result<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type Result<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] }[] };

/** A JSON Schema. */
export type JsonSchema = Record<string, unknown>;

/** A type that is checked: a Standard Schema, one with its JSON Schema beside it, or a JSON Schema alone. */
export type Shape<T> = StandardSchemaV1<any, T> | { type: StandardSchemaV1<any, T>; schema: JsonSchema } | JsonSchema;

interface Describes {
  readonly jsonSchema?: { input(options: { target: string }): JsonSchema };
}

function standard<T>(shape: Shape<T>): StandardSchemaV1<unknown, T> | undefined {
  if ("~standard" in shape) return shape as StandardSchemaV1<unknown, T>;
  return isPair(shape) ? shape.type : undefined;
}

function isPair<T>(shape: Shape<T>): shape is { type: StandardSchemaV1<any, T>; schema: JsonSchema } {
  const { type } = shape as { type?: unknown };
  return (typeof type === "object" || typeof type === "function") && type !== null && "~standard" in type;
}

/** The JSON Schema of a type, which is what the server and models are told. */
export function jsonSchema(shape: Shape<unknown>): JsonSchema {
  if (isPair(shape)) return shape.schema;
  if (!("~standard" in shape)) return shape as JsonSchema;
  // https://standardschema.dev/json-schema, or what the libraries had before it.
  const describes = shape["~standard"] as Describes;
  const { toJsonSchema, toJSONSchema } = shape as Record<string, unknown>;
  const own = toJsonSchema ?? toJSONSchema;
  const schema =
    describes.jsonSchema?.input({ target: "draft-2020-12" }) ??
    (typeof own === "function" ? (own.call(shape) as JsonSchema) : undefined);
  if (!schema) throw new TypeError("this type does not tell its JSON Schema: give { type, schema }");
  return schema;
}

/** The value as its type; of a JSON Schema alone, the server has checked it. */
export async function checked<T>(value: unknown, shape: Shape<T> | undefined): Promise<T> {
  const type = shape && standard(shape);
  if (!type) return value as T;
  const result = await type["~standard"].validate(value);
  if (result.issues) throw new InvalidValue(result.issues, value);
  return result.value;
}
