// Webhooks: messages of the server to an endpoint, signed as Standard Webhooks.

import { InvalidWebhook } from "./errors.js";
import type { Schemas } from "./generated/schemas.js";
import { milliseconds, type Duration } from "./time.js";

/** What an endpoint is told. Each event arrives at least once: its `id` is the same every time. */
export type WebhookEvent = { id: string; timestamp: string } & (
  | { type: "send.completed" | "send.failed" | "send.cancelled" | "send.waiting"; data: Schemas["SendView"] }
  | { type: "run.completed" | "run.failed" | "run.cancelled"; data: Schemas["RunView"] }
  | { type: "timer.dead"; data: Schemas["TimerView"] }
);

export interface VerifyOptions {
  /** The webhook's secret, `whsec_…`; several while one is being replaced. */
  secret: string | readonly string[];
  /** How far the sender's clock may be from this one; `5m`. */
  tolerance?: Duration;
}

type HeadersLike = Headers | Record<string, string | string[] | undefined>;

/** The event in a message, if it was signed with the secret and is new. Takes the body as it came, before any parsing. */
export async function verify(
  body: string | Uint8Array<ArrayBuffer>, headers: HeadersLike, { secret, tolerance = "5m" }: VerifyOptions,
): Promise<WebhookEvent> {
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  const signatures = header(headers, "webhook-signature");
  const age = Date.now() - Number(timestamp) * 1000;
  if (!/^\d+$/.test(timestamp) || Math.abs(age) > milliseconds(tolerance)) {
    throw new InvalidWebhook(`the message is of another time: ${timestamp}`);
  }
  const content = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const head = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(head.length + content.length);
  signed.set(head);
  signed.set(content, head.length);
  for (const one of typeof secret === "string" ? [secret] : secret) {
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const key = await crypto.subtle.importKey("raw", bytes(one.replace(/^whsec_/, "")), algorithm, false, ["verify"]);
    for (const signature of signatures.split(" ")) {
      const [version, value] = signature.split(",");
      // Compared in constant time by `verify`.
      if (version === "v1" && value && (await crypto.subtle.verify("HMAC", key, bytes(value), signed))) {
        return { ...(JSON.parse(new TextDecoder().decode(content)) as WebhookEvent), id };
      }
    }
  }
  throw new InvalidWebhook("no signature of the message is by this secret");
}

function header(headers: HeadersLike, name: string): string {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const value = entries.find(([key]) => key.toLowerCase() === name)?.[1];
  if (typeof value !== "string" || value === "") throw new InvalidWebhook(`the message has no ${name}`);
  return value;
}

/** The bytes that are written in base 64; none if nothing can be. */
function bytes(text: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}
