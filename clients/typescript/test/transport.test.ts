import assert from "node:assert/strict";
import { after, before, mock, test } from "node:test";
import { inspect } from "node:util";
import { context, propagation, trace, TraceFlags } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  ApiError, Client, Conflict, Denied, Invalid, Limited, NotFound, TimeoutError, Unavailable, Unexpected, Unreachable,
  type ClientOptions,
} from "@mainspring/client";
import { bound, fake, hurry, json, problem, stream, type Asked } from "./fake.js";
import { COMPLETED, ID, QUEUED } from "./recording.js";

let slow: () => void;
before(() => (slow = hurry()));
after(() => slow());

type Answer = (asked: Asked, n: number) => Response | Promise<Response>;

function client(answer: Answer, options: ClientOptions = {}): { client: Client; asked: Asked[] } {
  const fetch = fake(answer);
  return { client: new Client({ url: "http://127.0.0.1:1", fetch, ...options }), asked: fetch.asked };
}

/** Fails so often, then answers. */
function after_(failures: number, failure: () => Response, answer: unknown = QUEUED): Answer {
  return (_, n) => (n < failures ? failure() : json(answer));
}

test("a POST that creates has one key over all of its attempts, and another one than every other", async () => {
  const { client: one, asked } = client((_, n) => (n % 3 < 2 ? problem(503, "store.unavailable", true) : json(QUEUED)));
  await one.session().send("a");
  await one.session().send("b");
  await one.session().send("c", { key: "mine" });
  const keys = asked.map(({ headers }) => headers.get("idempotency-key"));
  assert.equal(new Set(keys.slice(0, 3)).size, 1);
  assert.equal(new Set(keys.slice(3, 6)).size, 1);
  assert.notEqual(keys[0], keys[3]);
  assert.deepEqual(keys.slice(6), ["mine", "mine", "mine"]);
});

test("what may be made again is, and what may have been done is not done twice", async () => {
  const unknown = [503, 502, 504, 408].map((status) => () => new Response("<html>", { status, headers: { "content-type": "text/html" } }));
  const network = () => { throw new TypeError("fetch failed"); };
  const half = () => new Response('{"id": "snd_', { headers: { "content-type": "application/json" } });
  const limited = () => problem(429, "limit.exceeded", true);
  const cases: [string, (c: Client) => Promise<unknown>, (() => Response)[], number][] = [
    ["GET", (c) => c.api.getSend({ id: ID }), [...unknown, network, half, limited], 2],
    ["POST with a key", (c) => c.api.createSend({ body: { input: "x" } }), [...unknown, network, half, limited], 2],
    ["POST that finds what it did", (c) => c.api.cancelSend({ id: ID }), [...unknown, network, half, limited], 2],
    ["POST without a key", (c) => c.api.steerNode({ id: "run", path: "/", body: { text: "x" } as never }), [...unknown, network, half], 1],
    ["POST without a key, refused", (c) => c.api.steerNode({ id: "run", path: "/", body: { text: "x" } as never }), [limited], 2],
  ];
  for (const [name, call, failures, times] of cases) {
    for (const failure of failures) {
      const { client: one, asked } = client(after_(1, failure));
      await call(one).catch((error) => assert.equal(times, 1, `${name}: ${error}`));
      assert.equal(asked.length, times, `${name}, ${failure}`);
    }
  }
});

test("what cannot work later is an error of its kind at once", async () => {
  const kinds = { 400: Invalid, 401: Denied, 402: Limited, 403: Denied, 404: NotFound, 409: Conflict, 410: NotFound, 413: Invalid, 422: Invalid, 500: Unavailable };
  for (const [status, kind] of Object.entries(kinds)) {
    const { client: one, asked } = client(() => problem(Number(status), "some.code", false));
    await assert.rejects(one.api.getSend({ id: ID }), (error) => {
      assert.ok(error instanceof kind && error instanceof ApiError, `${status}: ${error}`);
      assert.equal(error.name, kind.name);
      assert.deepEqual([error.code, error.status, error.detail, error.requestId], ["some.code", Number(status), "about some.code", "abc"]);
      return true;
    });
    assert.equal(asked.length, 1);
  }
  const { client: one, asked } = client(() => problem(429, "limit.tokens", false));
  await assert.rejects(one.api.getSend({ id: ID }), Limited);
  assert.equal(asked.length, 1);
});

