// Receives webhooks of a real server, as its tenants do: verified with `standardwebhooks`. It has to
// compile in strict mode, and to run. Argument: the server's address.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { check, client, of } from "./server.js";

// What the tenants of a country write: signatures are of bytes, not of characters.
const input = "Grüße aus Köln, 東京 🎉";

const brought = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const foreign = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Headers = Record<string, string>;
type Message = { headers: Headers; body: Buffer };
type Event = { type: string; data: { id: string; output_text?: string; input?: unknown } };

// An endpoint takes every message; whether it is a true one is decided where it is used.
class Endpoint {
    private arrived: Message[] = [];
    private wake: () => void = () => {};
    private readonly server = createServer(async (request, response) => {
        const parts: Buffer[] = [];
        for await (const part of request) parts.push(part as Buffer);
        const entries = Object.entries(request.headers);
        const headers = Object.fromEntries(entries.map(([name, value]) => [name, String(value)]));
        this.arrived.push({ headers, body: Buffer.concat(parts) });
        response.writeHead(204).end();
        this.wake();
    });

    async listen(): Promise<string> {
        await new Promise<void>((ready) => this.server.listen(0, "127.0.0.1", ready));
        return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/hook`;
    }

    close() {
        this.server.close();
        this.server.closeAllConnections();
    }

    // The next message of this kind about this send or run. Whatever arrives is signed, others too.
    async message(secret: string, type: string, id: string): Promise<Message & { event: Event }> {
        for (;;) {
            const next = this.arrived.shift();
            if (next === undefined) {
                await new Promise<void>((wake, late) => {
                    const timer = setTimeout(() => late(new Error(`no ${type}`)), 30_000);
                    this.wake = () => {
                        clearTimeout(timer);
                        wake();
                    };
                });
                continue;
            }
            const event = verify(secret, next) as Event;
            check(next.headers["webhook-id"]?.startsWith("evt_") === true, next.headers);
            if (event.type === type && event.data.id === id) return { ...next, event };
        }
    }
}

function verify(secret: string, { headers, body }: Message): unknown {
    return new Webhook(secret).verify(body, headers);
}

function refused(why: string, secret: string, message: Message) {
    try {
        verify(secret, message);
    } catch (error) {
        check(error instanceof WebhookVerificationError && error.message === why, String(error));
        return;
    }
    throw new Error(`it was taken, which should have been refused: ${why}`);
}

const unsigned = "No matching signature found";

function isRefusedWhenChanged(secret: string, { headers, body }: Message) {
    const text = body.toString();
    check(text.includes('"completed"'), text);
    const changed = Buffer.from(text.replaceAll('"completed"', '"cancelled"'));
    refused(unsigned, secret, { headers, body: changed });
    refused(unsigned, secret, { headers, body: Buffer.from(`${text} `) });
    const other = String(Number(headers["webhook-timestamp"]) + 1);
    refused(unsigned, secret, { headers: { ...headers, "webhook-timestamp": other }, body });
    refused(unsigned, secret, { headers: { ...headers, "webhook-id": `evt_${"0".repeat(32)}` }, body });
    refused(unsigned, foreign, { headers, body });
}

// Has the library believe that so much time has gone by.
function later(minutes: number, look: () => void) {
    const now = Date.now;
    Date.now = () => now() + minutes * 60_000;
    try {
        look();
    } finally {
        Date.now = now;
    }
}

function signatures(headers: Headers): number {
    return headers["webhook-signature"]?.split(" ").length ?? 0;
}

async function said() {
    const send = await of(client.POST("/v1/sends", { body: { input }, params: { query: { wait: "30s" } } }));
    check(send.status === "completed", send);
    return send;
}

// A message, and what was done to it on its way.
const endpoint = new Endpoint();
const url = await endpoint.listen();
const webhook = await of(client.POST("/v1/webhooks", { body: { url, events: ["send.*"] } }));
const of_webhook = { params: { path: { id: webhook.id } } };
const secrets = [webhook.secret ?? ""];
const send = await said();
const first = await endpoint.message(secrets[0]!, "send.completed", send.id);
check(first.event.data.output_text === send.output_text, first.event);
check(send.output_text?.includes("東京 🎉") === true, send);
check(signatures(first.headers) === 1, first.headers);
isRefusedWhenChanged(secrets[0]!, first);

// A message that somebody kept, to send it again.
later(4, () => verify(secrets[0]!, first));
later(6, () => refused("Message timestamp too old", secrets[0]!, first));
later(-6, () => refused("Message timestamp too new", secrets[0]!, first));

// While two secrets overlap, either one verifies.
const rotated = await of(client.POST("/v1/webhooks/{id}/rotate", of_webhook));
secrets.unshift(rotated.secret ?? "");
check(secrets[0] !== secrets[1], rotated);
const overlapping = await endpoint.message(secrets[0]!, "send.completed", (await said()).id);
check(signatures(overlapping.headers) === 2, overlapping.headers);
for (const secret of secrets) {
    verify(secret, overlapping);
    isRefusedWhenChanged(secret, overlapping);
}

// Afterwards, only the new one does.
const last = await of(
    client.POST("/v1/webhooks/{id}/rotate", { ...of_webhook, body: { overlap: "0s" } }),
);
const secret = last.secret ?? "";
const alone = await endpoint.message(secret, "send.completed", (await said()).id);
check(signatures(alone.headers) === 1, alone.headers);
for (const before of secrets) refused(unsigned, before, alone);

// The first message once more: the same id, the same bytes, signed by what signs now.
const deliveries = await of(client.GET("/v1/webhooks/{id}/deliveries", of_webhook));
const delivery_id = first.headers["webhook-id"] ?? "";
check(deliveries.data.some((delivery) => delivery.id === delivery_id), deliveries);
await of(
    client.POST("/v1/webhooks/{id}/deliveries/{delivery_id}/redeliver", {
        params: { path: { id: webhook.id, delivery_id } },
    }),
);
const again = await endpoint.message(secret, "send.completed", send.id);
check(again.headers["webhook-id"] === delivery_id && again.body.equals(first.body), again.event);
refused(unsigned, secrets[1]!, again);

// The end of a run, under a secret that the tenant brought.
const runs = new Endpoint();
const events = ["run.completed"];
await of(client.POST("/v1/webhooks", { body: { url: await runs.listen(), events, secret: brought } }));
const brewer = { name: "brewer", system_prompt: "Make tea.", tools: [] };
const spec = {
    name: "tea",
    root: { type: "agent", id: "ask", spec: brewer, input: "{{input}}" },
};
const run = await of(
    client.POST("/v1/runs", { body: { spec, input }, params: { query: { wait: "30s" } } }),
);
const ended = await runs.message(brought, "run.completed", run.id);
check(ended.event.data.input === input, ended.event);
isRefusedWhenChanged(brought, ended);
endpoint.close();
runs.close();
console.log("typescript webhooks: ok");
