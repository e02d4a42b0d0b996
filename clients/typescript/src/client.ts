// The client.

import { Context } from "./context.js";
import { ApiError } from "./errors.js";
import { spec, Workflow, type Runnable } from "./flow.js";
import type { Operations } from "./generated/operations.js";
import type { Schemas } from "./generated/schemas.js";
import { Pages } from "./pages.js";
import { Run } from "./run.js";
import type { Shape } from "./schema.js";
import { Send, sendOptions, type Input, type SendOptions, type Typed } from "./send.js";
import { Session, type SessionOptions } from "./session.js";
import { NewTimer, Timer, type Schedule } from "./timer.js";
import { Tool, ToolLoop, type CallContext, type ServeOptions, type ToolOptions } from "./tools.js";
import { newKey, Transport, type ClientOptions } from "./transport.js";

/** A send of `sendAll`: to a session that exists, or to a new one. */
export interface NewSend extends Omit<SendOptions, "signal">, Partial<Typed<unknown>> {
  input: Input;
  session_id?: string;
  session?: Schemas["SendSession"];
}

/** The most sends that one request takes. */
const BATCH = 1000;

export class Client {
  readonly #context: Context;

  constructor(options: ClientOptions = {}) { this.#context = new Context(new Transport(options)); }

  /** Every operation of the API as it is, for what the rest of the client has no words for. */
  get api(): Operations { return this.#context.api; }

  /** A session that exists, or a new one. Nothing is asked of the server yet. */
  session(options: SessionOptions = {}): Session { return new Session(this.#context, options); }

  sessions(filters: Omit<NonNullable<Parameters<Operations["listSessions"]>[0]>, "cursor"> = {}): Pages<Schemas["SessionView"]> {
    return new Pages((cursor) => this.api.listSessions({ ...filters, cursor }));
  }

  /** A send by its id, also one of another process. */
  send(id: string): Send;
  send<T>(id: string, output: Shape<T>): Send<T>;
  send<T>(id: string, output?: Shape<T>): Send<T> {
    return new Send(this.#context, id, output);
  }

  sends(filters: Omit<NonNullable<Parameters<Operations["listSends"]>[0]>, "cursor"> = {}): Pages<Schemas["SendView"]> {
    return new Pages((cursor) => this.api.listSends({ ...filters, cursor }));
  }

  /** Sends many at once. Each is accepted or refused by itself, and one that is repeated is not sent twice. */
  async sendAll(sends: readonly NewSend[]): Promise<(Send<unknown> | ApiError)[]> {
    const results: (Send<unknown> | ApiError)[] = [];
    for (let from = 0; from < sends.length; from += BATCH) {
      const some = sends.slice(from, from + BATCH);
      const body = { sends: some.map(({ input, session, session_id, key, ...options }) =>
        ({ input, session, session_id, idempotency_key: key ?? newKey(), options: sendOptions(options) })) };
      const answer = await this.api.createSends({ body });
      answer.results.forEach(({ send, problem, status }, place) => results.push(
        send ? new Send(this.#context, send.id, some[place]?.output, send.session_id) : ApiError.of({ ...problem, status })));
    }
    return results;
  }

  /** Starts a run of a workflow. */
  async run<T = unknown>(
    workflow: Runnable<T>,
    { key, signal, ...body }: Omit<Schemas["NewRunBody"], "spec"> & { key?: string; signal?: AbortSignal } = {},
  ): Promise<Run<T>> {
    const { id } = await this.api.createRun({ body: { ...body, spec: spec(workflow) } }, { idempotencyKey: key, signal });
    return new Run(this.#context, id, workflow instanceof Workflow ? workflow.shape : undefined);
  }

  /** A run by its id, also one of another process. */
  attachRun<T = unknown>(id: string, output?: Shape<T>): Run<T> {
    return new Run(this.#context, id, output);
  }

  runs(filters: Omit<NonNullable<Parameters<Operations["listRuns"]>[0]>, "cursor"> = {}): Pages<Schemas["RunView"]> {
    return new Pages((cursor) => this.api.listRuns({ ...filters, cursor }));
  }

  /** A timer: `.send(session, input)` or `.run(workflow)` creates it. */
  timer(schedule: Schedule): NewTimer { return new NewTimer(this.#context, schedule); }

  /** A timer by its id. */
  attachTimer(id: string): Timer { return new Timer(this.#context, id); }

  /** A tool that `serve` runs in this process. It is also its declaration, which an agent's `tools` take. */
  tool<Args = unknown>(name: string, options: ToolOptions<Args>, run: (args: Args, call: CallContext) => unknown): Tool<Args> {
    return new Tool(name, options, run);
  }

  /** Carries out the calls of these tools, in whatever session they are made, until the signal ends it. */
  async serve(tools: readonly Tool[], options: ServeOptions = {}): Promise<void> {
    return new ToolLoop(this.#context, tools, options).run();
  }
}
