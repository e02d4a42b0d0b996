// A recorded send: two rounds, a tool, a takeover in mid-answer, characters of two units.

import type { SendEvent } from "@mainspring/client";
import { frame } from "./server.js";

export const ID = "snd_00000000000000000000000000000001";
export const TEXT = "It was sent on Monday. 👋🏽";

const at = "2026-01-01T00:00:00.000Z";
const usage = { input_tokens: 1, output_tokens: 2 };
export const VIEW = { id: ID, session_id: "ses_00000000000000000000000000000001", usage, rounds: 2, attempts: 1, created_at: at };
export const QUEUED = { ...VIEW, status: "queued" };
export const COMPLETED = { ...VIEW, status: "completed", output_text: TEXT, send_id: ID };

interface Recorded {
  id?: string;
  event: SendEvent["type"];
  data: Record<string, unknown>;
}

const of = (data: Record<string, unknown>) => ({ send_id: ID, ...data });
const message = (seq: number, role: string, round: number, text: string) =>
  of({ seq, role, round, content: [{ type: "text", text }], created_at: at });

export const RECORDING: Recorded[] = [
  { id: "1.0", event: "send.queued", data: of({ id: ID, status: "queued", at }) },
  { event: "send.started", data: of({}) },
  { event: "message.delta", data: of({ round: 0, attempt: 1, offset: 0, text: "👋🏽 Let me " }) },
  { event: "message.delta", data: of({ round: 0, attempt: 1, offset: 10, text: "look." }) },
  { id: "2.0", event: "message.completed", data: message(1, "user", 0, "When?") },
  { id: "2.1", event: "message.completed", data: message(2, "assistant", 0, "👋🏽 Let me look.") },
  { id: "2.2", event: "round.completed", data: of({ round: 0, model: "demo" }) },
  { event: "tool_call.started", data: of({ id: "call_1", name: "lookup" }) },
  { id: "3.0", event: "tool_call.completed", data: of({ id: "call_1", name: "lookup" }) },
  { event: "reasoning.delta", data: of({ round: 1, attempt: 1, offset: 0, text: "Hmm" }) },
  { event: "message.delta", data: of({ round: 1, attempt: 1, offset: 0, text: "It was lost" }) },
  { event: "message.reset", data: of({ round: 1, attempt: 2, reason: "takeover" }) },
  { event: "message.delta", data: of({ round: 1, attempt: 2, offset: 0, text: "It was sent on" }) },
  { event: "message.delta", data: of({ round: 1, attempt: 2, offset: 14, text: " Monday. 👋" }) },
  { event: "message.delta", data: of({ round: 1, attempt: 2, offset: 24, text: "🏽" }) },
  { id: "10.0", event: "message.completed", data: message(3, "assistant", 1, TEXT) },
  { id: "10.1", event: "send.completed", data: COMPLETED },
];

/** What the server says to a reader who has everything up to this id. */
export function recorded(after?: string | null): string {
  const from = after ? RECORDING.findIndex(({ id }) => id === after) + 1 : 0;
  return RECORDING.slice(from).map(frame).join("");
}

/** What `text` may be at some moment: a part of what was, is or will be said. */
export function isSaid(text: string): boolean {
  return ["👋🏽 Let me look.", "It was lost", TEXT].some((said) => said.startsWith(text));
}
