// One request: its address, key and trace, and when it is made again.

import { ApiError, MainspringError, Unexpected, Unreachable } from "./errors.js";
import { backoff, Limit, milliseconds, sleep, type Duration } from "./time.js";

export interface ClientOptions {
  /** The server; else `MAINSPRING_SERVER`, else `http://127.0.0.1:7464`. In browsers it may be a path. */
  url?: string;
  /** The API key, or what gives one for each request; else `MAINSPRING_API_KEY`. */
  key?: string | (() => string | Promise<string>);
  /** The tenant to act for, by keys with the scope `admin`; else `MAINSPRING_TENANT`. */
  tenant?: string;
  /** How long to wait for one answer, and the longest `Retry-After` that is waited for; `60s`. */
  timeout?: Duration;
  /** How often a request is made again; 4. */
  retries?: number;
  /** How long streams and waits try to reach a server again before they fail; `2m`. */
  patience?: Duration;
  /** Headers of every request, such as a `traceparent`. A registered OpenTelemetry API is asked without this. */
  headers?: Record<string, string> | (() => Record<string, string>);
  fetch?: typeof globalThis.fetch;
  /** Sends the key over unencrypted connections to other machines, too. */
  insecure?: boolean;
  /** Takes an API key (`msk_…`) in a page, whose visitors can read it. */
  allowKeyInBrowser?: boolean;
}

/** Options of one request. */
export interface RequestOptions {
  signal?: AbortSignal;
  timeout?: Duration;
  /** Names what a POST creates, so that it is created once; made up for each call unless given. */
  idempotencyKey?: string;
  headers?: Record<string, string>;
}

/** A request as operations make it. */
export interface Call extends RequestOptions {
  method: string;
  /** With its query. */
  path: string;
  body?: unknown;
  /** What a body is that is not JSON. */
  media?: string;
  /** Whether a second one does nothing that the first one did not. */
  repeatable: boolean;
  /** Tries for so many milliseconds, however often, instead of `retries` times. */
  patience?: number;
}

const LOOPBACK = /^http:\/\/(localhost|127(\.\d+){3}|\[::1\])([:/]|$)/;

export class Transport {
  readonly patience: number;
  /** How long the server is asked to wait in one request. */
  readonly poll: number;
  readonly #options: ClientOptions;
  readonly #url: string;
  readonly #key: ClientOptions["key"];
  readonly #tenant: string | undefined;
  readonly #timeout: number;
  readonly #retries: number;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#url = (options.url ?? variable("MAINSPRING_SERVER") ?? "http://127.0.0.1:7464").replace(/\/+$/, "");
    this.#key = options.key ?? variable("MAINSPRING_API_KEY");
    this.#tenant = options.tenant ?? variable("MAINSPRING_TENANT");
    this.#timeout = milliseconds(options.timeout ?? "60s");
    this.#retries = options.retries ?? 4;
    this.patience = milliseconds(options.patience ?? "2m");
    this.poll = Math.min(30_000, this.#timeout / 2);
    if (this.#key && this.#url.startsWith("http://") && !LOOPBACK.test(this.#url) && !options.insecure) {
      throw new TypeError("the key would be readable on its way: use https, or allow that with `insecure`");
    }
  }

  /** Makes a request, again where that helps, until `read` has read all of the answer that it wants. */
  async request<T>(call: Call, read: (response: Response) => Promise<T>): Promise<T> {
    const repeated = call.idempotencyKey ? { ...call, repeatable: true } : call;
    const start = performance.now();
    for (let tries = 0; ; tries++) {
      try {
        return await this.#once(repeated, read);
      } catch (error) {
        const wait = (error instanceof ApiError && error.retryAfter) || backoff(tries);
        const isOver = call.patience === undefined
          ? tries >= this.#retries || wait > this.#timeout
          : performance.now() + wait - start > call.patience;
        if (isOver || !helps(error, repeated)) throw error;
        await sleep(wait, call.signal);
      }
    }
  }

