// Plays openai.json with OpenAI's own client, unmodified. Argument: the server's address.

import { readFile } from "node:fs/promises";
import { isDeepStrictEqual } from "node:util";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "sk-no-key-is-needed" });
const saved = {};

function check(holds, what) {
    if (!holds) throw new Error(typeof what === "string" ? what : JSON.stringify(what));
}

function at(value, path) {
    for (const name of path.split(".")) {
        value = Array.isArray(value) ? value.at(Number(name)) : value?.[name];
    }
    return value;
}

function resolved(value) {
    if (Array.isArray(value)) return value.map(resolved);
    if (typeof value === "string" && value.startsWith("$")) {
        const parts = value.split("+").map((part) => at(saved, part.replace("$", "")));
        return parts.length === 1 ? parts[0] : parts.join("");
    }
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, resolved(inner)]));
}

async function stream(events, leaveAfter) {
    const seen = { types: [], text: "" };
    for await (const event of events) {
        seen.types.push(event.type);
        seen.cursor = event.sequence_number;
        if (event.type === "response.output_text.delta") seen.text += event.delta;
        if (event.response) [seen.response, seen.id] = [event.response, event.response.id];
        if (seen.types.length === leaveAfter) break;
    }
    [seen.first, seen.last] = [seen.types[0], seen.types.at(-1)];
    const messages = seen.response.output.filter((item) => item.type === "message");
    const said = messages.map((item) => item.content[0].text).join("");
    seen.whole = said === seen.text && said !== "";
    return seen;
}

async function helper(events) {
    let text = "";
    for await (const event of events) {
        if (event.type === "response.output_text.delta") text += event.delta;
    }
    const final = await events.finalResponse();
    return { ...final, is_like_text: final.output_text === text && text !== "" };
}

async function chunks(events) {
    const seen = { text: "", has_usage: false };
    for await (const chunk of events) {
        for (const choice of chunk.choices) {
            seen.text += choice.delta.content ?? "";
            seen.finish_reason = choice.finish_reason ?? seen.finish_reason;
        }
        seen.has_usage ||= chunk.usage != null;
    }
    return seen;
}

async function play(step) {
    const names = step.call.split(".").map((name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()));
    const method = names.pop();
    const holder = names.reduce((holder, name) => holder[name], client);
    const args = step.args ? [resolved(step.args)] : [];
    const result = await holder[method](...resolved(step.path ?? []), ...args);
    if (step.mode === "stream") return stream(result, step.leave_after);
    if (step.mode === "helper") return helper(result);
    if (step.mode === "chunks") return chunks(result);
    return result;
}

const file = new URL("openai.json", import.meta.url);
for (const step of JSON.parse(await readFile(file, "utf8"))) {
    let result;
    try {
        result = await play(step);
    } catch (refusal) {
        check(refusal instanceof OpenAI.APIError && step.refused, `${step.name}: ${refusal.stack}`);
        for (const [name, expected] of Object.entries(step.refused)) {
            check(refusal[name] === expected, `${step.name}: ${name} is ${refusal[name]}`);
        }
        check(refusal.requestID, step.name);
        continue;
    }
    check(!step.refused, `${step.name}: was not refused`);
    for (const [path, expected] of Object.entries(step.expect ?? {})) {
        const text = result.output_text ?? "";
        if (path === "contains") check(text.includes(expected), `${step.name}: ${text}`);
        else if (path === "is_json_with") check(expected in JSON.parse(text), `${step.name}: ${text}`);
        else check(isDeepStrictEqual(at(result, path), resolved(expected)), `${step.name}: ${path} is ${at(result, path)}`);
    }
    if (step.as) saved[step.as] = result;
}
check(/^resp_[0-9a-f]{32}$/.test(saved.first.id), saved.first);
