// Workflows built in code. Nodes are values; what they give becomes the product's workflow language.

import type { Schemas } from "./generated/schemas.js";
import { jsonSchema, type JsonSchema, type Shape } from "./schema.js";
import type { AgentLike } from "./session.js";
import type { Typed } from "./send.js";
import type { Duration } from "./time.js";

/** A condition of `when` and `until`. */
export interface Condition {
  ref: string;
  op: "eq" | "ne" | "in" | "truthy" | "falsy";
  value?: unknown;
}

/** A value that a run will have. In a text, as `${ref}`, it is the place where the value will stand. */
export class Ref<T> {
  constructor(readonly path: string) {}

  /** A member of the value. */
  get<Key extends keyof T & string>(key: Key): Ref<T[Key]> {
    return new Ref(`${this.path}.${key}`);
  }
  eq(value: T): Condition { return { ref: this.path, op: "eq", value }; }
  ne(value: T): Condition { return { ref: this.path, op: "ne", value }; }
  in(value: T[]): Condition { return { ref: this.path, op: "in", value }; }
  truthy(): Condition { return { ref: this.path, op: "truthy" }; }
  falsy(): Condition { return { ref: this.path, op: "falsy" }; }
  toString(): string { return `{{${this.path}}}`; }
  toJSON(): string { return this.toString(); }
}

/** A node, and what it will give. */
export class Node<T> {
  constructor(readonly spec: Record<string, unknown>, readonly shape?: Shape<T>) {}

  /** What it gives: a text, or a value if it has an output type. */
  get output(): Ref<T> {
    const { id, type } = this.spec as { id?: string; type: string };
    if (id === undefined) throw new TypeError(`a ${type} has no result of its own: refer to one of its nodes`);
    return new Ref(id);
  }

  /** A member of what it gives. */
  get<Key extends keyof T & string>(key: Key): Ref<T[Key]> {
    return this.output.get(key);
  }
  toString(): string { return this.output.toString(); }
  toJSON(): Record<string, unknown> { return this.spec; }
}

/** A workflow: what `client.run` starts. */
export class Workflow<T> {
  constructor(readonly spec: Record<string, unknown>, readonly shape?: Shape<T>) {}

  toJSON(): Record<string, unknown> { return this.spec; }
}

/** What can be run: a workflow, or the language itself. */
export type Runnable<T> = Workflow<T> | Record<string, unknown>;

/** A text in which values may stand, or one value. */
type Template = string | Ref<any> | Node<any>;
type Source<T> = Ref<T> | Node<T>;
type OutputOf<N> = N extends Node<infer T> ? T : never;
type Last<Nodes extends readonly unknown[]> = Nodes extends readonly [...unknown[], infer One] ? One : Nodes[number];

/** Members of every node; names are those of the language. */
interface NodeOptions { when?: Condition }

/** Members of the nodes that do something: agents, tools and approvals. */
interface LeafOptions extends NodeOptions {
  retry?: { max_attempts: number; on?: ("failed" | "empty" | "hit_round_limit")[]; backoff?: Duration; backoff_factor?: number };
  timeout?: Duration;
  fallback?: Node<any>;
  continue_on_error?: boolean;
}

export interface AgentOptions extends LeafOptions {
  /** A published agent by its name, or one that is defined here. */
  agent: string | (Exclude<AgentLike, string> & { name: string });
  variables?: Record<string, unknown>;
  /** What it is told; the workflow's input when absent. */
  input?: Template;
  /** Nodes whose texts it is told in addition. */
  inputs_from?: readonly (string | Node<any>)[];
  continuation?: { max?: number; extra_rounds?: number; gate?: "todo_remaining" | "always" };
}

interface GroupOptions extends NodeOptions {
  max_concurrency?: number;
  on_error?: "halt" | "continue";
}

const pathOf = (source: Source<any>) => (source instanceof Node ? source.output : source).path;
const text = (template: Template | undefined) => (template === undefined ? undefined : String(template));

