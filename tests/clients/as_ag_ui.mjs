// Checks the events of runs against the schemas of AG-UI, and runs agents with its client, both unmodified. Argument: the
// server's address.

import assert from "node:assert/strict";

import { HttpAgent } from "@ag-ui/client";
import { EventSchema, RunAgentInputSchema } from "@ag-ui/core/schemas";

const server = process.argv[2];
const asking = '!tool ask_person {"question": "Which one?", "kind": "choice", "options": ["red", "blue"]}';

async function publish(name, spec) {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ name, spec });
  const answer = await fetch(`${server}/v1/agents`, { method: "POST", headers, body });
  assert.ok(answer.ok, await answer.text());
}

// The events of a run, each of which fits its schema.
async function events(agent, input) {
  const body = JSON.stringify(RunAgentInputSchema.parse(input));
  const headers = { "content-type": "application/json", accept: "text/event-stream" };
  const answer = await fetch(`${server}/ag-ui/${agent}`, { method: "POST", headers, body });
  const text = await answer.text();
  assert.ok(answer.ok, text);
  const data = text.split("\n").filter((line) => line.startsWith("data: "));
  return data.map((line) => {
    const event = JSON.parse(line.slice(6));
    const checked = EventSchema.safeParse(event);
    assert.ok(checked.success, `${line}: ${checked.error}`);
    return event;
  });
}

await publish("ui-echo", { model: "demo", tools: ["ask_person"] });
const parameters = { type: "object" };
await publish("ui-tools", {
  model: "demo",
  tools: [{ type: "external", name: "weather", description: "The weather.", parameters }],
});

const user = (content) => ({ id: crypto.randomUUID(), role: "user", content });
const input = (threadId, content, more = {}) => ({
  threadId, runId: crypto.randomUUID(), messages: content === null ? [] : [user(content)], tools: [], context: [], ...more,
});

// Raw events.
const thread = crypto.randomUUID();
const told = await events("ui-echo", input(thread, "one two three !stream 3x10ms"));
assert.equal(told[0].type, "RUN_STARTED");
assert.equal(told[0].protocolVersion, "1.0");
assert.deepEqual(told.at(-1).outcome, { type: "success" });
assert.ok(told.filter((event) => event.type === "TEXT_MESSAGE_CONTENT").length > 1, JSON.stringify(told));

const asked = await events("ui-echo", input(thread, asking));
const { interrupts } = asked.at(-1).outcome;
assert.equal(interrupts[0].message, "Which one?");
assert.deepEqual(interrupts[0].responseSchema.properties.answer.enum, ["red", "blue"]);
const resume = [{ interruptId: interrupts[0].id, status: "resolved", payload: { answer: "blue" } }];
const resumed = await events("ui-echo", input(thread, null, { resume }));
assert.equal(resumed[1].type, "MESSAGES_SNAPSHOT");
assert.deepEqual(resumed.at(-1).outcome, { type: "success" });
// What was said before the stream began is in its snapshot: an answer can be as fast as that.
const before = resumed[1].messages.filter(({ role }) => role === "assistant").map(({ content }) => content ?? "");
const said = resumed.filter((event) => event.type === "TEXT_MESSAGE_CONTENT").map((event) => event.delta).join("");
assert.match([...before, said].join("\n"), /blue/);

const failed = await events("ui-echo", input(crypto.randomUUID(), "!fail 400"));
assert.equal(failed.at(-1).type, "RUN_ERROR");

// With the client, which checks the order of the events and keeps the messages.
const agent = new HttpAgent({ url: `${server}/ag-ui/ui-echo`, threadId: crypto.randomUUID() });
agent.addMessage(user("hello"));
await agent.runAgent();
assert.equal(agent.messages.at(-1).role, "assistant");
assert.equal(agent.messages.at(-1).content, "hello");
agent.addMessage(user("more"));
await agent.runAgent();
assert.equal(agent.messages.at(-1).content, "more");
assert.equal(agent.messages.length, 4);

// A tool of the client.
const tools = new HttpAgent({ url: `${server}/ag-ui/ui-tools`, threadId: crypto.randomUUID() });
tools.addMessage(user('!tool weather {"place": "Potsdam"}'));
const offered = [{ name: "weather", description: "The weather.", parameters }];
await tools.runAgent({ tools: offered });
const call = tools.messages.at(-1).toolCalls[0];
assert.equal(call.function.name, "weather");
assert.deepEqual(JSON.parse(call.function.arguments), { place: "Potsdam" });
tools.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: "sun, 21 degrees" });
await tools.runAgent({ tools: offered });
assert.match(tools.messages.at(-1).content, /sun, 21 degrees/);
