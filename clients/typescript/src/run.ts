// A run: one execution of a workflow.

import { ended, type Outcome } from "./answer.js";
import type { Context } from "./context.js";
import type { Schemas } from "./generated/schemas.js";
import { Pages } from "./pages.js";
import type { Shape } from "./schema.js";
import { untilFinal, type WaitOptions } from "./send.js";
import { RunStream, type StreamOptions } from "./stream.js";

/** A run. `client.attachRun(id)` is the same one, in any process. */
export class Run<T = unknown> {
  constructor(private readonly context: Context, readonly id: string, private readonly shape?: Shape<T>) {}

  /** The run as it is now. */
  get(): Promise<Schemas["RunView"]> { return this.context.api.getRun({ id: this.id }); }

  /** The outcome. Fails with `RunFailed`, `RunCancelled`, or `TimeoutError` if its own time is over. */
  async wait(options: WaitOptions = {}): Promise<Outcome<T>> {
    const wake = async () => this.context.wake();
    const { transport } = this.context;
    return ended(await untilFinal<Schemas["RunView"]>(transport, `/v1/runs/${this.id}`, options, wake), this.shape);
  }

  /** Its events, from the first one or after a cursor. */
  stream(options: StreamOptions = {}): RunStream { return new RunStream(this.context, this.id, options); }

  cancel(reason?: string): Promise<Schemas["RunView"]> {
    return this.context.api.cancelRun({ id: this.id, body: { reason: reason ?? null } });
  }

  /** Lets it start nothing more until it is resumed. What runs goes on to its end. */
  pause(): Promise<Schemas["RunView"]> { return this.context.api.pauseRun({ id: this.id }); }

  /** Lets it go on after a pause. */
  resume(): Promise<Schemas["RunView"]> { return this.context.api.resumeRun({ id: this.id }); }

  /** Runs again what did not succeed, and keeps what did. */
  retry(body: Schemas["RetryRunBody"] = {}): Promise<Schemas["RunView"]> {
    return this.context.api.retryRun({ id: this.id, body });
  }

  /** Its nodes in the order in which they were reached, or those below a path. */
  nodes(filters: { prefix?: string; limit?: number } = {}): Pages<Schemas["NodeView"]> {
    return new Pages((cursor) => this.context.api.listNodes({ id: this.id, ...filters, cursor }));
  }
}
