// A session: a conversation with an agent.

import type { Answer } from "./answer.js";
import type { Context } from "./context.js";
import type { Schemas } from "./generated/schemas.js";
import { Pages } from "./pages.js";
import { Question } from "./question.js";
import { Send, sendOptions, type Input, type SendOptions, type Typed, type WaitOptions } from "./send.js";
import { SessionStream, type StreamOptions } from "./stream.js";

/** A published agent by its name, `NAME@VERSION` or `NAME@ALIAS`, or one that the session defines. */
export type AgentLike = string | Schemas["AgentSpec"];

/** A session: one that exists, by its `id`, or a new one, which its first send creates. */
export interface SessionOptions {
  id?: string;
  /** The caller's own name for it: the one session that has it, made if there is none. */
  key?: string;
  agent?: AgentLike;
  /** Values of the variables in the agent's prompt. */
  variables?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
}

export class Session {
  #id: string | undefined;
  #opening: Promise<string> | undefined;

  constructor(private readonly context: Context, private readonly options: SessionOptions) { this.#id = options.id; }

  /** Its id; absent until the first send, or `open`, has created it. */
  get id(): string | undefined { return this.#id; }

  /** Creates it, unless it exists. */
  async open(): Promise<string> {
    if (this.#id !== undefined) return this.#id;
    const { id: _, ...body } = this.options;
    return this.#create(() => this.context.api.createSession({ body }).then((session) => session.id));
  }

  /** Sends; the send goes on whatever becomes of this process. */
  async send(input: Input, options?: SendOptions): Promise<Send>;
  async send<T>(input: Input, options: SendOptions & Typed<T>): Promise<Send<T>>;
  async send<T>(input: Input, options: SendOptions & Partial<Typed<T>> = {}): Promise<Send<T>> {
    const { api } = this.context;
    const { key, signal } = options;
    const request = { idempotencyKey: key, signal };
    const body = { input, options: sendOptions(options) };
    let view: Schemas["SendView"] | undefined;
    // One that is being created may not come to be.
    while (this.#opening) await this.#opening.catch(() => {});
    if (this.#id === undefined && this.options.key === undefined) {
      const { agent, variables, metadata } = this.options;
      const session = { agent, variables, metadata } as Schemas["SendSession"];
      await this.#create(async () => (view = await api.createSend({ body: { ...body, session } }, request)).session_id);
    }
    view ??= await api.createSendInSession({ id: await this.open(), body }, request);
    return new Send(this.context, view.id, options.output, view.session_id);
  }

  /** Sends, and waits for the answer. */
  async sendAndWait(input: Input, options?: SendOptions & WaitOptions): Promise<Answer<string>>;
  async sendAndWait<T>(input: Input, options: SendOptions & WaitOptions & Typed<T>): Promise<Answer<T>>;
  async sendAndWait<T>(input: Input, { timeout, ...options }: SendOptions & WaitOptions & Partial<Typed<T>> = {}): Promise<Answer<T>> {
    const send = await this.send<T>(input, options as SendOptions & Typed<T>);
    return send.wait({ timeout, signal: options.signal });
  }

  /** The session as it is now. */
  async get(): Promise<Schemas["SessionView"]> { return this.context.api.getSession({ id: await this.open() }); }

  /** A new session with a copy of the transcript, up to a message or as far as it is complete. */
  async fork({ key, ...body }: Schemas["ForkBody"] & { key?: string } = {}): Promise<Session> {
    const { id } = await this.context.api.forkSession({ id: await this.open(), body }, { idempotencyKey: key });
    return new Session(this.context, { id });
  }

  /** The events of all of its sends. Needs its id: a session that nobody has opened says nothing. */
  stream(options: StreamOptions = {}): SessionStream {
    if (this.#id === undefined) throw new TypeError("the session does not exist yet: open it, or send first");
    return new SessionStream(this.context, this.#id, options);
  }

  /** Its transcript. */
  messages(filters: { after?: number; limit?: number; folded?: boolean } = {}): Pages<Schemas["Entry"]> {
    return new Pages(async (cursor) => this.context.api.listMessages({ id: await this.open(), ...filters, cursor }));
  }

  /** What people are asked in it and below it. */
  async questions(): Promise<Question[]> {
    const { data } = await this.context.api.listWaitingCalls({ id: await this.open() });
    return data.filter((call) => call.waiting_on === "human").map((call) => new Question(this.context, call));
  }

  /** A token with which a page uses this session, and nothing else, for a while. Each call makes another one. */
  async token(options: Omit<Schemas["NewTokenBody"], "session_id"> = {}): Promise<string> {
    const { token } = await this.context.api.createToken({ body: { session_id: await this.open(), ...options } });
    return token;
  }

  /** Deletes it and everything below it. */
  async delete(): Promise<void> { await this.context.api.deleteSession({ id: await this.open() }); }

  /** Creates it once, however many ask at the same time. */
  #create(create: () => Promise<string>): Promise<string> {
    this.#opening ??= create()
      .then((id) => (this.#id = id))
      .finally(() => (this.#opening = undefined));
    return this.#opening;
  }
}
