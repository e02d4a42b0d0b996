import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { InvalidWebhook, webhooks } from "@mainspring/client";

const SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY = '{"type":"send.completed","timestamp":"2026-01-01T00:00:00Z","data":{"id":"snd_1","output_text":"Grüße 🎉"}}';

function signed(secret: string, body = BODY, at = Math.floor(Date.now() / 1000), id = "evt_1"): Record<string, string> {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${at}.${body}`).digest("base64");
  return { "webhook-id": id, "webhook-timestamp": String(at), "webhook-signature": `v1,${signature}` };
}

test("a signed message is taken, in each form that frameworks give it", async () => {
  const headers = signed(SECRET);
  const shouted = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]));
  for (const form of [headers, new Headers(headers), shouted]) {
    for (const body of [BODY, new TextEncoder().encode(BODY)]) {
      const event = await webhooks.verify(body, form, { secret: SECRET });
      assert.equal(event.id, "evt_1");
      assert.ok(event.type === "send.completed" && event.data.output_text === "Grüße 🎉");
    }
  }
});

test("while a secret is replaced either one verifies, on both sides", async () => {
  await webhooks.verify(BODY, signed(OTHER), { secret: [SECRET, OTHER] });
  const both = signed(SECRET);
  both["webhook-signature"] = `v1a,xxxx v1,${"A".repeat(43)}= ${signed(OTHER)["webhook-signature"]} ${both["webhook-signature"]}`;
  for (const secret of [SECRET, OTHER]) await webhooks.verify(BODY, both, { secret });
});

test("what was changed, kept, or signed by somebody else is refused", async () => {
  const now = Math.floor(Date.now() / 1000);
  const refused: [string, Record<string, string>][] = [
    [`${BODY} `, signed(SECRET)],
    [BODY, signed(OTHER)],
    [BODY, { ...signed(SECRET), "webhook-id": "evt_2" }],
    [BODY, { ...signed(SECRET), "webhook-timestamp": String(now + 1) }],
    [BODY, signed(SECRET, BODY, now - 301)],
    [BODY, signed(SECRET, BODY, now + 302)],
    [BODY, { ...signed(SECRET), "webhook-timestamp": "soon" }],
    [BODY, { ...signed(SECRET), "webhook-signature": "v1,%%%" }],
    [BODY, { ...signed(SECRET), "webhook-signature": "" }],
    [BODY, {}],
  ];
  for (const [body, headers] of refused) {
    await assert.rejects(webhooks.verify(body, headers, { secret: SECRET }), InvalidWebhook, JSON.stringify(headers));
  }
  await webhooks.verify(BODY, signed(SECRET, BODY, now - 301), { secret: SECRET, tolerance: "10m" });
});