/** An agent does something. */
function agent(id: string, options: AgentOptions): Node<string>;
function agent<T>(id: string, options: AgentOptions & Typed<T>): Node<T>;
function agent<T>(id: string, { agent, input, inputs_from, output, ...rest }: AgentOptions & Partial<Typed<T>>): Node<T> {
  return new Node({
    type: "agent", id, ...rest,
    ...(typeof agent === "string" ? { agent } : { spec: agent }),
    input: text(input),
    inputs_from: inputs_from?.map((node) => (typeof node === "string" ? node : pathOf(node))),
    output_schema: output && jsonSchema(output),
  }, output);
}

export const flow = {
  /** The run's input. */
  input: new Ref<any>("input"),

  agent,

  /** A tool is called. A string that is only one reference keeps the type of its value. */
  tool<T = unknown>(id: string, tool: string, args: Record<string, unknown> = {}, options: LeafOptions = {}): Node<T> {
    return new Node({ type: "tool", id, tool, arguments: args, ...options });
  },

  /** A person approves or denies. */
  approval(id: string, message: Template, options: LeafOptions = {}): Node<{ approved: boolean; note: string }> {
    return new Node({ type: "approval", id, message: text(message), ...options });
  },

  wait(time: { seconds: number } | { duration: Duration } | { until: Template }, options: NodeOptions = {}): Node<undefined> {
    return new Node({ type: "wait", ...time, ...options });
  },

  /** One after the other. */
  sequence<const Steps extends readonly Node<any>[]>(...steps: Steps): Node<OutputOf<Last<Steps>>> {
    return new Node({ type: "sequence", steps }, steps.at(-1)?.shape);
  },

  /** All at once. */
  parallel<const Branches extends readonly Node<any>[]>(branches: Branches, options: GroupOptions = {}): Node<OutputOf<Branches[number]>> {
    return new Node({ type: "parallel", branches, ...options });
  },

  /** Once for each item. */
  foreach<T, U>(
    id: string, items: Source<T[]> | readonly T[], body: (item: Ref<T>, index: Ref<number>) => Node<U>,
    options: GroupOptions & { parallel?: boolean } = {},
  ): Node<{ items: U[] }> {
    const as = `${id.replace(/\W/g, "_")}_item`;
    const from = items instanceof Ref || items instanceof Node ? { items_from: pathOf(items) } : { items };
    return new Node({ type: "foreach", id, as, ...from, body: body(new Ref(as), new Ref(`${as}_index`)), ...options });
  },

  /** What the value says. */
  branch<N extends Node<any>>(on: Source<any>, cases: Record<string, N>, options: NodeOptions & { default?: N } = {}): Node<OutputOf<N>> {
    return new Node({ type: "branch", on: pathOf(on), cases, ...options });
  },

  /** Again and again, until it is so. */
  loop<T>(
    id: string, body: (iteration: Ref<number>, previous: Ref<T>) => Node<T>,
    options: NodeOptions & { until: Condition; max_iterations?: number; on_exhausted?: string; continue_nodes?: string[] },
  ): Node<{ converged: boolean; iterations: number; last: T }> {
    const as = `${id.replace(/\W/g, "_")}_iteration`;
    return new Node({ type: "loop", id, as, body: body(new Ref(as), new Ref("previous")), ...options });
  },

  /** A workflow in this one: it sees its own input only. */
  nested<T>(id: string, workflow: Workflow<T>, options: NodeOptions & { input?: Template } = {}): Node<T> {
    return new Node({ type: "workflow", id, spec: workflow, ...options, input: text(options.input) }, workflow.shape);
  },

  /** What can be run. */
  workflow<T>(name: string, root: Node<T>, envelope: {
    input?: unknown; budget?: { max_tokens: number; stop_at_remaining_pct?: number }; timeout?: Duration; metadata?: JsonSchema;
  } = {}): Workflow<T> {
    return new Workflow({ name, root, ...envelope }, root.shape);
  },
};

/** A workflow as the API takes it. */
export function spec(workflow: Runnable<unknown>): Schemas["NewRunBody"]["spec"] {
  return (workflow instanceof Workflow ? workflow.spec : workflow) as Record<string, unknown>;
}
