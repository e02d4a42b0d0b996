// Plays the scenarios that all clients share; see ../../README.md for their format.

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  ApiError, Client, Conflict, Denied, Invalid, Limited, NotFound, SendCancelled, SendFailed, TimeoutError, Unavailable,
  Unexpected, Unreachable, Waiting, type Answer, type Duration, type Question, type Schemas, type Send, type SendEvent,
  type Stream,
} from "@mainspring/client";
import type { LoopArguments } from "./loop.js";
import { frame, Server, Stub, type Request } from "./server.js";

type Json = any;

const { scenarios, recordings } = JSON.parse(
  readFileSync(new URL("../../../scenario.json", import.meta.url), "utf8"),
) as { scenarios: Json[]; recordings: Record<string, Json[]> };

const ID = "snd_00000000000000000000000000000001";
const SEND = {
  id: ID, session_id: "ses_00000000000000000000000000000001", status: "queued", usage: { input_tokens: 0, output_tokens: 0 },
  rounds: 0, attempts: 0, created_at: "2026-01-01T00:00:00.000Z",
};
const COMPLETED = { ...SEND, status: "completed", stop_reason: "end", output_text: "hello", rounds: 1, send_id: ID };

/** A value with what stands for others put in their place. */
function filled(value: Json, further: object = {}): Json {
  if (value === "$send") return { ...SEND, ...further };
  if (value === "$completed") return { ...COMPLETED, ...further };
  if (value === "$id") return ID;
  if (Array.isArray(value)) return value.map((one) => filled(one));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, filled(one)]));
}

const KINDS: Record<string, abstract new (...args: any[]) => Error> = {
  invalid: Invalid, denied: Denied, not_found: NotFound, conflict: Conflict, limited: Limited, unavailable: Unavailable,
  unexpected: Unexpected, unreachable: Unreachable, waiting: Waiting, send_failed: SendFailed,
  send_cancelled: SendCancelled, timeout: TimeoutError,
};

/** A stream while it is read, and what was seen of it. */
class Reading {
  readonly events: SendEvent[] = [];
  #written = "";
  #of = "";
  readonly #iterator: AsyncIterator<SendEvent>;

  constructor(readonly stream: Stream<unknown>) {
    this.#iterator = stream[Symbol.asyncIterator]();
  }

  async read(until?: { event: string; times: number }): Promise<void> {
    for (let seen = 0; !until || seen < until.times; ) {
      const { done, value } = await this.#iterator.next();
      if (done) return;
      this.#check(value);
      if (value.type === until?.event) seen += 1;
    }
  }

  async leave(): Promise<void> {
    await this.#iterator.return!();
  }