test("a server that stays away is tried as often as was said", async () => {
  const { client: one, asked } = client(() => { throw new TypeError("fetch failed"); }, { retries: 2 });
  await assert.rejects(one.session().send("x"), (error: Error) => error instanceof Unreachable && /POST \/v1\/sends/.test(error.message));
  assert.equal(asked.length, 3);
});

test("Retry-After is waited for, in seconds and as a date, unless it is longer than a call may take", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    for (const [value, least] of [["7", 7000], [new Date(Date.now() + 7500).toUTCString(), 5000]] as const) {
      const { client: one, asked } = client(after_(1, () => problem(429, "limit.exceeded", true, { "retry-after": value })));
      const send = one.session().send("x");
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      await new Promise((resolve) => setImmediate(resolve));
      mock.timers.tick(least - 1);
      await new Promise((resolve) => setImmediate(resolve));
      assert.equal(asked.length, 1);
      mock.timers.tick(3000);
      await send;
      assert.equal(asked.length, 2);
    }
  } finally {
    mock.timers.reset();
  }
  const { client: one, asked } = client(() => problem(429, "limit.exceeded", true, { "retry-after": "61" }));
  await assert.rejects(one.session().send("x"), (error) => error instanceof Limited && error.retryAfter === 61_000);
  assert.equal(asked.length, 1);
});

test("an answer that does not come is given up, and asked for again", async () => {
  const { client: one, asked } = client((asked, n) => {
    if (n === 1) return json(QUEUED);
    return new Promise<Response>((_, reject) => asked.signal?.addEventListener("abort", () => reject(asked.signal?.reason)));
  }, { timeout: "20ms" });
  await one.session().send("x");
  assert.equal(asked.length, 2);
});

test("a body that does not end is given up, too", async () => {
  const { client: one, asked } = client((asked, n) => {
    if (n === 1) return json(QUEUED);
    const response = bound(stream(['{"id": '], "open"), asked);
    response.headers.set("content-type", "application/json");
    return response;
  }, { timeout: "20ms" });
  await one.session().send("x");
  assert.equal(asked.length, 2);
});

test("the caller's signal ends a request and its retries with the caller's reason", async () => {
  const reason = new Error("enough");
  const stop = new AbortController();
  const { client: one } = client((_, n) => {
    if (n === 1) stop.abort(reason);
    throw new TypeError("fetch failed");
  });
  await assert.rejects(one.session().send("x", { signal: stop.signal }), reason);
});

test("200 with something else than JSON is no answer, and not asked for again", async () => {
  const { client: one, asked } = client(() => new Response("<html>", { headers: { "content-type": "text/html" } }));
  await assert.rejects(one.session().send("x"), Unexpected);
  assert.equal(asked.length, 1);
});

test("a wait outlives a server that is away, in requests that are shorter than a call may take", async () => {
  const { client: one, asked } = client((_, n) => {
    if (n === 0) return json(QUEUED);
    if (n < 8) throw new TypeError("fetch failed");
    return json(n === 8 ? { ...QUEUED, status: "running" } : COMPLETED);
  }, { timeout: "10s", retries: 0 });
  const answer = await one.send(ID).wait();
  assert.equal(answer.send.id, ID);
  assert.ok(asked.every(({ path }) => path === `/v1/sends/${ID}?wait=5000ms`));
});

test("a wait's own time is over in time, also while the server is away", async () => {
  for (const answer of [() => { throw new TypeError("fetch failed"); }, () => json({ ...QUEUED, status: "waiting", waiting_on: "tool" })]) {
    const { client: one } = client(answer);
    await assert.rejects(one.send(ID).wait({ timeout: "50ms" }), TimeoutError);
  }
});

