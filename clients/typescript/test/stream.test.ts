import assert from "node:assert/strict";
import { after, before, mock, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Client, Denied, NotFound, SendFailed, Unexpected, Unreachable, type Send, type SendEvent } from "@mainspring/client";
import { bound, fake, hurry, json, problem, stream, type Asked } from "./fake.js";
import { COMPLETED, ID, isSaid, QUEUED, RECORDING, recorded, TEXT } from "./recording.js";

let slow: () => void;
before(() => (slow = hurry()));
after(() => slow());

const DURABLE = RECORDING.flatMap(({ id }) => id ?? []);

function sendOver(answer: (asked: Asked, n: number) => Response | Promise<Response>, options: object = {}): { send: Send; asked: Asked[] } {
  const fetch = fake(answer);
  return { send: new Client({ url: "http://test", fetch, ...options }).send(ID), asked: fetch.asked };
}

async function all(events: AsyncIterable<SendEvent>): Promise<SendEvent[]> {
  const seen: SendEvent[] = [];
  for await (const event of events) seen.push(event);
  return seen;
}

for (const end of ["clean", "abrupt"] as const) {
  test(`a stream whose first connection is cut after any byte, ${end}, tells the same`, async () => {
    const bytes = new TextEncoder().encode(recorded());
    // Every other byte for each of them.
    for (let cut = end === "clean" ? 0 : 1; cut <= bytes.length; cut += 2) {
      let connections = 0;
      const { send } = sendOver(({ path, headers }) => {
        if (!path.endsWith("/events")) return json(QUEUED);
        if (connections++ === 0) return stream([bytes.subarray(0, cut)], end);
        return stream([recorded(headers.get("last-event-id"))], "clean");
      });
      const reading = send.stream();
      const durable: string[] = [];
      for await (const event of reading) {
        if (event.cursor) durable.push(event.cursor);
        assert.ok(isSaid(reading.text), `cut at ${cut}: ${reading.text}`);
        if (event.type === "message.reset") assert.equal(reading.text, "");
      }
      assert.deepEqual(durable, DURABLE, `cut at ${cut}`);
      assert.equal(reading.text, TEXT);
      assert.equal((await reading.answer()).text, TEXT);
    }
  });
}

test("each character comes once, although a new connection begins with all of them", async () => {
  let connections = 0;
  const { send, asked } = sendOver(({ path, headers }) => {
    if (!path.endsWith("/events")) return json(QUEUED);
    // Cut in the middle of the second answer.
    if (connections++ === 0) return stream([recorded().split("event: message.delta").slice(0, -1).join("event: message.delta")], "abrupt");
    return stream([recorded(headers.get("last-event-id"))], "clean");
  });
  const said = { lost: "", kept: "" };
  for await (const event of send.stream()) {
    if (event.type === "message.delta" && event.round === 1) said[event.attempt === 1 ? "lost" : "kept"] += event.text;
  }
  assert.deepEqual(said, { lost: "It was lost", kept: TEXT });
  assert.equal(asked[1]?.headers.get("last-event-id"), "3.0");
});

test("the pieces of a text, joined, are the answer", async () => {
  const { send } = sendOver(() => stream([recorded()], "clean"));
  const pieces = [];
  let text = "";
  const reading = send.stream();
  for await (const piece of reading.textDeltas()) {
    pieces.push(piece);
    text = piece.replace ? piece.text : text + piece.text;
    assert.equal(text, reading.text);
  }
  assert.equal(text, TEXT);
  assert.deepEqual(pieces.slice(0, 3), [{ text: "👋🏽 Let me " }, { text: "look." }, { replace: true, text: "It was lost" }]);
});

test("text whose beginning is missing is not shown, and comes with its message", async () => {
  const events = [
    { event: "message.delta", data: { send_id: ID, round: 0, attempt: 1, offset: 4, text: "middle" } },
    { id: "2.1", event: "message.completed", data: { send_id: ID, role: "assistant", round: 0, content: [{ type: "text", text: "the middle" }] } },
    // What is said late of a message that is stored adds nothing.
    { event: "message.delta", data: { send_id: ID, round: 0, attempt: 1, offset: 10, text: " again" } },
    { id: "3.0", event: "send.completed", data: { ...COMPLETED, output_text: "the middle" } },
  ];
  const { frame } = await import("./server.js");
  const { send } = sendOver(() => stream(events.map(frame), "clean"));
  const reading = send.stream();
  const texts = [];
  for await (const _ of reading) texts.push(reading.text);
  assert.deepEqual(texts, ["", "the middle", "the middle"]);
});

