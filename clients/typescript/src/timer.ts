// Timers: durable schedules that send to a session or start runs.

import type { Context } from "./context.js";
import { spec, type Runnable } from "./flow.js";
import type { Schemas } from "./generated/schemas.js";
import { Pages } from "./pages.js";
import { sendOptions, type Input, type SendOptions, type Typed } from "./send.js";
import type { Session } from "./session.js";
import type { Duration } from "./time.js";

/** When a timer is due: with `at`, `after`, `every` or `cron`. */
export interface Schedule
  extends Omit<Schemas["TimerBody"], "input" | "options" | "run" | "session_id" | "at" | "after" | "every" | "until"> {
  at?: Date | string;
  after?: Duration;
  every?: Duration;
  until?: Date | string;
  /** The idempotency key: a timer with the same key and content is created once, for two days. */
  key?: string;
}

/** A schedule that wants to know what to do. */
export class NewTimer {
  constructor(private readonly context: Context, private readonly schedule: Schedule) {}

  /** Sends this to the session whenever it is due. */
  async send(session: Session, input: Input, options: Omit<SendOptions, "key" | "signal"> & Partial<Typed<unknown>> = {}): Promise<Timer> {
    return this.#create({ session_id: await session.open(), input, options: sendOptions(options) });
  }

  /** Starts a run whenever it is due. */
  async run(workflow: Runnable<unknown>, body: { input?: unknown; options?: Schemas["RunOptions"] } = {}): Promise<Timer> {
    return this.#create({ run: { spec: spec(workflow), ...body } });
  }

  async #create(what: Partial<Schemas["TimerBody"]>): Promise<Timer> {
    const { key, at, until, ...rest } = this.schedule;
    const body = { ...rest, ...what } as Schemas["TimerBody"];
    if (at !== undefined) body.at = new Date(at).toISOString();
    if (until !== undefined) body.until = new Date(until).toISOString();
    return new Timer(this.context, await this.context.api.createTimer({ body }, { idempotencyKey: key }));
  }
}

export class Timer {
  readonly id: string;
  /** The timer as it was when it was last asked for. */
  view: Schemas["TimerView"] | undefined;

  constructor(private readonly context: Context, timer: Schemas["TimerView"] | string) {
    this.id = typeof timer === "string" ? timer : timer.id;
    this.view = typeof timer === "string" ? undefined : timer;
  }

  /** When it is due next, at most five times, as of the last answer about it. */
  get next(): string[] { return this.view?.next ?? []; }

  get(): Promise<Schemas["TimerView"]> { return this.#seen(this.context.api.getTimer({ id: this.id })); }
  pause(): Promise<Schemas["TimerView"]> { return this.#seen(this.context.api.pauseTimer({ id: this.id })); }
  resume(): Promise<Schemas["TimerView"]> { return this.#seen(this.context.api.resumeTimer({ id: this.id })); }
  /** Changes what it says and when it is due; what is absent stays as it is. */
  change(change: Schemas["TimerChangeBody"]): Promise<Schemas["TimerView"]> {
    return this.#seen(this.context.api.changeTimer({ id: this.id, body: change }));
  }
  /**
   * Fires its next occurrence now, once, however often the request has to be made. The schedule of a timer that recurs goes on
   * as it was.
   */
  async fire(): Promise<Schemas["TimerView"]> {
    const { occurrences } = await this.get();
    return this.#seen(this.context.api.fireTimer({ id: this.id, body: { n: occurrences + 1 } }));
  }
  cancel(): Promise<Schemas["TimerView"]> { return this.#seen(this.context.api.cancelTimer({ id: this.id })); }

  /** What became of each time that it was due: with the `send_id` or `run_id`. */
  occurrences(filters: { limit?: number } = {}): Pages<Schemas["OccurrenceView"]> {
    return new Pages((cursor) => this.context.api.listOccurrences({ id: this.id, ...filters, cursor }));
  }

  async #seen(view: Promise<Schemas["TimerView"]>): Promise<Schemas["TimerView"]> { return (this.view = await view); }
}
