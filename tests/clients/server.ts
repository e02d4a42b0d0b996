// What the programs share: a client of the server, and how they say that it does otherwise. Argument of
// each program: the server's address.

import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

export const client = createClient<paths>({ baseUrl: process.argv[2] });

export function check(holds: boolean, what: unknown): asserts holds {
    if (!holds) throw new Error(JSON.stringify(what));
}

// What a request led to; a refusal ends the program.
export async function of<T>(asked: Promise<{ data?: T; error?: unknown }>): Promise<T> {
    const { data, error } = await asked;
    check(data !== undefined, error);
    return data;
}
