// Tools that run in the caller's own process.

import type { Context } from "./context.js";
import { Denied, Invalid, MainspringError, NotFound } from "./errors.js";
import type { Schemas } from "./generated/schemas.js";
import { Pages } from "./pages.js";
import { post, type Result } from "./question.js";
import { checked, jsonSchema, type Shape } from "./schema.js";
import type { Duration } from "./time.js";

/**
 * What a second execution of the same call would do: nothing (`safe`), nothing for the same call id (`keyed`), or harm
 * (`once`). See the README for what each of them promises.
 */
export type Repeat = Schemas["Repeat"];

export interface ToolOptions<Args> {
  /** For the model. */
  description?: string;
  /** The type of its arguments, which are checked; any object when absent. */
  args?: Shape<Args>;
  repeat: Repeat;
  /** Whether a person has to approve each call. */
  approval?: boolean;
  /** How long the send waits for a result. */
  deadline?: Duration;
}

/** The call that a tool carries out. */
export interface CallContext {
  /** Names the call, also when it is made again: the idempotency key for what the tool does. */
  readonly id: string;
  readonly sendId: string;
  readonly sessionId: string;
}

type Declaration = Schemas["ExternalTool"];

/** A tool. As it is, it is also the declaration that an agent's `tools` take. */
export class Tool<Args = any> implements Declaration {
  readonly type = "external";
  readonly description?: string;
  readonly parameters?: Record<string, unknown>;
  readonly approval?: boolean;
  readonly deadline?: Duration;
  readonly #options: ToolOptions<Args>;
  readonly #run: (args: Args, call: CallContext) => unknown;

  constructor(readonly name: string, options: ToolOptions<Args>, run: (args: Args, call: CallContext) => unknown) {
    const { description, args, approval, deadline } = options;
    Object.assign(this, { description, approval, deadline, parameters: args && jsonSchema(args) });
    this.#options = options;
    this.#run = run;
  }

  get repeat(): Repeat { return this.#options.repeat; }

  /** Carries out a call. What goes wrong is a result, too: the agent reads the message. */
  async call(value: unknown, call: CallContext): Promise<Result> {
    try {
      const output = await this.#run(await checked(value, this.#options.args), call);
      return { output: output ?? null };
    } catch (error) {
      return { error: error instanceof Error ? error.message : String(error) };
    }
  }
}

/** Remembers which `once` calls were begun, beyond the end of the process. */
export interface Journal {
  /** Notes durably that a call begins, unless it has been noted. */
  begin(callId: string): Noted | Promise<Noted>;
  /** The call's result is stored: the note may go. */
  end(callId: string): void | Promise<void>;
}

/** A `new` call is made, one that is `begun` by somebody who no longer lives is not, and one that is made `elsewhere` is left alone. */
export type Noted = "new" | "begun" | "elsewhere";

export interface ServeOptions {
  /** Needed for tools that are `once`. */
  journal?: Journal;
  /** The most calls at the same time; 32. */
  concurrency?: number;
  /** Ends the loop once the calls that it has begun are reported. */
  signal?: AbortSignal;
}

/** How long a loop that finds nothing waits before it looks again, at least and at most. */
const PAUSE = [100, 1000] as const;

/** How long a send that waits for others is not looked into again, unless it has moved. */
const OTHERS = 10_000;
type Others = Map<string, { stood: string; until: number }>;

export class ToolLoop {
  readonly #tools: Map<string, Tool>;
  readonly #running = new Map<string, Promise<void>>();
  /** Results that the server has not taken yet. */
  readonly #results = new Map<string, Result>();
  /** Calls that were reported since the last look, in whose lists they may still be. */
  readonly #reported = new Set<string>();
  /** Sends that wait for others only: where they stood, and until when they are left alone. */
  #others: Others = new Map();
  /** What ends the loop: a key that is not allowed to report, or a journal that does not work. */
  #broken: unknown;

  constructor(private readonly context: Context, tools: readonly Tool[], private readonly options: ServeOptions) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    const once = tools.find((tool) => tool.repeat === "once");
    if (once && !options.journal) {
      throw new TypeError(`${once.name} must not run twice, and without a journal nobody knows after a crash whether it ran`);
    }
  }

