// Times: durations as the API writes them, waiting, and signals that end.

/** A length of time as the API writes it: `250ms`, `30s`, `5m`, `2h`, `1d`. */
export type Duration = `${number}${"ms" | "s" | "m" | "h" | "d"}`;

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The longest time that a timer takes. */
const LONGEST = 2 ** 31 - 1;

export function milliseconds(duration: Duration): number {
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(duration) ?? [];
  if (!unit) throw new TypeError(`not a duration: ${duration}`);
  return Number(number) * UNITS[unit]!;
}

/** A signal that follows another one, and also aborts when its time is over. */
export class Limit {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #follow = () => this.abort(this.#outer?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(outer?: AbortSignal) {
    this.#outer = outer;
    if (outer?.aborted) this.#follow();
    else outer?.addEventListener("abort", this.#follow, { once: true });
  }

  get signal(): AbortSignal { return this.#controller.signal; }

  /** Aborts with this error after this time, counted anew from each call. */
  after(ms: number, error: () => Error): void {
    this.pause();
    if (ms !== Infinity) this.#timer = setTimeout(() => this.abort(error()), Math.min(ms, LONGEST));
  }

  /** Time no longer counts. */
  pause(): void { clearTimeout(this.#timer); }

  abort(reason: unknown): void { this.#controller.abort(reason); }

  end(): void {
    this.pause();
    this.#outer?.removeEventListener("abort", this.#follow);
  }
}

/** Ends after a time, or with the signal's reason. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, Math.min(ms, LONGEST));
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** How long to wait after so many failures in a row: full jitter below 0.2 s, 0.4 s and so on up to 8 s. */
export function backoff(failures: number): number {
  return Math.random() * Math.min(8000, 200 * 2 ** failures);
}
