// A `fetch` that answers from memory, so that every cut and every delay can be tried.

import { mock } from "node:test";

export interface Asked {
  method: string;
  path: string;
  headers: Headers;
  body: any;
  signal: AbortSignal | null | undefined;
}

export type Fake = typeof fetch & { asked: Asked[] };

/** Answers the n-th request as `answer` says. Errors that it throws are those of the network. */
export function fake(answer: (asked: Asked, n: number) => Response | Promise<Response>): Fake {
  const asked: Asked[] = [];
  const fetch = async (url: string | URL | globalThis.Request, init: RequestInit = {}) => {
    const { pathname, search } = new URL(String(url));
    const body = typeof init.body === "string" ? JSON.parse(init.body) : init.body;
    const one = { method: init.method!, path: pathname + search, headers: new Headers(init.headers), body, signal: init.signal };
    asked.push(one);
    init.signal?.throwIfAborted();
    return answer(one, asked.length - 1);
  };
  return Object.assign(fetch, { asked }) as Fake;
}

export function json(value: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json", ...headers } });
}

export function problem(status: number, code: string, retryable: boolean, headers: Record<string, string> = {}): Response {
  const body = { type: `/errors/${code}`, title: code, status, detail: `about ${code}`, code, retryable };
  return json(body, status, { "content-type": "application/problem+json", "x-request-id": "abc", ...headers });
}

/** A stream of these pieces, which ends, breaks off, or stays open. */
export function stream(pieces: (string | Uint8Array)[], end: "clean" | "abrupt" | "open", onCancel = () => {}): Response {
  let next = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const piece = pieces[next++];
      if (piece !== undefined) controller.enqueue(typeof piece === "string" ? new TextEncoder().encode(piece) : piece);
      else if (end === "clean") controller.close();
      else if (end === "abrupt") controller.error(new TypeError("terminated"));
      else return new Promise(() => {});
      return undefined;
    },
    cancel: onCancel,
  }, { highWaterMark: 0 });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

/** A body that ends with the request's signal, as those of the real `fetch` do. */
export function bound(response: Response, { signal }: Asked): Response {
  const reader = response.body!.getReader();
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => signal?.addEventListener("abort", () => (controller.error(signal.reason), reader.cancel())),
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => reader.cancel(),
  }, { highWaterMark: 0 });
  return new Response(body, { headers: response.headers });
}

/** Has no delay be longer than the next turn of the event loop. */
export function hurry(): () => void {
  const random = mock.method(Math, "random", () => 0);
  return () => random.mock.restore();
}
