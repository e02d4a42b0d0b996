// Everything that the client offers, with the real binary.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import {
  ApiError, Client, flow, Invalid, InvalidValue, NotFound, RunCancelled, RunFailed, webhooks, type Question,
  type Schemas, type Send,
} from "@mainspring/client";
import { Server, Stub } from "./server.js";

let server: Server;
let client: Client;
before(async () => {
  server = await Server.start();
  client = new Client({ url: server.url });
});
after(() => server.close());

const greeter = { name: "greeter", system_prompt: "You greet people." };

/** Waits until something is so. */
async function until<T>(look: () => Promise<T | undefined | false>): Promise<T> {
  for (const end = Date.now() + 20_000; Date.now() < end; await sleep(20)) {
    const found = await look();
    if (found) return found;
  }
  throw new Error("it does not come to be so");
}

test("first sends at the same time are of one session, and a failed one creates none", async () => {
  const chat = client.session({ agent: { system_prompt: "Be brief." }, metadata: { customer: "42" } });
  await assert.rejects(chat.send(""), Invalid);
  assert.equal(chat.id, undefined);
  const sends = await Promise.all([chat.send("one"), chat.send("two"), chat.send("three")]);
  const views = await Promise.all(sends.map((send) => send.get()));
  assert.deepEqual(views.map(({ session_id }) => session_id), [chat.id, chat.id, chat.id]);
  assert.equal((await chat.get()).metadata["customer"], "42");
  assert.deepEqual((await client.sessions({ metadata: { customer: "42" } }).first(9)).map(({ id }) => id), [chat.id]);
  assert.deepEqual(await client.sessions({ metadata: { customer: "43" } }).first(9), []);
  assert.deepEqual((await Promise.all(sends.map((send) => send.wait()))).map(({ output }) => output), ["one", "two", "three"]);
});

test("a session that has a key is the same one for whoever opens it", async () => {
  const [one, two] = [client.session({ key: "customer-42" }), new Client({ url: server.url }).session({ key: "customer-42" })];
  assert.equal(await one.open(), await two.open());
  await one.sendAndWait("hello");
  assert.equal((await two.messages().first(10)).length, 2);
});

test("an answer has its type, told by each of three libraries and by a JSON Schema", async () => {
  const send = async <T>(send: Promise<Send<T>>) => (await (await send).wait()).output;
  const chat = client.session();
  const zod = await send(chat.send("x", { output: z.object({ refund: z.boolean(), reasons: z.array(z.string()) }) }));
  zod satisfies { refund: boolean; reasons: string[] };
  assert.equal(typeof zod.refund, "boolean");
  const ark = await send(chat.send("x", { output: type({ amount: "number" }) }));
  ark satisfies { amount: number };
  assert.equal(typeof ark.amount, "number");
  const valibot = v.object({ name: v.string() });
  const schema = { type: "object", required: ["name"], properties: { name: { type: "string" } } };
  const vali = await send(chat.send("x", { output: { type: valibot, schema } }));
  vali satisfies { name: string };
  assert.equal(typeof vali.name, "string");
  await assert.rejects(chat.send("x", { output: valibot }), /JSON Schema/);
  const plain = await send(chat.send("x", { output: schema }));
  plain satisfies unknown;
  assert.ok(plain && typeof plain === "object" && "name" in plain);
});

test("an output is checked here, too, also by a process that only knows the id", async () => {
  const send = await client.session().send("x", { output: { type: "object", required: ["n"], properties: { n: { type: "integer" } } } });
  await send.wait();
  const known = await client.send(send.id, z.object({ n: z.number().transform((n) => `${n}`) })).wait();
  known.output.n satisfies string;
  assert.equal(typeof known.output.n, "string");
  const strange = client.send(send.id, z.object({ other: z.string() }));
  await assert.rejects(strange.wait(), (error) => error instanceof InvalidValue && error.issues.length === 1);
});