  async #once<T>(call: Call, read: (response: Response) => Promise<T>): Promise<T> {
    call.signal?.throwIfAborted();
    const { method, path, body, timeout } = call;
    const init: RequestInit = { method, headers: await this.#headers(call) };
    if (body !== undefined) init.body = isRaw(body) ? body : JSON.stringify(body);
    const limit = new Limit(call.signal);
    const ms = timeout === undefined ? this.#timeout : milliseconds(timeout);
    limit.after(ms, () => new Unreachable(`${method} ${path}: no answer within ${ms} ms`));
    let isOpen = false;
    try {
      const response = await (this.#options.fetch ?? fetch)(this.#url + path, { ...init, signal: limit.signal });
      if (!response.ok) throw await refusal(response);
      const result = await read(response);
      isOpen = result instanceof Response || result instanceof ReadableStream;
      return result;
    } catch (error) {
      if (call.signal?.aborted) throw call.signal.reason;
      if (error instanceof MainspringError) throw error;
      if (limit.signal.aborted) throw limit.signal.reason;
      const { message, cause } = error as Error;
      throw new Unreachable(`${method} ${path}: ${(cause as Error | undefined)?.message || message}`, { cause: error });
    } finally {
      limit.pause();
      // A body that is still to be read ends with the signal.
      if (!isOpen) limit.end();
    }
  }

  async #headers(call: Call): Promise<Headers> {
    const headers = new Headers();
    if (call.body !== undefined) headers.set("content-type", (isRaw(call.body) && call.media) || "application/json");
    if (call.idempotencyKey) headers.set("idempotency-key", call.idempotencyKey);
    if (this.#tenant) headers.set("mainspring-tenant", this.#tenant);
    const key = typeof this.#key === "function" ? await this.#key() : this.#key;
    if (key) {
      if ("document" in globalThis && key.startsWith("msk_") && !this.#options.allowKeyInBrowser) {
        throw new Unexpected("every visitor can read a key that is in a page: give each one of their own, and say so with `allowKeyInBrowser`");
      }
      headers.set("authorization", `Bearer ${key}`);
    }
    const { headers: own } = this.#options;
    const further = { ...trace(), ...(typeof own === "function" ? own() : own), ...call.headers };
    for (const [name, value] of Object.entries(further)) headers.set(name, value);
    return headers;
  }
}

/** Whether to make the request again. */
function helps(error: unknown, call: Call): boolean {
  if (error instanceof Unreachable) return call.repeatable;
  if (!(error instanceof ApiError) || !error.retryable) return false;
  // A 429 was refused before anything was stored; after any other answer something may have been.
  return error.status === 429 || ((error.status === 408 || error.status >= 500) && call.repeatable);
}

async function refusal(response: Response): Promise<ApiError> {
  const { status, headers } = response;
  const isProblem = headers.get("content-type")?.includes("json");
  const problem = isProblem ? await response.json().catch(() => undefined) : await response.body?.cancel();
  return ApiError.of({ ...(typeof problem === "object" ? problem : {}), status }, headers);
}

/** All of an answer that has to be JSON. */
export async function json<T>(response: Response): Promise<T> {
  if (!response.headers.get("content-type")?.includes("json")) {
    const type = response.headers.get("content-type") ?? "nothing";
    await response.body?.cancel();
    throw new Unexpected(`${response.status} with ${type} in place of JSON: is this address a Mainspring server?`);
  }
  const text = await response.text();
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    // Some runtimes end a body that breaks off as if it were whole.
    throw new Unreachable("the answer breaks off", { cause });
  }
}

function isRaw(body: unknown): body is string | Uint8Array<ArrayBuffer> | Blob {
  return typeof body === "string" || body instanceof Uint8Array || body instanceof Blob;
}

/** A key that nobody else has, ordered by time. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  const random = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return Date.now().toString(16).padStart(12, "0") + random;
}

interface OpenTelemetry {
  context?: { active(): unknown };
  propagation?: { inject(context: unknown, carrier: object, setter: object): void };
}

const setter = { set: (carrier: Record<string, string>, name: string, value: string) => void (carrier[name] = value) };

/** The trace that the caller is in. The API of OpenTelemetry 1.x keeps what is registered under this symbol. */
function trace(): Record<string, string> {
  const api = (globalThis as Record<symbol, unknown>)[Symbol.for("opentelemetry.js.api.1")] as OpenTelemetry | undefined;
  const headers: Record<string, string> = {};
  if (api?.context) api.propagation?.inject(api.context.active(), headers, setter);
  return headers;
}

/** A variable of the environment, where there is one. */
function variable(name: string): string | undefined {
  try {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
    return process?.env?.[name] || undefined;
  } catch {
    return undefined; // Deno, without leave to read it
  }
}