test("text is put together by what its pieces say, and voided by what is said of it", async () => {
  const delta = (text: string, offset: number, attempt = 1, round = 0) => ({ event: "message.delta", data: { send_id: ID, round, attempt, offset, text } });
  const reset = (attempt: number) => ({ event: "message.reset", data: { send_id: ID, round: 0, attempt } });
  let n = 0;
  const resumed = () => ({ id: `${++n}.0`, event: "send.resumed", data: { send_id: ID, id: ID, status: "running", at: "" } });
  const stored = (text: string, round = 0) => ({ id: `${++n}.0`, event: "message.completed", data: { send_id: ID, role: "assistant", round, content: [{ type: "text", text }] } });
  const cases: [{ id?: string; event: string; data: unknown }[], string][] = [
    [[delta("👋🏽 ab", 0), delta("cd", 5)], "👋🏽 abcd"],
    [[delta("abc", 0), delta("abcde", 0)], "abcde"],
    [[delta("abc", 0), delta("cde", 2)], "abcde"],
    [[delta("abc", 0), delta("x", 5)], "abc"],
    [[delta("abc", 0), delta("x", 0, 2), delta("d", 3)], "x"],
    [[delta("abc", 0), reset(2)], ""],
    [[delta("abc", 0), reset(2), delta("x", 0, 2), reset(2)], "x"],
    [[delta("abc", 0), resumed()], ""],
    [[delta("abc", 0), resumed(), delta("x", 0, 2)], "x"],
    [[delta("abc", 0), resumed(), delta("xyz", 0)], "xyz"],
    [[delta("abc", 0), resumed(), delta("d", 3)], "abcd"],
    [[delta("abc", 0), resumed(), delta("z", 9)], ""],
    [[delta("abc", 0), delta("x", 0, 2), resumed(), delta("y", 1, 2)], "xy"],
    [[delta("abc", 0), reset(2), delta("x", 0, 2), resumed()], "x"],
    [[delta("abc", 0), reset(2), delta("x", 0, 2), resumed(), resumed()], ""],
    [[delta("abc", 0), stored("abcd"), resumed(), delta("e", 4)], "abcd"],
    [[stored("abc"), delta("x", 0, 1, 1), delta("late", 3)], "x"],
    [[stored("abc"), stored("", 1)], ""],
  ];
  const { frame } = await import("./server.js");
  for (const [events, text] of cases) {
    const { send } = sendOver((_, connection) => {
      if (connection > 0) return problem(404, "send.not_found", false);
      return stream([events.map(frame).join("")], "abrupt");
    });
    const reading = send.stream();
    await assert.rejects(all(reading), NotFound);
    assert.equal(reading.text, text, JSON.stringify(events));
  }
});

test("leaving the loop detaches and cancels nothing; a later loop goes on", async () => {
  let left = 0;
  const { send, asked } = sendOver(({ headers }) => {
    const after = headers.get("last-event-id");
    return stream(recorded(after).split(/(?<=\n\n)/), "clean", () => (left += 1));
  });
  const reading = send.stream();
  for await (const event of reading) if (event.cursor === "2.1") break;
  assert.equal(left, 1);
  assert.equal(reading.cursor, "2.1");
  assert.equal(reading.text, "👋🏽 Let me look.");
  const rest = await all(reading);
  assert.deepEqual(rest.flatMap(({ cursor }) => cursor ?? []), ["2.2", "3.0", "10.0", "10.1"]);
  assert.deepEqual(asked.map(({ method, headers }) => [method, headers.get("last-event-id")]), [["GET", null], ["GET", "2.1"]]);
  assert.equal(reading.connections, 2);
});