  async run(): Promise<void> {
    const { concurrency = 32, signal } = this.options;
    let pause: number = PAUSE[0];
    try {
      while (!signal?.aborted && !this.#broken) {
        this.#reported.clear();
        try {
          for await (const call of this.#waiting()) {
            if (signal?.aborted) break;
            if (this.#running.has(call.call_id) || this.#reported.has(call.call_id)) continue;
            pause = PAUSE[0];
            const running = this.#one(call).finally(() => this.#running.delete(call.call_id));
            this.#running.set(call.call_id, running);
            if (this.#running.size >= concurrency) await Promise.race(this.#running.values());
          }
        } catch (error) {
          // What helps nobody who tries again ends the loop; everything else passes.
          if (!(error instanceof MainspringError) || error instanceof Denied) throw error;
        }
        await this.context.nap(pause, signal);
        pause = Math.min(2 * pause, PAUSE[1]);
      }
    } finally {
      await Promise.all(this.#running.values());
    }
    if (this.#broken) throw this.#broken;
  }

  /**
   * The calls that wait for these tools. The server has no list of them over all sessions, nor a way to claim one, so
   * that every loop sees every call: where it has one, this is what gives way to it.
   */
  async *#waiting(): AsyncGenerator<Schemas["WaitingCall"]> {
    const { api } = this.context;
    const others: Others = new Map();
    for await (const send of new Pages((cursor) => api.listSends({ status: "waiting", cursor }))) {
      if (send.waiting_on !== "tool" && send.waiting_on !== "human") continue;
      const stood = `${send.rounds} ${send.waiting_on}`;
      const before = this.#others.get(send.id);
      if (before?.stood === stood && performance.now() < before.until) {
        others.set(send.id, before);
        continue;
      }
      const calls = (await this.#callsOf(send.session_id)).filter((call) => call.send_id === send.id);
      if (calls.length === 0) others.set(send.id, { stood, until: performance.now() + OTHERS });
      yield* calls;
    }
    this.#others = others;
  }

  async #callsOf(session: string): Promise<Schemas["WaitingCall"][]> {
    try {
      const { data } = await this.context.api.listWaitingCalls({ id: session });
      return data.filter((call) => call.waiting_on === "tool" && this.#tools.has(call.name));
    } catch (error) {
      if (error instanceof NotFound) return []; // deleted meanwhile
      throw error;
    }
  }

  /** Whether a call that was just noted still waits: another loop may have reported it, and taken back its own note. */
  async #stillWaits({ call_id, session_id }: Schemas["WaitingCall"], journal: Journal): Promise<boolean> {
    let waits = false;
    try {
      waits = (await this.#callsOf(session_id)).some((call) => call.call_id === call_id);
    } finally {
      if (!waits) await journal.end(call_id);
    }
    return waits;
  }

  async #one(call: Schemas["WaitingCall"]): Promise<void> {
    const id = call.call_id;
    const tool = this.#tools.get(call.name)!;
    const journal = tool.repeat === "once" ? this.options.journal : undefined;
    try {
      let result = this.#results.get(id);
      if (!result) {
        const noted = journal ? await journal.begin(id) : "new";
        if (noted === "elsewhere") return;
        if (journal && noted === "new" && !(await this.#stillWaits(call, journal))) return;
        const context = { id, sendId: call.send_id, sessionId: call.session_id };
        result = noted === "new" ? await tool.call(call.arguments, context) : UNKNOWN;
        this.#results.set(id, result);
      }
      await post(this.context.api, call, { ...result, answers: "answer" });
      this.#reported.add(id);
      this.#results.delete(id);
      await journal?.end(id);
    } catch (error) {
      // A result that is not taken now is posted with the next look; one that never can be, as its error.
      if (error instanceof NotFound) this.#results.delete(id);
      else if (error instanceof Invalid) this.#results.set(id, { error: `no result: ${error.detail}` });
      else if (!(error instanceof MainspringError) || error instanceof Denied) this.#broken ??= error;
    }
  }
}

const UNKNOWN = { error: "tool.unknown_outcome: the call was begun before, and nobody knows whether it took effect" };
