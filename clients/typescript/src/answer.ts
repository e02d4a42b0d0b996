// What sends and runs come to.

import { RunCancelled, RunFailed, SendCancelled, SendFailed } from "./errors.js";
import type { Schemas } from "./generated/schemas.js";
import { checked, type Shape } from "./schema.js";

/** What a completed send says. */
export interface Answer<T> {
  text: string;
  /** The value, if the send has an output type; else the text. */
  output: T;
  usage: Schemas["Usage"];
  send: Schemas["SendView"];
}

/** What a completed run comes to. */
export interface Outcome<T> {
  /** What the last node said. */
  text: string;
  /** The value of the last node; else its text. */
  output: T;
  usage: Schemas["Usage"];
  run: Schemas["RunView"];
}

/** Whether nothing follows this status of a send or a run. */
export function isFinal(status: string): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** The answer of a final send; fails if it has none. */
export async function answered<T>(view: Schemas["SendView"], shape: Shape<T> | undefined): Promise<Answer<T>> {
  if (view.status === "failed") throw new SendFailed(view);
  if (view.status === "cancelled") throw new SendCancelled(view);
  const text = view.output_text ?? "";
  const output = shape ? await checked(view.output, shape) : (text as T);
  return { text, output, usage: view.usage, send: view };
}

/** The outcome of a final run; fails if it has none. */
export async function ended<T>(view: Schemas["RunView"], shape: Shape<T> | undefined): Promise<Outcome<T>> {
  if (view.status === "failed") throw new RunFailed(view);
  if (view.status === "cancelled") throw new RunCancelled(view);
  const { text = "", payload } = (view.result ?? {}) as { text?: string; payload?: unknown };
  const output = await checked<T>(payload ?? text, shape);
  return { text, output, usage: view.usage, run: view };
}
