// A send: what was asked of a session, and what becomes of it.

import { answered, isFinal, type Answer } from "./answer.js";
import type { Context } from "./context.js";
import { Conflict, TimeoutError, Waiting } from "./errors.js";
import type { Schemas } from "./generated/schemas.js";
import { Question } from "./question.js";
import { jsonSchema, type Shape } from "./schema.js";
import { Stream, type StreamOptions } from "./stream.js";
import { Limit, milliseconds, sleep, type Duration } from "./time.js";
import { json, type Transport } from "./transport.js";

/** A text, or parts of text, images and files. */
export type Input = Schemas["SendBody"]["input"];

/** Options of a send, with the names that the API has for them. */
export interface SendOptions extends Omit<Schemas["SendOptions"], "output_schema" | "tools"> {
  /** Narrows the agent's tools to these. */
  tools?: readonly (string | { name: string })[];
  /** The idempotency key: a send with the same key and content is the same send, for two days. */
  key?: string;
  signal?: AbortSignal;
}

export interface Typed<T> {
  /** The type of the answer: asked of the model, checked by the server, and checked here. */
  output: Shape<T>;
}

export interface WaitOptions {
  /** Ends the waiting with a `TimeoutError`, and leaves what is waited for alone. */
  timeout?: Duration;
  signal?: AbortSignal;
}

/** The options as the API takes them. */
export function sendOptions(options: SendOptions & Partial<Typed<unknown>>): Schemas["SendOptions"] {
  const { output, tools, key: _key, signal: _signal, ...rest } = options;
  const body: Schemas["SendOptions"] = rest;
  if (output) body.output_schema = jsonSchema(output);
  if (tools) body.tools = tools.map((tool) => (typeof tool === "string" ? tool : tool.name));
  return body;
}

/** A send. `client.send(id)` is the same one, in any process. */
export class Send<T = string> {
  constructor(
    private readonly context: Context, readonly id: string, private readonly shape?: Shape<T>, private sessionId?: string,
  ) {}

  /** The send as it is now. */
  async get(options: { signal?: AbortSignal } = {}): Promise<Schemas["SendView"]> {
    const view = await this.context.api.getSend({ id: this.id }, options);
    this.sessionId = view.session_id;
    return view;
  }

  /**
   * The answer. Fails with `SendFailed` or `SendCancelled`, with `TimeoutError` if its own time is over, and with
   * `Waiting` as soon as a person is needed, unless `onQuestion` gets the questions, each of them once. A send that
   * waits for a tool of some program is waited for.
   */
  async wait(options: WaitOptions & { onQuestion?: (question: Question) => unknown } = {}): Promise<Answer<T>> {
    const { onQuestion } = options;
    const asked = new Set<string>();
    const look = async (view: Schemas["SendView"], signal: AbortSignal) => {
      this.sessionId = view.session_id;
      if (view.waiting_on === "tool") this.context.wake();
      if (view.waiting_on === "recovery") throw new Waiting(view, []);
      if (view.waiting_on !== "human") return;
      const questions = await this.questions({ signal });
      // Somebody may have answered meanwhile.
      if (!onQuestion && questions.length > 0) throw new Waiting(view, questions);
      for (const question of questions) {
        const name = [question.id, question.wants, question.asks?.question].join();
        if (asked.has(name)) continue;
        asked.add(name);
        await onQuestion!(question);
      }
    };
    const view = await untilFinal(this.context.transport, `/v1/sends/${this.id}`, options, look);
    return answered(view, this.shape);
  }

  /** Its events, from the first one or after a cursor. Leaving the loop detaches; it does not cancel. */
  stream(options: StreamOptions = {}): Stream<T> { return new Stream(this.context, this, this.shape, options); }

  /** Has it cancelled, at once or at its next safe point. A send that is final stays as it is. */
  async cancel(): Promise<Schemas["SendView"]> {
    try {
      return await this.context.api.cancelSend({ id: this.id });
    } catch (error) {
      if (error instanceof Conflict && error.code === "send.not_cancellable") return this.get();
      throw error;
    }
  }

  /**
   * Says something to it while it works, before its next round, or at once with `interrupt`. Gives the send that
   * was told: another one, if this one was final.
   */
  async steer(input: Input, { interrupt = false, key }: { interrupt?: boolean; key?: string } = {}): Promise<Send> {
    const id = await this.#inSession();
    const body = { input, options: { on_busy: interrupt ? "interrupt" : "steer" } as const };
    const view = await this.context.api.createSendInSession({ id, body }, { idempotencyKey: key });
    return new Send(this.context, view.id, undefined, id);
  }

  /** What people are asked now, by it and by the agents that work for it. */
  async questions(options: { signal?: AbortSignal } = {}): Promise<Question[]> {
    const session = await this.#inSession();
    const { data } = await this.context.api.listWaitingCalls({ id: session }, options);
    return data
      .filter((call) => call.waiting_on === "human" && (call.send_id === this.id || call.session_id !== session))
      .map((call) => new Question(this.context, call));
  }

  async #inSession(): Promise<string> {
    return this.sessionId ?? (await this.get()).session_id;
  }
}

/** Asks for a send or a run until it is final, and has each answer looked at that comes before. */
export async function untilFinal<View extends { status: string; waiting_on?: string | null }>(
  transport: Transport,
  path: string,
  { timeout, signal }: WaitOptions,
  look: (view: View, signal: AbortSignal) => Promise<void> = async () => {},
): Promise<View> {
  const limit = new Limit(signal);
  const time = timeout === undefined ? Infinity : milliseconds(timeout);
  const end = performance.now() + time;
  limit.after(time, () => new TimeoutError(`it is not final after ${timeout}`));
  const call = { method: "GET", repeatable: true, patience: transport.patience, signal: limit.signal };
  try {
    for (let pause = 50; ; ) {
      const wait = Math.ceil(Math.min(transport.poll, Math.max(1, end - performance.now())));
      const view = await transport.request({ ...call, path: `${path}?wait=${wait}ms` }, json<View>);
      if (isFinal(view.status)) return view;
      await look(view, limit.signal);
      // The server answers at once while somebody outside is waited for.
      const isOutside = view.waiting_on === "human" || view.waiting_on === "tool";
      if (isOutside) await sleep((pause = Math.min(2 * pause, 1000)), limit.signal);
      else pause = 50;
    }
  } finally {
    limit.end();
  }
}
