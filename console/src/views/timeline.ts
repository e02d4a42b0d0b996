// What happened in a send, and when, from its events.

import type { Event } from "../sse.js";

export interface Span {
  kind: "queue" | "round" | "tool" | "wait" | "mark";
  label: string;
  /** In milliseconds since 1970. */
  start: number;
  /** None while it goes on. */
  end: number | undefined;
  tone: "idle" | "busy" | "wait" | "bad" | "good";
  /** The call, or the round, that a transcript shows. */
  call?: string;
  round?: number;
  send: string;
  usage?: Usage;
  note?: string;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cost_usd?: number | null;
}

interface Data {
  id?: string;
  at?: string;
  round?: number;
  model?: string;
  usage?: Usage;
  name?: string;
  reason?: string;
  waiting_on?: string;
  started_at?: string | null;
  finished_at?: string | null;
  error?: { code: string; message: string } | null;
  code?: string;
  message?: string;
}

/** An event with when it came; what has no time of its own happened then. */
export interface Timed {
  event: Event;
  came: number;
}

/**
 * The spans of a send. Events that were stored say when something ended; it began when the step before it ended, unless the
 * event of its beginning was seen.
 */
export function spansOf(send: string, events: readonly Timed[], startedAt: string | null | undefined): Span[] {
  const spans: Span[] = [];
  const rounds = new Map<number, Span>();
  const tools = new Map<string, Span>();
  let queue: Span | undefined;
  let wait: Span | undefined;
  let last = 0;
  const endWait = (at: number): void => {
    if (wait !== undefined) wait.end = at;
    wait = undefined;
  };
  const endQueue = (at: number): void => {
    if (queue !== undefined && queue.end === undefined) queue.end = at;
    last = Math.max(last, at);
  };
  for (const { event, came } of events) {
    let data: Data;
    try {
      data = JSON.parse(event.data) as Data;
    } catch {
      continue;
    }
    const at = data.at === undefined ? came : Date.parse(data.at);
    switch (event.type) {
      case "send.queued":
        queue = { kind: "queue", label: "queued", start: at, end: startedAt ? Date.parse(startedAt) : undefined, tone: "idle", send };
        last = queue.end ?? at;
        spans.push(queue);
        break;
      case "send.started":
        endQueue(startedAt ? Date.parse(startedAt) : at);
        break;
      case "round.started": {
        endQueue(at);
        const n = data.round ?? 0;
        const span: Span = { kind: "round", label: `round ${n}`, start: at, end: undefined, tone: "busy", round: n, send, note: data.model };
        const open = rounds.get(n);
        if (open !== undefined && open.end === undefined) {
          open.end = at;
          open.tone = "bad";
        }
        rounds.set(n, span);
        spans.push(span);
        break;
      }
      case "round.completed": {
        endQueue(last === 0 ? at : last);
        const n = data.round ?? 0;
        let span = rounds.get(n);
        if (span === undefined || span.end !== undefined) {
          span = { kind: "round", label: `round ${n}`, start: last, end: at, tone: "good", round: n, send };
          rounds.set(n, span);
          spans.push(span);
        }
        span.end = at;
        span.tone = "good";
        span.note = data.model;
        if (data.usage !== undefined) span.usage = data.usage;
        last = at;
        break;
      }
      case "tool_call.started": {
        const span: Span = { kind: "tool", label: data.name ?? "tool", start: at, end: undefined, tone: "busy", call: data.id, send };
        tools.set(data.id ?? "", span);
        spans.push(span);
        break;
      }
      case "tool_call.completed":
      case "tool_call.failed": {
        let span = tools.get(data.id ?? "");
        if (span === undefined) {
          span = { kind: "tool", label: data.name ?? "tool", start: lastRound(rounds, last), end: at, tone: "good", call: data.id, send };
          tools.set(data.id ?? "", span);
          spans.push(span);
        }
        span.end = at;
        span.tone = event.type === "tool_call.failed" ? "bad" : "good";
        last = Math.max(last, at);
        break;
      }
      case "send.waiting":
        endWait(at);
        wait = { kind: "wait", label: `waits for ${data.waiting_on ?? "something"}`, start: at, end: undefined, tone: "wait", send };
        spans.push(wait);
        break;
      case "send.resumed":
        endWait(at);
        if (data.reason !== undefined && data.reason !== "result") {
          spans.push({ kind: "mark", label: data.reason, start: at, end: at, tone: data.reason === "takeover" ? "bad" : "wait", send });
        }
        last = Math.max(last, at);
        break;
      case "message.reset":
        spans.push({ kind: "mark", label: `void: ${data.reason ?? ""}`, start: at, end: at, tone: "bad", send });
        break;
      case "model.warning":
        spans.push({ kind: "mark", label: data.code ?? "warning", start: at, end: at, tone: "wait", send, note: data.message });
        break;
      case "send.completed":
      case "send.failed":
      case "send.cancelled": {
        const end = data.finished_at ? Date.parse(data.finished_at) : at;
        endQueue(data.started_at ? Date.parse(data.started_at) : end);
        endWait(end);
        for (const span of spans) {
          if (span.end === undefined) {
            span.end = end;
            if (span.tone === "busy") span.tone = event.type === "send.failed" ? "bad" : "idle";
          }
        }
        const note = data.error ? `${data.error.code}: ${data.error.message}` : undefined;
        const tone = event.type === "send.completed" ? "good" : event.type === "send.failed" ? "bad" : "idle";
        spans.push({ kind: "mark", label: event.type.slice("send.".length), start: end, end, tone, send, note });
        break;
      }
      default:
        break;
    }
  }
  return spans;
}

