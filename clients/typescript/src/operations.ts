// The operations of the description, made from its table.

import { OPERATIONS, type Operations } from "./generated/operations.js";
import { json, newKey, type RequestOptions, type Transport } from "./transport.js";

/** What an operation's arguments are at run time: parameters of path and query by their names, and the body. */
type Args = { body?: unknown; [parameter: string]: unknown };

export function operations(transport: Transport): Operations {
  const made = Object.entries(OPERATIONS).map(([name, line]) => {
    const [method, template, [repeat, kind], media] = line.split(" ") as [string, string, string, string?];
    const read = READERS[kind!]!;
    const operation = ({ body, ...rest }: Args = {}, options: RequestOptions = {}) => {
      const idempotencyKey = repeat === "k" ? options.idempotencyKey ?? newKey() : undefined;
      const path = address(template, rest);
      return transport.request({ ...options, method, path, body, media, idempotencyKey, repeatable: repeat === "s" }, read);
    };
    return [name, operation];
  });
  return Object.fromEntries(made) as Operations;
}

/** How the answers are read. */
const READERS: Record<string, (response: Response) => Promise<unknown>> = {
  j: json,
  t: (response) => response.text(),
  v: async (response) => void (await response.body?.cancel()),
  r: async (response) => response,
};

/** The path with its parameters in place, and the others as its query. */
export function address(template: string, parameters: Record<string, unknown>): string {
  const rest = new URLSearchParams();
  let path = template;
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined || value === null) continue;
    if (path.includes(`{${name}}`)) path = path.replace(`{${name}}`, () => encodeURIComponent(String(value)));
    else if (typeof value !== "object") rest.set(name, String(value));
    else for (const [member, one] of Object.entries(value)) rest.set(`${name}[${member}]`, String(one));
  }
  const query = rest.toString();
  return query ? `${path}?${query}` : path;
}
