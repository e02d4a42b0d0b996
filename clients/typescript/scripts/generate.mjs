// Makes src/generated from the server's description: the types of all schemas, one operation per path
// and method, the error codes, and the events. With --check it only says whether they are current.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const root = new URL("../../../", import.meta.url);
const description = JSON.parse(await readFile(new URL("docs/openapi.json", root), "utf8"));
// The description has no list of the codes; this is the list that the server's own tests hold it to.
const codes = await readFile(
  new URL("shared/src/snapshots/mainspring_shared__error__tests__the_code_list_is_stable.snap", root),
  "utf8",
);

const HEADER = "// Made by scripts/generate.mjs from docs/openapi.json. Do not edit.\n\n";

/** POSTs without an idempotency key that may be made twice: a repetition finds what the first one did. */
const REPEATABLE = new Set([
  "abortSession", "amendNode", "cancelNode", "cancelRun", "cancelSend", "createBlob",
  "createToken", "eraseTenant",
  "fireTimer", "pauseAgent",
  "pausePool", "pauseProvider", "pauseRun", "pauseTenant", "pauseTimer", "pauseTool", "postToolResults", "previewAgent",
  "previewSessionContext", "pruneSession", "redeliverWebhook", "resumeAgent", "resumePool", "resumeProvider", "resumeRun",
  "resumeSession", "resumeTenant", "resumeTimer", "resumeTool", "validateWorkflow",
]);

async function schemas() {
  const closed = structuredClone(description.components.schemas);
  for (const [name, schema] of Object.entries(closed)) {
    // An event may get members at any time, but has none that its users could name.
    if (name.endsWith("Event") && schema.additionalProperties === true) delete schema.additionalProperties;
  }
  // Their `data` is text to a generator; the union of events below says what is in it.
  delete closed.SendEvent;
  delete closed.RunEvent;
  const { components, info, openapi } = description;
  const ast = await openapiTS({ openapi, info, paths: {}, components: { ...components, schemas: closed } });
  const text = astToString(ast);
  const from = text.indexOf("export interface components");
  const to = text.indexOf("export type $defs");
  // The same with fewer bytes, all of which are in the package.
  const short = text
    .slice(from, to)
    .replace(/components\["schemas"\]\["(\w+)"\]/g, 'Schemas["$1"]')
    .replace(/^ +\* (Format: \w[\w-]*|@enum \{\w+\})\n/gm, "")
    .replace(/@description /g, "")
    .replace(/^( +\*) {5}(?=\S)/gm, "$1 ")
    .replace(/^ {8}/gm, "  ").replace(/^( {2})((?: {4})+)/gm, (_, first, rest) => first + " ".repeat(rest.length / 2))
    .replace(/\/\*\*\n +\* ([^\n]+)\n +\*\//g, "/** $1 */")
    .replace(/^ +\/\*\*(?: discriminator[^\n]*|\n +) ?\*\/\n/gm, "")
    .replace(/^(?: {2})? {2}(responses|parameters|requestBodies|headers|pathItems): never;\n/gm, "")
    .replace(/^export interface components \{\n +schemas: \{\n/, "/** The schemas of the API, by their names in the description. */\nexport interface Schemas {\n")
    .replace(/\n *\};\n\}\n?$/, "\n}\n");
  return HEADER + short;
}

function reference(schema) {
  return schema.$ref?.slice("#/components/schemas/".length);
}

/** The type of one of the small schemas that operations have in place. */
function type(schema) {
  const name = reference(schema);
  if (name) return `Schemas["${name}"]`;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const any = schema.oneOf ?? schema.anyOf;
  if (any) return any.map(type).join(" | ");
  if (Array.isArray(schema.type)) {
    return schema.type.map((one) => type({ ...schema, type: one })).join(" | ");
  }
  switch (schema.type) {
    case "array":
      return `(${type(schema.items)})[]`;
    case "object":
      if (!schema.properties) {
        const { additionalProperties: further } = schema;
        return `Record<string, ${typeof further === "object" ? type(further) : "unknown"}>`;
      }
      return `{ ${Object.entries(schema.properties)
        .map(([key, value]) => `${key}${schema.required?.includes(key) ? "" : "?"}: ${type(value)}`)
        .join("; ")} }`;
    case "integer":
    case "number":
      return "number";
    case "string":
    case "boolean":
    case "null":
      return schema.type;
    default:
      return "unknown";
  }
}

function comment(text, indent) {
  const lines = text.trim().split("\n");
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}\n`).join("")}${indent} */\n`;
}

/** What a body of this media type is given as. */
function body(content) {
  const types = Object.entries(content).map(([media, { schema }]) =>
    media === "application/json" ? type(schema) : "Body");
  return [...new Set(types)].join(" | ");
}