test("a send is steered while it works, and what comes too late is a send of its own", async () => {
  const chat = client.session();
  const send = await chat.send("!sleep 700ms");
  await until(async () => (await send.get()).status === "running");
  assert.equal((await send.steer("more")).id, send.id);
  await send.wait();
  const late = await send.steer("again");
  assert.notEqual(late.id, send.id);
  assert.equal((await late.wait()).text, "again");
});

test("a session's stream has all of its sends, and ends when it is deleted", async () => {
  const chat = client.session();
  assert.throws(() => chat.stream(), /does not exist yet/);
  await chat.sendAndWait("one");
  const completed: string[] = [];
  const reading = (async () => {
    for await (const event of chat.stream()) if (event.type === "send.completed") completed.push(event.output_text!);
  })();
  await chat.sendAndWait("two");
  await until(async () => completed.length === 2);
  await chat.delete();
  await reading;
  assert.deepEqual(completed, ["one", "two"]);
  await assert.rejects(chat.get(), NotFound);
});

test("a fork goes its own way", async () => {
  const chat = client.session();
  await chat.sendAndWait("one");
  await chat.sendAndWait("two");
  const fork = await chat.fork({ seq: 2 });
  await fork.sendAndWait("three");
  const said = async (session: typeof chat) => {
    const texts = [];
    for await (const entry of session.messages({ limit: 1 })) {
      if (entry.role === "user" && entry.content[0]?.type === "text") texts.push(entry.content[0].text);
    }
    return texts;
  };
  assert.deepEqual([await said(chat), await said(fork)], [["one", "two"], ["one", "three"]]);
});

test("questions are given to whoever waits, each once", async () => {
  const send = await client.session({ agent: { tools: ["ask_person"] } }).send('!tool ask_person {"question": "In which colour?"}');
  const asked: unknown[] = [];
  const answer = await send.wait({ onQuestion: (question: Question) => (asked.push(question.arguments), question.answer("green")) });
  assert.match(answer.text, /green/);
  assert.deepEqual(asked, [{ question: "In which colour?" }]);
});

test("many sends at once are each accepted or refused", async () => {
  const sends = [{ input: "a", key: "batch-a" }, { input: "" }, { input: "c", session: { agent: { system_prompt: "p" } }, output: z.object({ n: z.number() }) }];
  const [a, b, c] = await client.sendAll(sends);
  assert.ok(a && !(a instanceof ApiError) && c && !(c instanceof ApiError));
  assert.ok(b instanceof Invalid && b.errors[0]?.pointer === "/sends/1/input");
  assert.equal((await a.wait()).text, "a");
  assert.equal(typeof ((await c.wait()).output as { n: number }).n, "number");
  const [again] = await client.sendAll([sends[0]!]);
  assert.ok(again && !(again instanceof ApiError) && again.id === a.id);
});

test("a tool gets arguments of its type, and others are told what is wrong", async () => {
  const stop = new AbortController();
  const seen: unknown[] = [];
  const add = client.tool("add", { description: "Adds.", args: z.object({ a: z.number(), b: z.number().max(9) }), repeat: "safe" }, ({ a, b }, call) => {
    seen.push(call.id);
    return a + b;
  });
  const nothing = client.tool("nothing", { repeat: "keyed" }, () => {});
  const loop = client.serve([add, nothing], { signal: stop.signal });
  const agent = { tools: [add, nothing] };
  const ask = async (input: string) => (await client.session({ agent }).sendAndWait(input, { timeout: "20s" })).text;
  assert.equal(await ask('!tool add {"a": 1, "b": 2}'), "add answered: 3");
  assert.match(await ask('!tool add {"a": 1, "b": 10}'), /10|9/);
  assert.equal(await ask("!tool nothing {}"), "nothing answered: null");
  assert.equal(seen.length, 1);
  stop.abort();
  await loop;
});

