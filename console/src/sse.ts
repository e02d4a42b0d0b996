// Server-sent events by fetch, since an EventSource can send no headers.

import { address, failure, headers, offline } from "./api.js";

export interface Event {
  id: string;
  type: string;
  data: string;
}

/** Cuts the text of a stream into events; what is not whole yet is kept for the next piece. */
export class Cutter {
  #rest = "";

  push(piece: string): Event[] {
    this.#rest += piece;
    const found: Event[] = [];
    for (;;) {
      const end = /\r\n\r\n|\n\n|\r\r(?!\n)/.exec(this.#rest);
      if (end === null) return found;
      const block = this.#rest.slice(0, end.index);
      this.#rest = this.#rest.slice(end.index + end[0].length);
      const event = { id: "", type: "message", data: "" };
      const data: string[] = [];
      for (const line of block.split(/\r\n|\n|\r/)) {
        const colon = line.indexOf(":");
        if (colon === 0) continue;
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "data") data.push(value);
        else if (name === "event") event.type = value;
        else if (name === "id") event.id = value;
      }
      if (data.length === 0) continue;
      event.data = data.join("\n");
      found.push(event);
    }
  }
}

/** How long the first attempt to connect again waits, and the longest wait. */
const AGAIN_MS = [250, 8_000] as const;

/**
 * Follows a stream until `isLast` says so, the server says that there is no more, or the signal ends it. Connects again with
 * the last id whenever it breaks: a clean end without the last event is a break, too.
 */
export async function follow(
  path: string,
  signal: AbortSignal,
  on: (event: Event) => void,
  isLast: (event: Event) => boolean,
): Promise<void> {
  let last = "";
  let wait: number = AGAIN_MS[0];
  while (!signal.aborted) {
    try {
      const more: Record<string, string> = { accept: "text/event-stream" };
      if (last !== "") more["last-event-id"] = last;
      const response = await fetch(address(path), { headers: headers(more), signal, cache: "no-store" });
      if (response.status === 204) return;
      if (!response.ok) {
        const error = await failure(response);
        if (response.status < 500 && response.status !== 429) throw error;
      } else if (response.body !== null) {
        offline.value = null;
        const cutter = new Cutter();
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          for (const event of cutter.push(value)) {
            wait = AGAIN_MS[0];
            if (event.id !== "") last = event.id;
            on(event);
            if (isLast(event)) {
              void reader.cancel();
              return;
            }
          }
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof TypeError) && !(error instanceof DOMException)) throw error;
    }
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, wait);
      signal.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
    });
    wait = Math.min(wait * 2, AGAIN_MS[1]);
  }
}
