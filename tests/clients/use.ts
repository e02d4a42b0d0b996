// Uses the types that openapi-typescript made of the server's own description. It has to compile in
// strict mode, and to run. Argument: the server's address.

import type { components } from "./schema.js";
import { check, client, of } from "./server.js";

type Schemas = components["schemas"];

async function until<T>(look: () => Promise<T | undefined>): Promise<T> {
    for (const end = Date.now() + 30_000; Date.now() < end; ) {
        const found = await look();
        if (found !== undefined) return found;
    }
    throw new Error("it does not come");
}

// A session with a tool that this program runs.
const weather: Schemas["ExternalTool"] = { type: "external", name: "weather", description: "The weather." };
const agent: Schemas["AgentSpec"] = { system_prompt: "Be brief.", tools: ["core", weather] };
const session = await of(client.POST("/v1/sessions", { body: { agent, metadata: { team: "tea" } } }));
check(session.metadata["team"] === "tea", session);
const declared = session.agent.tools?.[1];
check(typeof declared === "object" && declared.type === "external" && declared.name === "weather", session);
const of_session = { params: { path: { id: session.id } } };

// A send that asks for it, and its result.
const asks = { input: '!tool weather {"place": "Potsdam"}', session_id: session.id };
const send = await of(client.POST("/v1/sends", { body: asks, params: { query: { wait: "2s" } } }));
const call = await until(async () => (await of(client.GET("/v1/sessions/{id}/calls", of_session))).data[0]);
const results = [{ call_id: call.call_id, output: ["sun", 21] }];
const posted = await of(client.POST("/v1/sessions/{id}/tool-results", { ...of_session, body: { results } }));
check(posted.results[0]?.status === "accepted", posted);
const show = (id: string) =>
    of(client.GET("/v1/sends/{id}", { params: { path: { id }, query: { wait: "30s" } } }));
const done = await show(send.id);
check(done.status === "completed", done);
const messages = await of(
    client.GET("/v1/sessions/{id}/messages", { params: { path: { id: session.id }, query: { limit: 50 } } }),
);
// Folds stand between messages where they are asked for.
const first = messages.data[0];
const said = first && first.role !== "fold" ? first.content[0] : undefined;
check(said?.type === "text" && said.text.startsWith("!tool"), messages);

// Any JSON as an answer.
const output_schema = { type: "array", items: { type: "string" }, minItems: 2 };
const shaped = await of(
    client.POST("/v1/sends", {
        body: { input: "colours", options: { output_schema } },
        params: { query: { wait: "30s" } },
    }),
);
check(Array.isArray(shaped.output), shaped);

// Words for a busy session, in its inbox.
const slow = await of(client.POST("/v1/sends", { body: { input: "!sleep 2s", session_id: session.id } }));
await until(async () => {
    const now = await of(client.GET("/v1/sends/{id}", { params: { path: { id: slow.id } } }));
    return now.status === "running" ? now : undefined;
});
const steer = { input: "more", session_id: session.id, options: { on_busy: "steer" as const } };
const told = await of(client.POST("/v1/sends", { body: steer }));
check(told.inbox_item !== undefined, told);
const inbox = await of(client.GET("/v1/sessions/{id}/inbox", of_session));
const fate = inbox.data.at(-1)?.fate;
check(fate === "pending" || fate === "delivered", inbox);
await show(slow.id);

// A run with a text as its input, and a timer.
const spec = {
    name: "tea",
    root: {
        type: "agent",
        id: "ask",
        spec: { name: "brewer", system_prompt: "Make tea.", tools: [] },
        input: "{{input}}",
    },
};
const run = await of(
    client.POST("/v1/runs", { body: { spec, input: "tea" }, params: { query: { wait: "30s" } } }),
);
check(run.input === "tea" && run.status === "completed", run);
const timer = await of(
    client.POST("/v1/timers", { body: { session_id: session.id, after: "1h", input: "later" } }),
);
check(timer.status === "armed", timer);
console.log("typescript: ok");