test("a loop that is told to end reports what it has begun, and begins nothing more", async () => {
  const stop = new AbortController();
  let begun = 0;
  const slow = client.tool("slow", { repeat: "safe" }, async () => {
    begun += 1;
    await sleep(300);
    return "done";
  });
  const loop = client.serve([slow], { signal: stop.signal, concurrency: 1 });
  const agent = { tools: [slow] };
  const sends = await Promise.all([1, 2].map(() => client.session({ agent }).send("!tool slow {}")));
  await until(async () => begun === 1);
  stop.abort();
  await loop;
  assert.equal(begun, 1);
  const done = await Promise.all(sends.map((send) => send.wait({ timeout: "500ms" }).then(({ text }) => text, (error) => error.name)));
  assert.deepEqual(done.sort(), ["TimeoutError", "slow answered: done"]);
  await Promise.all(sends.map((send) => send.cancel()));
});

test("calls are made once, many at the same time, also if they are listed often", async () => {
  const stop = new AbortController();
  const calls = new Map<string, number>();
  let [now, most] = [0, 0];
  const work = client.tool("work", { repeat: "safe" }, async (_, { id }) => {
    calls.set(id, (calls.get(id) ?? 0) + 1);
    most = Math.max(most, ++now);
    await sleep(50);
    now -= 1;
    return id;
  });
  const loop = client.serve([work], { signal: stop.signal, concurrency: 4 });
  const agent = { tools: [work] };
  const texts = await Promise.all(Array.from({ length: 20 }, () => client.session({ agent }).sendAndWait("!tool work {}", { timeout: "30s" })));
  stop.abort();
  await loop;
  assert.equal(calls.size, 20);
  assert.deepEqual([...new Set(calls.values())], [1]);
  assert.equal(new Set(texts.map(({ text }) => text)).size, 20);
  assert.ok(most > 1 && most <= 4, `${most} at the same time`);
});

test("a result outlives the server that should have taken it", async () => {
  const own = await Server.start();
  try {
    const there = new Client({ url: own.url });
    const stop = new AbortController();
    let made = 0;
    const pay = there.tool("pay", { repeat: "once" }, async () => {
      made += 1;
      await own.kill();
      setTimeout(() => own.start(), 300);
      return { paid: true };
    });
    const loop = there.serve([pay], { signal: stop.signal });
    const send = await there.session({ agent: { tools: [pay] } }).send("!tool pay {}");
    assert.equal((await send.wait({ timeout: "60s" })).text, 'pay answered: {"paid":true}');
    assert.equal(made, 1);
    stop.abort();
    await loop;
  } finally {
    await own.close();
  }
});

test("a result that the server refuses is an error that the agent reads", async () => {
  const stop = new AbortController();
  const odd = client.tool("odd", { repeat: "safe" }, () => "x".repeat(8_000_000));
  const loop = client.serve([odd], { signal: stop.signal });
  const answer = await client.session({ agent: { tools: [odd] } }).sendAndWait("!tool odd {}", { timeout: "20s" });
  assert.match(answer.text, /odd answered: error: no result: .*limit/);
  stop.abort();
  await loop;
});

test("two loops make each call once, and report all of them", async () => {
  const stop = new AbortController();
  const made: string[] = [];
  const charge = client.tool("charge", { repeat: "once" }, async (_, { id }) => {
    made.push(id);
    await sleep(20);
    return id;
  });
  const loops = [1, 2].map(() => client.serve([charge], { signal: stop.signal }));
  const agent = { tools: [charge] };
  const answers = await Promise.all(Array.from({ length: 20 }, () => client.session({ agent }).sendAndWait("!tool charge {}", { timeout: "30s" })));
  stop.abort();
  await Promise.all(loops);
  assert.equal(made.length, 20);
  assert.deepEqual(answers.map(({ text }) => text).sort(), made.map((id) => `charge answered: ${id}`).sort());
});

