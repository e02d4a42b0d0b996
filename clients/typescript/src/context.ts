// What all handles of a client share.

import type { Operations } from "./generated/operations.js";
import { operations } from "./operations.js";
import { Limit, sleep } from "./time.js";
import type { Transport } from "./transport.js";

/** Hides the transport and the many operations from whoever prints a handle. */
export class Context {
  readonly #transport: Transport;
  readonly #api: Operations;
  readonly #naps = new Set<Limit>();

  constructor(transport: Transport) {
    this.#transport = transport;
    this.#api = operations(transport);
  }

  get transport(): Transport { return this.#transport; }
  get api(): Operations { return this.#api; }

  /** Waits for a while, or until somebody in this process knows of a call for its tool loops. */
  async nap(ms: number, signal?: AbortSignal): Promise<void> {
    const nap = new Limit(signal);
    this.#naps.add(nap);
    await sleep(ms, nap.signal).catch(() => {});
    this.#naps.delete(nap);
    nap.end();
  }

  wake(): void { for (const nap of this.#naps) nap.abort("a call waits"); }
}