test("another process goes on from a cursor", async () => {
  const { send } = sendOver(({ headers }) => stream([recorded(headers.get("last-event-id"))], "clean"));
  const reading = send.stream({ after: "3.0" });
  assert.deepEqual((await all(reading)).flatMap(({ cursor }) => cursor ?? []), ["10.0", "10.1"]);
  assert.equal((await reading.answer()).text, TEXT);
});

test("a stream from its last event on ends at once, and has the answer", async () => {
  const { send, asked } = sendOver(({ path }) => (path.endsWith("/events") ? stream([], "clean") : json(COMPLETED)));
  const reading = send.stream({ after: "10.1" });
  assert.deepEqual(await all(reading), []);
  assert.equal((await reading.answer()).text, TEXT);
  assert.ok(asked.length <= 4, `${asked.length} requests`);
});

test("a signal ends the stream with its reason", async () => {
  const { send } = sendOver((asked) => bound(stream([recorded().slice(0, 400)], "open"), asked));
  const stop = new AbortController();
  const reading = send.stream({ signal: stop.signal });
  const reason = new Error("the page is closed");
  await assert.rejects(async () => {
    for await (const event of reading) if (event.cursor === "1.0") setTimeout(() => stop.abort(reason), 5);
  }, reason);
});

test("a connection that is silent for 45 s is given up", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    let connections = 0;
    const { send } = sendOver((asked) => {
      if (connections++ === 0) return bound(stream([recorded().slice(0, recorded().indexOf("id: 2.0"))], "open"), asked);
      return stream([recorded(asked.headers.get("last-event-id"))], "clean");
    });
    const reading = all(send.stream());
    for (let turns = 0; turns < 50; turns++) await setImmediate();
    mock.timers.tick(44_999);
    for (let turns = 0; turns < 50; turns++) await setImmediate();
    assert.equal(connections, 1);
    for (let turns = 0; connections < 2 && turns < 50; turns++) {
      mock.timers.tick(1);
      await setImmediate();
    }
    assert.equal((await reading).at(-1)?.type, "send.completed");
  } finally {
    mock.timers.reset();
  }
});

test("a server that is away is waited for as long as the patience lasts, counted from the last event", async () => {
  const { send, asked } = sendOver((_, n) => {
    if (n === 0) return stream([recorded().slice(0, 400)], "abrupt");
    throw new TypeError("fetch failed");
  }, { patience: "40ms" });
  const started = Date.now();
  await assert.rejects(all(send.stream()), Unreachable);
  assert.ok(asked.length > 3 && Date.now() - started < 5000);
});

test("a stream that ends again and again without a word is no answer", async () => {
  const { send } = sendOver(({ path }) => (path.endsWith("/events") ? stream([], "clean") : json(QUEUED)), { patience: "40ms" });
  await assert.rejects(all(send.stream()), (error: Error) => error instanceof Unreachable && /again and again/.test(error.message));
});

test("refusals and pages in place of a stream are errors at once", async () => {
  for (const [response, kind] of [
    [() => problem(401, "auth.invalid", false), Denied],
    [() => new Response("<html>", { headers: { "content-type": "text/html" } }), Unexpected],
    [() => json(COMPLETED), Unexpected],
  ] as const) {
    const { send, asked } = sendOver(response);
    await assert.rejects(all(send.stream()), kind);
    assert.equal(asked.length, 1);
  }
});

test("a server that is not ready is asked again", async () => {
  const { send, asked } = sendOver((_, n) => {
    if (n < 6) return n % 2 ? problem(503, "store.unavailable", true) : problem(429, "limit.exceeded", true);
    return stream([recorded()], "clean");
  });
  assert.equal((await all(send.stream())).length, RECORDING.length);
  assert.equal(asked.length, 7);
});

test("the answer of a failed send is its error", async () => {
  const failed = { ...COMPLETED, status: "failed", output_text: null, error: { code: "llm.timeout", message: "too slow" } };
  const text = `id: 9.0\nevent: send.failed\ndata: ${JSON.stringify(failed)}\n\n`;
  const { send } = sendOver(() => stream([text], "clean"));
  const reading = send.stream();
  assert.equal((await all(reading)).length, 1);
  await assert.rejects(reading.answer(), (error) => error instanceof SendFailed && error.code === "llm.timeout");
});
