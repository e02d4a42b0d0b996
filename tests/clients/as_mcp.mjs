// Uses the server with the reference client of MCP for TypeScript, unmodified. Argument: the server's address.

import assert from "node:assert/strict";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const server = process.argv[2];
const asking = '!tool ask_person {"question": "Sure?", "kind": "confirm"}';

async function publish(name, spec) {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ name, spec });
  const answer = await fetch(`${server}/v1/agents`, { method: "POST", headers, body });
  assert.ok(answer.ok, await answer.text());
}

const asked = [];

async function connect(capabilities) {
  const client = new Client({ name: "test", version: "1" }, { capabilities });
  if (capabilities.elicitation) {
    client.setRequestHandler(ElicitRequestSchema, (request) => {
      asked.push(request.params.message);
      return { action: "accept", content: { answer: true } };
    });
  }
  await client.connect(new StreamableHTTPClientTransport(new URL(`${server}/mcp`)));
  return client;
}

async function newestStatus() {
  const answer = await fetch(`${server}/v1/sends?limit=1`);
  return (await answer.json()).data[0].status;
}

async function until(status) {
  for (let turn = 0; turn < 200; turn += 1) {
    if ((await newestStatus()) === status) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`the send is ${await newestStatus()}, not ${status}`);
}

await publish("ts-echo", { model: "demo", tools: ["ask_person"] });
const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
await publish("ts-form", { model: "demo", output_schema: schema });

const client = await connect({ elicitation: { form: {} } });
assert.equal(client.getServerVersion().name, "mainspring");
const { tools } = await client.listTools();
const echo = tools.find((tool) => tool.name === "ts-echo");
assert.deepEqual(echo.inputSchema.required, ["message"]);
assert.equal(echo.execution.taskSupport, "optional");

const said = await client.callTool({ name: "ts-echo", arguments: { message: "hello" } });
assert.equal(said.content[0].text, "hello");
// The client checks structured content against the schema itself.
const form = await client.callTool({ name: "ts-form", arguments: { message: "fill it in" } });
assert.ok(Number.isInteger(form.structuredContent.n), JSON.stringify(form));

const rounds = [];
const confirmed = await client.callTool({ name: "ts-echo", arguments: { message: asking } }, undefined, {
  onprogress: (progress) => rounds.push(progress.message),
});
assert.deepEqual(asked, ["Sure?"]);
assert.match(confirmed.content[0].text, /true|yes/);
// Rounds that ended meanwhile are told of by the last one.
assert.deepEqual(rounds, [...new Set(rounds)].sort());
assert.ok(rounds.every((round) => /^round \d$/.test(round)), rounds.join());

// A task: begun by one client, read by another one that reconnects.
const events = [];
const call = { name: "ts-echo", arguments: { message: "as a task !sleep 300ms" } };
for await (const event of client.experimental.tasks.callToolStream(call, undefined, { task: { ttl: 60_000 } })) {
  events.push(event);
}
assert.equal(events[0].type, "taskCreated");
assert.equal(events.at(-1).type, "result", JSON.stringify(events.at(-1)));
assert.match(events.at(-1).result.content[0].text, /as a task/);
const { taskId } = events[0].task;
await client.close();
const other = await connect({ elicitation: { form: {} } });
assert.equal((await other.experimental.tasks.getTask(taskId)).status, "completed");
const { tasks } = await other.experimental.tasks.listTasks();
assert.ok(tasks.some((task) => task.taskId === taskId));

// A task that asks a person.
asked.length = 0;
let result;
const question = { name: "ts-echo", arguments: { message: asking } };
for await (const event of other.experimental.tasks.callToolStream(question, undefined, { task: {} })) {
  if (event.type === "error") throw event.error;
  result = event.result;
}
assert.deepEqual(asked, ["Sure?"]);
assert.match(result.content[0].text, /true|yes/);

// A task that is cancelled, and a call that its caller gives up.
const slow = { name: "ts-echo", arguments: { message: "slow !sleep 60s" } };
for await (const event of other.experimental.tasks.callToolStream(slow, undefined, { task: {} })) {
  if (event.type === "taskCreated") {
    await until("running");
    await other.experimental.tasks.cancelTask(event.task.taskId);
    await until("cancelled");
    break;
  }
}
const giving = new AbortController();
const given = other.callTool({ name: "ts-echo", arguments: { message: "given up !sleep 60s" } }, undefined, {
  signal: giving.signal,
});
given.catch(() => {});
await until("running");
giving.abort();
await assert.rejects(given);
await until("cancelled");

const { resources } = await other.listResources();
const read = await other.readResource({ uri: resources[0].uri });
assert.ok(JSON.parse(read.contents[0].text).session.id.startsWith("ses_"));
await other.close();

// A client that can ask nobody is told that someone has to answer.
const mute = await connect({});
const waits = await mute.callTool({ name: "ts-echo", arguments: { message: asking } });
assert.match(waits.content[0].text, /Sure\?/);
assert.equal(waits._meta["mainspring/status"], "input_required");
await mute.close();