  /** What holds of every stream. */
  #check(event: SendEvent): void {
    const last = this.events.findLast((one) => one.cursor !== undefined)?.cursor;
    if (event.cursor !== undefined) {
      assert.equal(this.stream.cursor, event.cursor);
      if (last !== undefined) assert.ok(place(event.cursor) > place(last), `${event.cursor} after ${last}`);
    }
    this.events.push(event);
    const { text } = this.stream;
    const what = `after ${JSON.stringify(event)}`;
    if (event.type === "message.delta") {
      const of = `${event.round} ${event.attempt}`;
      if (of !== this.#of) [this.#of, this.#written] = [of, ""];
      const goesOn = event.offset === [...this.#written].length;
      if (goesOn) this.#written += event.text;
      assert.ok(text === this.#written || (!goesOn && text === ""), what);
    } else if (event.type === "message.reset") {
      assert.equal(text, "", what);
    } else if (event.type === "message.completed" && event.role === "assistant") {
      assert.equal(text, event.content.map((part) => (part.type === "text" ? part.text : "")).join(""), what);
      this.#written = text;
    } else if (event.type === "send.completed") {
      assert.equal(text, event.output_text, what);
    } else {
      assert.ok(text === this.#written || text === "", what);
    }
  }
}

function place(cursor: string): number {
  const [step, n] = cursor.split(".").map(Number);
  return step! * 1e6 + n!;
}

class Loop {
  readonly calls: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<NodeJS.Signals | number | null>;

  constructor(options: Omit<LoopArguments, "calls">, folder: string, name: string) {
    this.calls = join(folder, `${name}.calls`);
    const program = fileURLToPath(new URL("loop.js", import.meta.url));
    this.#child = spawn(process.execPath, [program, JSON.stringify({ ...options, calls: this.calls })], { stdio: ["ignore", "inherit", "inherit"] });
    this.#ended = new Promise((resolve) => this.#child.once("exit", (code, signal) => resolve(signal ?? code)));
  }

  get made(): string[] {
    return existsSync(this.calls) ? readFileSync(this.calls, "utf8").trim().split("\n") : [];
  }

  died(): Promise<NodeJS.Signals | number | null> {
    return this.#ended;
  }

  async stop(): Promise<void> {
    this.#child.kill("SIGTERM");
    assert.equal(await this.#ended, 0);
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

/** Plays one scenario. */
class Player {
  readonly sends = new Map<string, Send<unknown>>();
  readonly sessions = new Map<string, string>();
  readonly readings = new Map<string, Reading>();
  readonly questions = new Map<string, Question>();
  readonly loops = new Map<string, Loop>();

  constructor(
    readonly client: Client, readonly folder: string, readonly server: Server | undefined,
    readonly access: { url: string; key?: string }, readonly revoke: () => Promise<void>,
  ) {}

  async step(step: Json): Promise<void> {
    const { expect } = step;
    let outcome: { answer?: Answer<unknown>; send?: Send<unknown>; reading?: Reading; accepted?: boolean } | undefined;
    try {
      outcome = await this.#do(step);
    } catch (error) {
      if (!expect?.raises) throw error;
      this.#raised(error, expect);
      return;
    }
    assert.ok(!expect?.raises || expect.last, `${JSON.stringify(step)} raises nothing`);
    if (!expect || Array.isArray(expect) || !outcome) return;
    const { answer, send, reading, accepted } = outcome;
    if (expect.same_as) assert.equal(send?.id, this.sends.get(expect.same_as)?.id);
    if ("accepted" in expect) assert.equal(accepted, expect.accepted);
    if (answer) this.#answered(answer, expect);
    if (reading) await this.#read(reading, expect);
  }

  #raised(error: unknown, expect: Json): void {
    assert.ok(error instanceof KINDS[expect.raises]!, `${error} is not ${expect.raises}`);
    if (expect.status) assert.equal((error as ApiError).status, expect.status);
    if (expect.code) assert.equal((error as ApiError).code, expect.code);
    if (expect.pointers) assert.deepEqual((error as ApiError).errors.map((one) => one.pointer), expect.pointers);
  }

  #answered(answer: Answer<unknown>, expect: Json): void {
    if (expect.status) assert.equal(answer.send.status, expect.status);
    if (expect.text) assert.equal(answer.text, expect.text);
    if (expect.text_has) assert.ok(answer.text.includes(expect.text_has), answer.text);
    for (const member of expect.output_has ?? []) assert.ok(member in (answer.output as object), JSON.stringify(answer));
  }

  async #read({ stream, events }: Reading, expect: Json): Promise<void> {
    if (expect.last) assert.equal(events.at(-1)?.type, expect.last);
    if (expect.reconnects) assert.ok(stream.connections > 1);
    if (expect.durable_once) {
      const ids = events.flatMap(({ cursor }) => cursor ?? []);
      assert.deepEqual(ids, [...new Set(ids)]);
      assert.deepEqual(ids, Object.values(recordings).flat().flatMap(({ id }) => id ?? []));
    }
    if (expect.raises) await assert.rejects(stream.answer(), (error) => (this.#raised(error, expect), true));
    if (expect.text === undefined) return;
    assert.equal(stream.text, expect.text);
    assert.equal((await stream.answer()).text, expect.text);
  }

  async #do(step: Json): Promise<{ answer?: Answer<unknown>; send?: Send<unknown>; reading?: Reading; accepted?: boolean } | undefined> {
    const { as } = step;
    const named = () => (step.send_id ? this.client.send(step.send_id) : this.sends.get(step.send)!);
    switch (step.do) {
      case "send": {
        const id = this.sessions.get(step.session);
        const session = this.client.session(id ? { id } : { agent: step.agent });
        const { output, key } = step;
        const send = await session.send(step.input, { ...step.options, key, ...(output ? { output } : {}) });
        if (as) this.sends.set(as, send);
        if (as && session.id) this.sessions.set(as, session.id);
        return { send };
      }
      case "wait":
        return { answer: await named().wait({ timeout: (step.timeout ?? "60s") as Duration }) };
      case "stream": {
        const reading = new Reading(named().stream({ after: this.readings.get(step.after)?.stream.cursor }));
        if (as) this.readings.set(as, reading);
        await reading.read(step.until);
        return { reading };
      }
      case "read": {
        const reading = this.readings.get(step.stream)!;
        await reading.read(step.until);
        return { reading };
      }
      case "leave":
        await this.readings.get(step.stream)!.leave();
        return undefined;
      case "cancel":
        await named().cancel();
        await assert.rejects(named().wait({ timeout: "30s" }), SendCancelled);
        return undefined;
      case "questions": {
        const questions = await named().questions();
        const shown = questions.map(({ name, wants, arguments: args }) => ({ name, wants, arguments: args }));
        for (const [n, one] of (step.expect as Json[]).entries()) assert.deepEqual({ ...shown[n], ...one }, shown[n]);
        assert.equal(shown.length, step.expect.length);
        if (as) this.questions.set(as, questions[0]!);
        return undefined;
      }
      case "approve":
      case "deny": {
        const question = (await named().questions()).find(({ wants }) => wants === "permission")!;
        const taken = step.do === "approve" ? await question.approve({ note: step.note }) : await question.deny(step.note);
        return { accepted: taken === "accepted" };
      }
      case "answer":
        return { accepted: (await this.questions.get(step.question)!.answer(step.value)) === "accepted" };
      case "loop": {
        const { tool } = step;
        this.loops.set(as, new Loop({ ...this.access, tool, lease: step.lease }, this.folder, as));
        return undefined;
      }
      case "died": {
        const loop = this.loops.get(step.loop)!;
        assert.equal(await loop.died(), "SIGKILL");
        assert.equal(loop.made.length, step.expect.calls);
        return undefined;
      }
      case "stop": {
        const loop = this.loops.get(step.loop)!;
        await loop.stop();
        const { calls, same_call_as } = step.expect ?? {};
        if (calls !== undefined) assert.equal(loop.made.length, calls);
        if (same_call_as) assert.deepEqual(loop.made, this.loops.get(same_call_as)!.made);
        return undefined;
      }
      case "kill":
        await this.server!.kill();
        return undefined;
      case "start":
        await this.server!.start();
        return undefined;
      case "revoke":
        await this.revoke();
        return undefined;
      default:
        throw new Error(`nobody knows how to ${step.do}`);
    }
  }
}

/** Answers as a stub's next entry says. */
function answerAs(entry: Json, response: ServerResponse): void {
  if (!entry) return void response.writeHead(500).end();
  if (entry.cut === "all") return void response.destroy();
  const isStream = entry.events !== undefined;
  const { status = 200, problem } = entry;
  const content =
    isStream ? entry.events.map((event: Json) => frame(filled(event))).join("")
    : problem ? JSON.stringify({ type: "/errors/x", title: "A problem", detail: "a problem", status, ...problem })
    : entry.json !== undefined ? JSON.stringify(filled(entry.json, entry.with))
    : (entry.body ?? "");
  const type = isStream ? "text/event-stream" : problem ? "application/problem+json" : "application/json";
  const bytes = Buffer.from(content);
  response.writeHead(status, { "content-type": type, ...(isStream ? {} : { "content-length": bytes.length }), ...entry.headers });
  if (entry.cut !== "half") return void response.end(bytes);
  response.write(bytes.subarray(0, bytes.length / 2), () => response.destroy());
}

/** Serves a recording, whose first connection is cut after so many events. */
function replay(events: Json[], cut: number, how: "clean" | "abrupt"): (request: Request, response: ServerResponse) => void {
  let connections = 0;
  return ({ path, headers }, response) => {
    if (!path.endsWith("/events")) return answerAs({ json: "$send" }, response);
    const after = headers["last-event-id"];
    const from = after === undefined ? 0 : events.findIndex(({ id }) => id === after) + 1;
    const isFirst = connections++ === 0;
    const said = isFirst ? events.slice(from, from + cut) : events.slice(from);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const text = said.map((one) => frame({ ...one, data: filled(one.data, one.with) })).join("");
    if (!isFirst || how === "clean") response.end(text);
    else response.write(`${text}: a comment\n\n`, () => response.destroy());
  };
}

async function play(steps: Json[], player: Player): Promise<void> {
  try {
    for (const step of steps) await player.step(step);
  } finally {
    for (const reading of player.readings.values()) await reading.leave();
    for (const loop of player.loops.values()) loop.kill();
  }
}

async function playStub(scenario: Json): Promise<void> {
  const { stub: entries } = scenario;
  const stub = await Stub.start((_, response, n) => answerAs(entries[n], response));
  try {
    await play(scenario.steps, new Player(new Client({ url: stub.url }), "", undefined, { url: stub.url }, async () => {}));
    for (const [n, expected] of (scenario.requests ?? []).entries()) {
      const { method, path, headers, at } = stub.requests[n]!;
      assert.equal(method, expected.method);
      assert.equal(path, expected.path);
      const before = stub.requests[n - 1];
      if (expected.same_key) {
        assert.ok(headers["idempotency-key"]);
        assert.equal(headers["idempotency-key"], before?.headers["idempotency-key"]);
      }
      if (expected.last_event_id) assert.equal(headers["last-event-id"], expected.last_event_id);
      if (expected.later_by_ms) assert.ok(at - before!.at >= expected.later_by_ms);
    }
    if (scenario.requests) assert.equal(stub.requests.length, scenario.requests.length);
  } finally {
    stub.close();
  }
}

async function playReplay(scenario: Json): Promise<void> {
  const events = recordings[scenario.replay]!;
  for (const how of scenario.cut_after_each as ("clean" | "abrupt")[]) {
    for (let cut = 0; cut <= events.length; cut++) {
      const stub = await Stub.start(replay(events, cut, how));
      try {
        await play(scenario.steps, new Player(new Client({ url: stub.url }), "", undefined, { url: stub.url }, async () => {}));
      } finally {
        stub.close();
      }
    }
  }
}

async function playReal(scenario: Json, shared: Server): Promise<void> {
  const isKilled = scenario.steps.some((step: Json) => step.do === "kill");
  const isOwn = isKilled || typeof scenario.key === "object";
  const server = isOwn ? await Server.start() : shared;
  const { url } = server;
  try {
    let key: string | undefined = typeof scenario.key === "string" ? scenario.key : undefined;
    let revoke = async () => {};
    if (typeof scenario.key === "object") {
      const root = await new Client({ url }).api.createKey({ body: { name: "root", scopes: ["admin"] } as Schemas["NewKeyBody"] });
      const admin = new Client({ url, key: root.key! });
      const own = await admin.api.createKey({ body: { name: "own", ...scenario.key } });
      key = own.key!;
      revoke = async () => admin.api.revokeKey({ id: own.id });
    }
    const access = key === undefined ? { url } : { url, key };
    const folder = join(server.folder, scenario.name.replace(/\W/g, "-"));
    (await import("node:fs")).mkdirSync(folder, { recursive: true });
    await play(scenario.steps, new Player(new Client(access), folder, server, access, revoke));
  } finally {
    if (isOwn) await server.close();
  }
}

let shared: Server;
before(async () => (shared = await Server.start()));
after(() => shared.close());

for (const scenario of scenarios) {
  test(scenario.name, async () => {
    if (scenario.stub) await playStub(scenario);
    else if (scenario.replay) await playReplay(scenario);
    else await playReal(scenario, shared);
  });
}