test("a clock that is set does not end a wait, nor hasten it", async () => {
  const { client: one, asked } = client(async (_, n) => {
    const hour = mock.method(Date, "now", () => new Date().getTime() + 3_600_000 * (n + 1));
    if (n === 3) hour.mock.restore();
    return json(n < 3 ? QUEUED : COMPLETED);
  });
  try {
    assert.equal((await one.send(ID).wait({ timeout: "30m" })).send.id, ID);
    assert.deepEqual([...new Set(asked.map(({ path }) => path.split("?")[1]))], ["wait=30000ms"]);
  } finally {
    mock.restoreAll();
    hurry();
  }
});

test("keys, tenants and headers are sent, and keys that change are asked for each time", async () => {
  let n = 0;
  const { client: one, asked } = client(after_(1, () => problem(503, "store.unavailable", true)), {
    key: async () => `token-${++n}`, tenant: "ten_2", headers: () => ({ "X-Mine": String(n) }),
  });
  await one.api.getSend({ id: ID }, { headers: { "x-other": "y" } });
  assert.deepEqual(asked.map(({ headers }) => headers.get("authorization")), ["Bearer token-1", "Bearer token-2"]);
  assert.deepEqual(asked.map(({ headers }) => headers.get("x-mine")), ["1", "2"]);
  assert.deepEqual([asked[0]?.headers.get("mainspring-tenant"), asked[0]?.headers.get("x-other")], ["ten_2", "y"]);
});

test("the environment names server and key where the caller does not", async () => {
  const before = { ...process.env };
  Object.assign(process.env, { MAINSPRING_SERVER: "https://there/agents/", MAINSPRING_API_KEY: "msk_env" });
  try {
    const urls: string[] = [];
    const fetch_ = (async (url: string, init: RequestInit) => {
      urls.push(`${url} ${new Headers(init.headers).get("authorization")}`);
      return json(QUEUED);
    }) as typeof fetch;
    await new Client({ fetch: fetch_ }).api.getSend({ id: ID });
    assert.deepEqual(urls, [`https://there/agents/v1/sends/${ID} Bearer msk_env`]);
  } finally {
    process.env = before;
  }
});

test("a key does not travel unencrypted, nor is a long-lived one used in a page", async () => {
  assert.throws(() => new Client({ url: "http://example.com", key: "msk_a" }), /https/);
  assert.throws(() => new Client({ url: "http://localhost.example.com", key: "msk_a" }), /https/);
  for (const url of ["http://localhost:7464", "http://127.0.0.1", "http://[::1]:80", "https://example.com"]) new Client({ url, key: "msk_a" });
  new Client({ url: "http://example.com", key: "msk_a", insecure: true });
  (globalThis as { document?: object }).document = {};
  try {
    const { client: page, asked } = client(() => json(QUEUED), { key: () => "msk_a" });
    await assert.rejects(page.api.getSend({ id: ID }), /every visitor/);
    assert.equal(asked.length, 0);
    await client(() => json(QUEUED), { key: () => "mst_token" }).client.api.getSend({ id: ID });
    await client(() => json(QUEUED), { key: "msk_a", allowKeyInBrowser: true }).client.api.getSend({ id: ID });
  } finally {
    delete (globalThis as { document?: object }).document;
  }
});

test("the key is in nothing that is printed", async () => {
  const { client: one } = client(() => problem(401, "auth.invalid", false), { key: "msk_secret" });
  const session = one.session({ id: "ses_1" });
  const error = await session.send("x").catch((error: unknown) => error);
  const printed = [one, session, one.send(ID), one.send(ID).stream(), error].map((it) => inspect(it, { depth: 9 }) + JSON.stringify(it));
  for (const text of printed) assert.doesNotMatch(text, /msk_secret/);
});

