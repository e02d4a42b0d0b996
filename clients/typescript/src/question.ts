// What a person is asked: approvals, questions of the agent, questions of its tools.

import type { Context } from "./context.js";
import type { Operations } from "./generated/operations.js";
import type { Schemas } from "./generated/schemas.js";
import { sleep } from "./time.js";

/** How an answer was taken: `already_settled` if another one came first. */
export type Taken = "accepted" | "already_settled" | "not_waiting" | "claim_lost" | "unknown";

/** What a call has come to. */
export type Result = Omit<Schemas["ResultBody"], "call_id">;

/** A call that waits for an answer. Everything that answers it names it, so that two questions are never mixed up. */
export class Question {
  constructor(private readonly context: Context, readonly call: Schemas["WaitingCall"]) {}

  get id(): string { return this.call.call_id; }
  /** The tool: `ask_person`, or the one that needs approval or asks. */
  get name(): string { return this.call.name; }
  get arguments(): unknown { return this.call.arguments; }
  /** `permission` takes `approve` and `deny`; `answer` takes `answer`; `reply` takes `answer`, `approve` and `deny`. */
  get wants(): string { return this.call.wants; }
  /** What a tool asks in the middle of its call. */
  get asks(): Schemas["WaitingCall"]["asks"] { return this.call.asks; }

  /** Any JSON; for a form that a tool asks for, its content. */
  answer(output: unknown): Promise<Taken> {
    return this.#post(this.asks ? { output: { action: "accept", content: output } } : { output });
  }

  approve({ note }: { note?: string } = {}): Promise<Taken> {
    return this.#post({ output: this.asks ? { action: "accept" } : { approved: true, note } });
  }

  /** The agent reads the note. */
  deny(note?: string): Promise<Taken> {
    return this.#post({ output: this.asks ? { action: "decline" } : { approved: false, note } });
  }

  /** Ends the call with an error, which the agent reads. */
  fail(error: string): Promise<Taken> { return this.#post({ error }); }

  #post(result: Result): Promise<Taken> {
    const { wants } = this.call;
    if (this.asks) return post(this.context.api, this.call, { ...result, question: this.asks.question });
    return post(this.context.api, this.call, { ...result, answers: wants === "permission" ? wants : "answer" });
  }
}

/** Posts what a call has come to. Repeats are harmless: the first answer counts. */
export async function post(
  api: Operations, call: { call_id: string; session_id: string }, result: Result, signal?: AbortSignal,
): Promise<Taken> {
  for (;;) {
    const body = { results: [{ ...result, call_id: call.call_id }] };
    const posted = await api.postToolResults({ id: call.session_id, body }, { signal });
    const status = posted.results[0]?.status ?? "unknown";
    if (status !== "locked") return status as Taken;
    await sleep(500, signal);
  }
}
