// The messages of a session: the newest first of all, earlier ones when they are asked for, new ones as they are stored.

import { useEffect, useRef, useState } from "preact/hooks";

import { get, words, type Page, type Schemas } from "../api.js";
import { follow, type Event } from "../sse.js";
import { changed } from "../ui/live.js";
import type { Timed } from "./timeline.js";

export type Entry = Schemas["Entry"];
export type Message = Schemas["Message"];
export type SendView = Schemas["SendView"];

const PAGE = 200;

export interface Transcript {
  entries: Entry[] | undefined;
  error: string;
  earlier: (() => void) | undefined;
  /** Takes a message that an event has brought. */
  take: (message: Message) => void;
}

function seqOf(entry: Entry): number {
  return entry.role === "fold" ? (entry as unknown as { to_seq: number }).to_seq : (entry as Message).seq;
}

/** Each message once, folds behind what they stand for. */
function joined(one: Entry[], other: Entry[]): Entry[] {
  const by = new Map<string, Entry>();
  for (const entry of [...one, ...other]) by.set(`${seqOf(entry)} ${entry.role === "fold" ? "fold" : ""}`, entry);
  return [...by.values()].sort((a, b) => seqOf(a) - seqOf(b) || Number(a.role === "fold") - Number(b.role === "fold"));
}

async function pages(id: string, after: number, signal: AbortSignal, until?: number): Promise<Entry[]> {
  const found: Entry[] = [];
  let cursor: string | undefined;
  for (;;) {
    const page: Page<Entry> = await get(`/v1/sessions/${id}/messages`, { limit: PAGE, after, folded: true, cursor }, signal);
    found.push(...page.data);
    const last = page.data.at(-1);
    if (page.next_cursor === null || (until !== undefined && last !== undefined && seqOf(last) >= until)) return found;
    cursor = page.next_cursor;
  }
}

export function useTranscript(id: string, session: Schemas["SessionView"] | undefined): Transcript {
  const [entries, set] = useState<Entry[] | undefined>(undefined);
  const [error, setError] = useState("");
  const [from, setFrom] = useState<number | undefined>(undefined);
  const held = useRef<Entry[]>([]);
  const add = (more: Entry[]): void => {
    held.current = joined(held.current, more);
    set(held.current);
  };
  const first = session?.first_seq ?? 1;
  const last = first + (session?.messages ?? 0) - 1;
  const stamp = session === undefined ? "" : `${session.updated_at} ${session.messages}`;
  useEffect(() => {
    if (session === undefined) return;
    const stop = new AbortController();
    const known = held.current.at(-1);
    const after = known === undefined ? Math.max(0, last - PAGE) : seqOf(known);
    if (from === undefined) setFrom(after);
    pages(id, after, stop.signal).then(
      (more) => {
        setError("");
        add(more);
      },
      (failed: unknown) => {
        if (!stop.signal.aborted) setError(words(failed));
      },
    );
    return () => stop.abort();
  }, [id, stamp]);
  const load = async (): Promise<void> => {
    if (from === undefined) return;
    const after = Math.max(0, from - PAGE);
    add(await pages(id, after, new AbortController().signal, from));
    setFrom(after);
  };
  return {
    entries,
    error,
    earlier: from === undefined || from < first ? undefined : () => void load().catch((failed: unknown) => setError(words(failed))),
    take: (message) => add([message]),
  };
}

/** What is being said in a send that goes on. */
export interface Live {
  text: string;
  reasoning: string;
  /** How far its calls are. */
  progress: Map<string, string>;
}

interface Delta {
  round: number;
  attempt: number;
  offset: number;
  text: string;
}

/** Puts the pieces of a text together; a piece of an older attempt or round is void. */
export class Assembled {
  #round = -1;
  #attempt = -1;
  /** In characters of Unicode, as the server counts. */
  #length = 0;
  text = "";

  add(piece: Delta): void {
    const isNewer = piece.round > this.#round || (piece.round === this.#round && piece.attempt > this.#attempt);
    if (!isNewer && (piece.round !== this.#round || piece.attempt !== this.#attempt)) return;
    if (isNewer) this.clear();
    this.#round = piece.round;
    this.#attempt = piece.attempt;
    // What is missing comes with the stored message, and what is known already is not said twice.
    if (piece.offset > this.#length) return;
    const fresh = [...piece.text].slice(this.#length - piece.offset);
    this.text += fresh.join("");
    this.#length += fresh.length;
  }

  clear(): void {
    this.text = "";
    this.#length = 0;
  }
}

const FINAL = new Set(["send.completed", "send.failed", "send.cancelled"]);

export interface Followed {
  events: Timed[];
  live: Live;
  error: string;
}

/** The events of a send, from its first one on, as they come. */
export function useSend(send: string | undefined, take: (message: Message) => void): Followed {
  const [state, set] = useState<Followed>({ events: [], live: { text: "", reasoning: "", progress: new Map() }, error: "" });
  useEffect(() => {
    set({ events: [], live: { text: "", reasoning: "", progress: new Map() }, error: "" });
    if (send === undefined) return;
    const stop = new AbortController();
    const events: Timed[] = [];
    const text = new Assembled();
    const reasoning = new Assembled();
    const progress = new Map<string, string>();
    let isDrawing = false;
    const draw = (): void => {
      if (isDrawing) return;
      isDrawing = true;
      // However many pieces come, one frame draws once.
      requestAnimationFrame(() => {
        isDrawing = false;
        if (!stop.signal.aborted) set({ events: [...events], live: { text: text.text, reasoning: reasoning.text, progress: new Map(progress) }, error: "" });
      });
    };
    const on = (event: Event): void => {
      let data: Record<string, unknown>;
      try {
        data = JSON.parse(event.data) as Record<string, unknown>;
      } catch {
        return;
      }
      if (event.type === "message.delta") text.add(data as unknown as Delta);
      else if (event.type === "reasoning.delta") reasoning.add(data as unknown as Delta);
      else {
        if (event.type === "message.completed") {
          take(data as unknown as Message);
          if (data["role"] === "assistant") {
            text.clear();
            reasoning.clear();
          }
        } else if (event.type === "message.reset" || event.type === "send.resumed") {
          text.clear();
          reasoning.clear();
        } else if (event.type === "tool_call.progress") {
          const total = data["total"] === undefined ? "" : ` of ${String(data["total"])}`;
          progress.set(String(data["id"]), `${String(data["progress"])}${total} ${String(data["message"] ?? "")}`);
        }
        events.push({ event, came: Date.now() });
        // Lists and figures are somewhere else; they follow at once.
        if (FINAL.has(event.type) || event.type === "send.waiting" || event.type === "send.resumed") changed();
      }
      draw();
    };
    follow(`/v1/sends/${send}/events`, stop.signal, on, (event) => FINAL.has(event.type)).catch((failed: unknown) => {
      set((before) => ({ ...before, error: words(failed) }));
    });
    return () => stop.abort();
  }, [send]);
  return state;
}
