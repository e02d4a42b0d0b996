// Tools that run in the caller's own process.

import type { Context } from "./context.js";
import { Denied, Invalid, MainspringError, NotFound } from "./errors.js";
import type { Schemas } from "./generated/schemas.js";
import { post, type Result } from "./question.js";
import { checked, jsonSchema, type Shape } from "./schema.js";
import type { Duration } from "./time.js";
import { newKey } from "./transport.js";

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
  /** From 2 on, a loop that died may have made the call. */
  readonly attempt: number;
}

type Declaration = Schemas["ExternalTool"];

/** A tool. As it is, it is also the declaration that an agent's `tools` take. */
export class Tool<Args = any> implements Declaration {
  readonly type = "external";
  readonly description?: string;
  readonly parameters?: Record<string, unknown>;
  readonly approval?: boolean;
  readonly deadline?: Duration;
  readonly repeat: Repeat;
  readonly #options: ToolOptions<Args>;
  readonly #run: (args: Args, call: CallContext) => unknown;

  constructor(readonly name: string, options: ToolOptions<Args>, run: (args: Args, call: CallContext) => unknown) {
    const { description, args, approval, deadline } = options;
    Object.assign(this, { description, approval, deadline, parameters: args && jsonSchema(args) });
    this.repeat = options.repeat;
    this.#options = options;
    this.#run = run;
  }

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

export interface ServeOptions {
  /** The most calls at the same time; 32. */
  concurrency?: number;
  /** How long the calls of a loop that died stay its own, in seconds from 1 to 3600; 30. */
  lease?: number;
  /** Ends the loop once the calls that it has begun are reported. */
  signal?: AbortSignal;
}

type Call = Schemas["CallToMake"];

/** How long one request waits for calls, and the end of the loop at most for its response. */
const LOOK = "2s";

/** The most calls of a request. */
const CLAIMED_MAX = 100;

/** Pause before what went wrong is tried again, in milliseconds. */
const PAUSE = 1000;

/** Claims calls, makes them, and reports the results: of several loops that have a tool, one gets each call. */
export class ToolLoop {
  readonly #tools: Map<string, Tool>;
  readonly #running = new Map<string, { call: Call; done: Promise<void> }>();
  /** A request whose response is lost is repeated with its key, and gets the calls that it got. */
  #key = newKey();
  /** What ends the loop: a key that is not allowed to report. */
  #broken: unknown;

  constructor(private readonly context: Context, tools: readonly Tool[], private readonly options: ServeOptions) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    if (tools.length === 0) throw new TypeError("a loop needs tools");
  }

  async run(): Promise<void> {
    const { lease = 30, signal } = this.options;
    const renewing = setInterval(() => void this.#renew(), (lease * 1000) / 3);
    try {
      while (!signal?.aborted && !this.#broken) {
        try {
          await this.#take();
        } catch (error) {
          // What helps nobody who tries again ends the loop; everything else passes.
          if (!(error instanceof MainspringError) || error instanceof Denied || error instanceof Invalid) throw error;
          await this.context.nap(PAUSE, signal);
        }
      }
    } finally {
      await Promise.all([...this.#running.values()].map(({ done }) => done));
      clearInterval(renewing);
    }
    if (this.#broken) throw this.#broken;
  }

  get #lease(): string { return `${Math.round((this.options.lease ?? 30) * 1000)}ms`; }

  /** Claims calls and begins to make them. */
  async #take(): Promise<void> {
    const { concurrency = 32, signal } = this.options;
    const room = concurrency - this.#running.size;
    if (room <= 0) {
      await Promise.race([...this.#running.values()].map(({ done }) => done));
      return;
    }
    const body = { names: [...this.#tools.keys()], limit: Math.min(room, CLAIMED_MAX), lease: this.#lease };
    // It is not broken off: the server may have given calls to it already.
    const { calls } = await this.context.api.claimCalls({ wait: LOOK, body }, { idempotencyKey: this.#key });
    this.#key = newKey();
    if (signal?.aborted) {
      if (calls.length > 0) await this.context.api.releaseClaims({ body: { claims: calls.map(held) } });
      return;
    }
    for (const call of calls) {
      const underWay = this.#running.get(call.call_id);
      if (underWay) {
        // Its claim had lapsed. What already runs is reported with the new one.
        underWay.call = call;
        continue;
      }
      const done = this.#make(call).finally(() => this.#running.delete(call.call_id));
      this.#running.set(call.call_id, { call, done });
    }
  }

  async #renew(): Promise<void> {
    const claims = [...this.#running.values()].map(({ call }) => held(call));
    try {
      for (let at = 0; at < claims.length; at += CLAIMED_MAX) {
        await this.context.api.renewClaims({ body: { claims: claims.slice(at, at + CLAIMED_MAX), lease: this.#lease } });
      }
    } catch {
      // The next turn tries again; a claim that lapses meanwhile may still be renewed.
    }
  }

  async #make(call: Call): Promise<void> {
    const context = { id: call.call_id, sendId: call.send_id, sessionId: call.session_id, attempt: call.attempt };
    const current = () => this.#running.get(call.call_id)?.call.claim ?? call.claim;
    let result = await this.#tools.get(call.name)!.call(call.arguments, context);
    for (;;) {
      try {
        const claim = current();
        const status = await post(this.context.api, call, { ...result, answers: "answer", claim });
        if (status === "claim_lost" && claim !== current()) continue;
        return;
      } catch (error) {
        // A result that is not taken now is posted again; one that never can be, as its error.
        if (error instanceof NotFound) return;
        if (error instanceof Invalid && result.error === undefined) {
          result = { error: `no result: ${error.detail}` };
          continue;
        }
        if (!(error instanceof MainspringError) || error instanceof Denied) {
          this.#broken ??= error;
          return;
        }
        await this.context.nap(PAUSE);
      }
    }
  }
}

/** Names a call together with its claim. */
function held({ call_id, claim }: Call): Schemas["HeldClaim"] { return { call_id, claim }; }