test("the caller's trace is passed on", async () => {
  const manager = new AsyncLocalStorageContextManager().enable();
  context.setGlobalContextManager(manager);
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  try {
    const { client: one, asked } = client(() => json(QUEUED));
    const span = { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331", traceFlags: TraceFlags.SAMPLED };
    await context.with(trace.setSpanContext(context.active(), span), () => one.session().send("x"));
    await one.session().send("x");
    assert.deepEqual(asked.map(({ headers }) => headers.get("traceparent")), [`00-${span.traceId}-${span.spanId}-01`, null]);
  } finally {
    context.disable();
    propagation.disable();
  }
});

test("parameters of path and query are written as addresses, and bodies as they are", async () => {
  const { client: one, asked } = client(() => json({ data: [] }));
  await one.api.cancelNode({ id: "run_1", path: "/0:a%2Fb[1]/x" });
  await one.api.listSends({ status: "waiting", limit: 5, cursor: "a b&c", session_id: undefined as never });
  await one.api.createBlob({ body: Uint8Array.of(1, 2) });
  await one.api.importSession({ body: "{}\n" });
  assert.deepEqual(asked.map(({ path }) => path), [
    "/v1/runs/run_1/nodes/%2F0%3Aa%252Fb%5B1%5D%2Fx/cancel", "/v1/sends?status=waiting&limit=5&cursor=a+b%26c", "/v1/blobs", "/v1/sessions:import",
  ]);
  const types = asked.map(({ headers }) => headers.get("content-type"));
  assert.deepEqual(types.slice(1), [null, "application/octet-stream", "application/x-ndjson"]);
});

test("answers name their call and their question, and are posted again while the session is locked", async () => {
  const call = { session_id: "ses_1", send_id: ID, name: "t", arguments: {}, waiting_on: "human", requested_at: "" };
  const asks = { question: 2, message: "Which?", mode: "form" };
  const waiting = [{ ...call, call_id: "a", wants: "permission" }, { ...call, call_id: "b", wants: "answer" }, { ...call, call_id: "c", wants: "reply", asks }];
  let posts = 0;
  const { client: one, asked } = client(({ method, body }) => {
    if (method === "GET") return json({ data: waiting, next_cursor: null });
    const status = posts++ === 0 ? "locked" : "accepted";
    return json({ results: [{ call_id: body.results[0].call_id, status }] });
  });
  const [permission, answer, reply] = await one.session({ id: "ses_1" }).questions();
  const taken = [
    await permission!.approve({ note: "ok" }), await permission!.deny("no"), await answer!.answer("green"),
    await reply!.answer({ n: 1 }), await reply!.approve(), await reply!.deny(), await answer!.fail("gone"),
  ];
  assert.deepEqual([...new Set(taken)], ["accepted"]);
  const posted = asked.filter(({ method }) => method === "POST").map(({ body }) => body.results[0]);
  assert.deepEqual(posted.slice(1), [
    { call_id: "a", answers: "permission", output: { approved: true, note: "ok" } },
    { call_id: "a", answers: "permission", output: { approved: false, note: "no" } },
    { call_id: "b", answers: "answer", output: "green" },
    { call_id: "c", question: 2, output: { action: "accept", content: { n: 1 } } },
    { call_id: "c", question: 2, output: { action: "accept" } },
    { call_id: "c", question: 2, output: { action: "decline" } },
    { call_id: "b", answers: "answer", error: "gone" },
  ]);
  assert.deepEqual(posted[0], posted[1]);
});

test("pages are fetched while they are iterated over, and no further", async () => {
  const pages = [{ data: [1, 2], next_cursor: "a" }, { data: [], next_cursor: "b" }, { data: [3], next_cursor: null }];
  const { client: one, asked } = client((_, n) => json(pages[n % 3]));
  const items = [];
  for await (const item of one.sends()) items.push(item);
  assert.deepEqual(items, [1, 2, 3]);
  assert.deepEqual(asked.map(({ path }) => path), ["/v1/sends", "/v1/sends?cursor=a", "/v1/sends?cursor=b"]);
  assert.deepEqual(await one.sends({ status: "failed" }).first(2), [1, 2]);
  assert.equal(asked.length, 4);
});