/** When the last round that has ended ended: the calls that it asked for began then. */
function lastRound(rounds: Map<number, Span>, otherwise: number): number {
  let at = 0;
  for (const span of rounds.values()) if (span.end !== undefined) at = Math.max(at, span.end);
  return at === 0 ? otherwise : at;
}

/** A stretch of time and where it is drawn, from 0 to 1. */
interface Piece {
  start: number;
  end: number;
  from: number;
  to: number;
  isFolded: boolean;
}

export interface Scale {
  at: (time: number) => number;
  folds: { at: number; ms: number }[];
}

/** How much longer than everything that happened a wait has to be to be folded. */
const FOLD_SHARE = 0.5;
/** How wide a folded wait is drawn. */
const FOLD_WIDTH = 0.05;
/** What is shorter is never folded. */
const FOLD_MIN = 3_000;

/** Where times are drawn. Waits in which nothing happened take little room if `folds` says so, so that what happened can be read. */
export function scaleOf(spans: readonly Span[], now: number, folds: boolean): Scale {
  const ends = spans.map((span) => span.end ?? now);
  const first = Math.min(...spans.map((span) => span.start), now);
  const last = Math.max(...ends, first + 1);
  const busy = spans
    .filter((span) => span.kind === "round" || span.kind === "tool")
    .map((span) => [span.start, span.end ?? now] as const)
    .sort((a, b) => a[0] - b[0]);
  const gaps: [number, number][] = [];
  let at = first;
  for (const [start, end] of busy) {
    if (start > at) gaps.push([at, start]);
    at = Math.max(at, end);
  }
  if (last > at) gaps.push([at, last]);
  const idle = gaps.reduce((sum, [start, end]) => sum + end - start, 0);
  const active = Math.max(1, last - first - idle);
  const isLong = ([start, end]: [number, number]): boolean => folds && end - start > Math.max(FOLD_MIN, active * FOLD_SHARE);
  const folded = gaps.filter(isLong);
  const shown = Math.max(1, last - first - folded.reduce((sum, [start, end]) => sum + end - start, 0));
  const room = Math.max(0.2, 1 - FOLD_WIDTH * folded.length);
  const pieces: Piece[] = [];
  let x = 0;
  let t = first;
  const push = (end: number, width: number, isFolded: boolean): void => {
    pieces.push({ start: t, end, from: x, to: x + width, isFolded });
    x += width;
    t = end;
  };
  for (const [start, end] of folded) {
    if (start > t) push(start, ((start - t) / shown) * room, false);
    push(end, (1 - room) / folded.length, true);
  }
  if (last > t || pieces.length === 0) push(last, Math.max(0, 1 - x), false);
  return {
    at: (time) => {
      const piece = pieces.find((one) => time <= one.end) ?? pieces.at(-1);
      if (piece === undefined) return 0;
      const share = piece.end === piece.start ? 0 : (time - piece.start) / (piece.end - piece.start);
      return Math.max(0, Math.min(1, piece.from + share * (piece.to - piece.from)));
    },
    folds: pieces.filter((piece) => piece.isFolded).map((piece) => ({ at: (piece.from + piece.to) / 2, ms: piece.end - piece.start })),
  };
}