/** What an operation gives, and the letter that says so at run time. */
function result(operation) {
  const good = Object.entries(operation.responses).filter(([status]) => status.startsWith("2"));
  const media = good.map(([, { content }]) => content ?? {});
  const json = media.map((one) => one["application/json"]?.schema).filter(Boolean);
  if (json.length > 0) return [[...new Set(json.map(type))].join(" | "), "j"];
  const kinds = new Set(media.flatMap((one) => Object.keys(one)));
  if (kinds.size === 0) return ["void", "v"];
  // A stream, or as many bytes as there are: their readers decide how.
  if (kinds.has("text/plain") || kinds.has("text/markdown")) return ["string", "t"];
  return ["Response", "r"];
}

function operations() {
  const types = [];
  const table = [];
  const all = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation })));
  for (const operation of all.sort((a, b) => (a.operationId < b.operationId ? -1 : 1))) {
    const { operationId: id, path, method, parameters = [], requestBody } = operation;
    const members = parameters
      .filter((one) => one.in !== "header")
      .map((one) => `${one.name}${one.required ? "" : "?"}: ${type(one.schema)}`);
    let needed = parameters.some((one) => one.required && one.in !== "header");
    if (requestBody) {
      members.push(`body${requestBody.required ? "" : "?"}: ${body(requestBody.content)}`);
      needed ||= requestBody.required === true;
    }
    const [gives, kind] = result(operation);
    const takes = members.length === 0 ? "args?: Record<string, never>" : `args${needed ? "" : "?"}: { ${members.join("; ")} }`;
    types.push(comment(operation.summary ?? id, "  "));
    types.push(`  ${id}(${takes}, options?: RequestOptions): Promise<${gives}>;\n`);
    const keyed = parameters.some((one) => one.in === "header" && one.name === "Idempotency-Key");
    const repeat = keyed ? "k" : method !== "post" || REPEATABLE.has(id) ? "s" : "-";
    const raw = Object.keys(requestBody?.content ?? {}).find((media) => media !== "application/json");
    table.push(`  ${id}: "${method.toUpperCase()} ${path} ${repeat}${kind}${raw ? ` ${raw}` : ""}",\n`);
  }
  const known = new Set(all.map((one) => one.operationId));
  for (const id of REPEATABLE) if (!known.has(id)) throw new Error(`there is no operation ${id}`);
  return `${HEADER}import type { RequestOptions } from "../transport.js";
import type { Schemas } from "./schemas.js";

/** A body that is not JSON. */
export type Body = string | Uint8Array<ArrayBuffer> | Blob;

/** Every operation of the API, by its name in the description. */
export interface Operations {
${types.join("")}}

/**
 * Method and path of each; then whether it may be repeated (\`k\`: with an idempotency key, \`s\`: as it is), and what it
 * gives: JSON, text, the response itself, or nothing (\`v\`); then what a body is that is not JSON.
 */
export const OPERATIONS: Record<keyof Operations, string> = {
${table.join("")}};
`;
}

/** The codes of problems and of failed sends. */
function errors() {
  const lines = codes.split("---\n").at(-1).trim().split("\n");
  const names = lines.map((line) => line.split(" ")[0]);
  if (names.length < 50 || names.some((name) => !/^[a-z_]+\.[a-z_]+$|^[a-z_]+$/.test(name))) {
    throw new Error(`this is no list of codes: ${names}`);
  }
  return `/** The codes of problems and of failed sends. Their meaning never changes; there may be more. */
export type ErrorCode =
${names.map((name) => `  | "${name}"\n`).join("")}  | (string & {});
`;
}

/** The type of each event's data, as the description tells it in words. */
function events() {
  const { description: words, properties } = description.components.schemas.SendEvent;
  const told = Object.fromEntries([...words.matchAll(/`([a-z_.]+)` (\w+)/g)].map(([, event, name]) => [event, name]));
  const names = properties.event.enum;
  const data = (event) => {
    if (!description.components.schemas[told[event]]) throw new Error(`nobody knows what ${event} carries`);
    return `  "${event}": Schemas["${told[event]}"];\n`;
  };
  return `/** What each event of a send carries. */
export interface SendEvents {
${names.map(data).join("")}}
`;
}

const files = {
  "schemas.ts": await schemas(),
  "operations.ts": operations(),
  "events.ts": `${HEADER}import type { Schemas } from "./schemas.js";\n\n${events()}\n${errors()}`,
};

const folder = new URL("../src/generated/", import.meta.url);
await mkdir(folder, { recursive: true });
for (const [name, text] of Object.entries(files)) {
  const file = new URL(name, folder);
  if (!process.argv.includes("--check")) await writeFile(file, text);
  else if ((await readFile(file, "utf8").catch(() => "")) !== text) {
    console.error(`${fileURLToPath(file)} is not current: npm run generate`);
    process.exitCode = 1;
  }
}