test("a run with steps, items and branches comes to what its last node says", async () => {
  const plan = flow.agent("plan", { agent: greeter, input: flow.input, output: z.object({ topics: z.array(z.string()), urgent: z.boolean() }) });
  const dig = flow.foreach("dig", plan.get("topics"), (topic, index) =>
    flow.agent("finding", { agent: greeter, input: `${index}: ${topic}` }), { max_concurrency: 2, on_error: "continue" });
  const choose = flow.branch(plan.get("urgent"), {
    true: flow.agent("now", { agent: greeter, input: "now" }),
    false: flow.agent("later", { agent: greeter, input: "later" }),
  });
  const write = flow.agent("write", { agent: greeter, input: "Write.", inputs_from: [dig], output: z.object({ page: z.string() }) });
  const both = flow.parallel([choose, flow.sequence(flow.agent("a", { agent: greeter }), flow.agent("b", { agent: greeter }))]);
  const workflow = flow.workflow("deep-research", flow.sequence(plan, dig, both, write), { budget: { max_tokens: 1_000_000 }, timeout: "5m" });
  const run = await client.run(workflow, { input: "tea", key: "r-1" });
  assert.equal((await client.run(workflow, { input: "tea", key: "r-1" })).id, run.id);
  const types = new Set<string>();
  let counts: Schemas["RunCounts"] | undefined;
  for await (const event of run.stream()) {
    types.add(event.type);
    if (event.type === "run.progress" || event.type === "run.completed") counts = event.counts;
  }
  assert.ok(types.has("node.completed") && types.has("run.completed"));
  assert.ok(counts!.completed >= 6);
  const { output, text } = await run.wait();
  output.page satisfies string;
  assert.equal(typeof output.page, "string");
  assert.equal(typeof text, "string");
  const paths = [];
  for await (const node of run.nodes({ limit: 2 })) paths.push(node.path);
  assert.ok(paths.includes("/1:dig[0]/finding"), paths.join());
  assert.equal((await client.attachRun(run.id).get()).status, "completed");
});

test("all kinds of nodes are ones that the server knows", async () => {
  const ask = flow.approval("ok", `Go on with ${flow.input}?`, { timeout: "1h" });
  const step = flow.agent("step", { agent: greeter, when: ask.get("approved").truthy(), retry: { max_attempts: 2, backoff: "1s" }, continue_on_error: true });
  const loop = flow.loop("polish", (n, previous) => flow.agent("draft", { agent: greeter, input: `${n} ${previous}`, output: z.object({ good: z.boolean() }) }), {
    until: { ref: "draft.good", op: "truthy" }, max_iterations: 3, on_exhausted: "continue",
  });
  const nested = flow.nested("inner", flow.workflow("inner", flow.agent("x", { agent: greeter, input: flow.input })), { input: step });
  const call = flow.tool("time", "current_time", {});
  const one = flow.branch(loop.get("converged"), { true: call }, { default: nested });
  const literal = flow.foreach("all-of", ["a", "b"], (item) => flow.agent("each", { agent: greeter, input: item, when: item.in(["a"]) }));
  const spec = flow.workflow("everything", flow.sequence(ask, step, loop, flow.wait({ seconds: 1 }), one, literal)).spec;
  const { ids } = await client.api.validateWorkflow({ body: JSON.parse(JSON.stringify({ spec })) });
  assert.deepEqual([...ids].sort(), ["all-of", "draft", "each", "inner", "ok", "polish", "step", "time", "x"].sort());
});

test("what has no result cannot be referred to", () => {
  const steps = flow.sequence(flow.agent("a", { agent: greeter }));
  assert.throws(() => `${steps}`, /a sequence has no result of its own/);
  assert.throws(() => flow.foreach("each", flow.parallel([flow.agent("b", { agent: greeter })]) as never, () => steps), /a parallel/);
});

