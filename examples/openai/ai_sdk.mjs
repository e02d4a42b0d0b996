// Vercel's AI SDK, over responses and over chat completions: answers, streams, a tool, a typed answer.
//
//     npm install ai @ai-sdk/openai zod
//     export OPENAI_BASE_URL=http://127.0.0.1:7464/v1 OPENAI_API_KEY=msk_…

import assert from "node:assert/strict";
import { openai } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const MODEL = "demo";
const CALL = '!tool weather {"place": "Potsdam"}';

const weather = tool({
    description: "The weather at a place.",
    inputSchema: z.object({ place: z.string() }),
    execute: async ({ place }) => `sun in ${place}, 21 degrees`,
});

async function use(model) {
    const answer = await generateText({ model, system: "Be brief.", prompt: "hello" });
    assert.equal(answer.text, "hello");
    assert.ok(answer.usage.outputTokens > 0);

    const streamed = streamText({ model, prompt: "one two three !stream 6x20ms", onError: ({ error }) => { throw error; } });
    const pieces = [];
    for await (const piece of streamed.textStream) pieces.push(piece);
    assert.ok(pieces.length > 1, JSON.stringify(pieces));
    assert.equal(pieces.join(""), await streamed.text);

    // The SDK runs the tool and sends its result.
    const tools = { weather };
    const called = await generateText({ model, tools, prompt: CALL, stopWhen: stepCountIs(3) });
    assert.match(called.text, /sun in Potsdam/);
    assert.equal(called.steps.length, 2);
    const inSteps = streamText({ model, tools, prompt: CALL, stopWhen: stepCountIs(3) });
    let told = "";
    for await (const piece of inSteps.textStream) told += piece;
    assert.match(told, /sun in Potsdam/);

    const messages = [{ role: "user", content: CALL }, ...called.response.messages, { role: "user", content: "thanks" }];
    assert.equal((await generateText({ model, tools, messages })).text, "thanks");

    const schema = z.object({ place: z.string(), degrees: z.number() });
    const typed = await generateText({ model, prompt: "fit", output: Output.object({ schema }) });
    schema.parse(typed.output);
}

await use(openai(MODEL));
await use(openai.chat(MODEL));

// Each turn has only what is new.
const first = await generateText({ model: openai(MODEL), prompt: "hi" });
const previousResponseId = first.providerMetadata.openai.responseId;
const second = await generateText({
    model: openai(MODEL), prompt: "and on", providerOptions: { openai: { previousResponseId } },
});
assert.equal(second.text, "and on");
