// Reads a response with OpenAI's own client, unmodified, while the server dies. Prints `now` when that may happen.
// Argument: the server's address.

import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import OpenAI from "openai";

const server = process.argv[2];
const client = new OpenAI({ baseURL: `${server}/v1`, apiKey: "sk-no-key-is-needed", maxRetries: 0 });
const words = "whoever reads this hears each of these words once and none of them twice";
const begun = await client.responses.create({ model: "demo", input: `${words} !stream 40x50ms`, background: true });
const texts = [], ends = [];
let last, final, asked = false, cuts = 0;

async function read(events) {
    for await (const event of events) {
        assert.ok(last === undefined || event.sequence_number > last, JSON.stringify([last, event]));
        last = event.sequence_number;
        if (event.type === "response.output_item.added") {
            texts[event.output_index] = "";
        } else if (event.type === "response.output_text.delta") {
            texts[event.output_index] += event.delta;
            if (!asked && texts[0].length > 20) {
                asked = true;
                console.log("now");
            }
        } else if (event.type === "response.output_item.done") {
            ends[event.output_index] = event.item.status;
        } else if (event.type === "response.completed") {
            final = event.response;
        }
    }
    assert.ok(final, "a stream that is not whole ended as if it were");
}

const until = Date.now() + 120_000;
while (!final) {
    assert.ok(Date.now() < until, JSON.stringify([texts, ends]));
    try {
        const after = last === undefined ? {} : { starting_after: last };
        await read(await client.responses.retrieve(begun.id, { stream: true, ...after }));
    } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        // The connection broke, or the server is not there yet.
        cuts += 1;
        await setTimeout(100);
    }
}

assert.ok(cuts > 0, "nothing died");
const whole = texts.filter((_, index) => ends[index] === "completed").join("");
const said = final.output.map((item) => item.content[0].text).join("");
assert.ok(whole === said && whole !== "", JSON.stringify([texts, ends, final]));
const native = await fetch(`${server}/v1/sends/${begun.id.replace("resp_", "snd_")}`);
assert.equal((await native.json()).output_text, whole);
assert.equal((await client.responses.retrieve(begun.id)).output_text, whole);