test("a run that fails says why, keeps what succeeded, and can be cancelled", async () => {
  const root = flow.sequence(flow.agent("good", { agent: greeter }), flow.agent("bad", { agent: greeter, input: "!fail 400" }));
  const run = await client.run(flow.workflow("fails", root), { input: "hello" });
  await assert.rejects(run.wait(), (error) => error instanceof RunFailed && error.run.error !== null && error.code !== "");
  const failed = [];
  for await (const node of run.nodes()) if (node.state === "failed" && node.kind === "agent") failed.push(node.path);
  assert.deepEqual(failed, ["/1:bad"]);
  await run.retry();
  await assert.rejects(run.wait(), RunFailed);
  const slow = await client.run(flow.workflow("slow", flow.agent("a", { agent: greeter, input: "!sleep 60s" })));
  assert.equal(typeof (await slow.pause()).paused_at, "string");
  assert.equal((await slow.resume()).paused_at, undefined);
  await slow.cancel("enough");
  await assert.rejects(slow.wait({ timeout: "20s" }), RunCancelled);
  await assert.rejects(client.run({ name: "x", root: { type: "agent" } }), (error) => error instanceof Invalid && error.code === "spec.invalid");
});

test("timers send and start runs", async () => {
  const chat = client.session();
  const timer = await client.timer({ after: "1s", key: "t-1" }).send(chat, "It is time.", { deadline: "1m" });
  assert.equal(timer.next.length, 1);
  const [occurrence] = await until(async () => {
    const some = await timer.occurrences().first(1);
    return some.length > 0 && some;
  });
  assert.equal((await client.send(occurrence!.send_id!).wait()).text, "It is time.");
  const daily = await client.timer({ cron: "0 6 * * 1-5", timezone: "Europe/Berlin", until: new Date("2100-01-01") })
    .run(flow.workflow("nightly", flow.agent("a", { agent: greeter })), { input: "x" });
  assert.equal(daily.next.length, 5);
  assert.equal((await daily.pause()).status, "paused");
  assert.equal((await client.attachTimer(daily.id).resume()).status, "armed");
  assert.equal((await daily.cancel()).status, "cancelled");
});

test("timers are changed and fired by hand", async () => {
  const timer = await client.timer({ every: "1h" }).send(client.session(), "hello");
  assert.equal((await timer.change({ every: "2h", max_occurrences: 3 })).every, "2h");
  await timer.fire();
  const [occurrence] = await until(async () => {
    const some = await timer.occurrences().first(1);
    return some.length > 0 && some;
  });
  assert.equal(occurrence!.manual, true);
  assert.equal((await timer.get()).next.length, 2);
});

test("a token is for one session", async () => {
  const [mine, other] = [client.session(), client.session()];
  const page = new Client({ url: server.url, key: await mine.token({ scopes: ["read", "use"], ttl: "1m" }) });
  assert.equal((await page.session({ id: await mine.open() }).sendAndWait("hello")).text, "hello");
  await assert.rejects(page.session({ id: await other.open() }).sendAndWait("hello"), NotFound);
});

test("a webhook of the server verifies", async () => {
  let told: (event: webhooks.WebhookEvent) => void;
  const event = new Promise<webhooks.WebhookEvent>((resolve) => (told = resolve));
  let secret = "";
  const endpoint = await Stub.start(async ({ body, headers }, response) => {
    response.writeHead(204).end();
    told(await webhooks.verify(body, headers, { secret }));
  });
  try {
    const webhook = await client.api.createWebhook({ body: { url: `${endpoint.url}/hook`, events: ["send.completed"] } });
    secret = webhook.secret!;
    const answer = await client.session().sendAndWait("Grüße 🎉");
    const { type: what, data } = await event;
    assert.equal(what, "send.completed");
    assert.equal(data.id, answer.send.id);
    await client.api.deleteWebhook({ id: webhook.id });
  } finally {
    endpoint.close();
  }
});

test("every operation of the description is there", async () => {
  const info = await client.api.getInfo();
  assert.equal(info["name"], "mainspring");
  assert.match(await client.api.getReady(), /ok/);
  const blob = await client.api.createBlob({ body: new TextEncoder().encode("hello") });
  const response = await client.api.getBlob({ sha256: blob.sha256 });
  assert.equal(await response.text(), "hello");
  const chat = client.session();
  await chat.sendAndWait("hello");
  const archive = await (await client.api.exportSession({ id: chat.id! })).text();
  const copy = await client.api.importSession({ body: archive });
  assert.equal(copy.messages, 2);
});
