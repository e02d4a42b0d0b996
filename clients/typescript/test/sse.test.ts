import assert from "node:assert/strict";
import { test } from "node:test";
import { Frames, type Frame } from "../src/sse.js";

const SAID = [
  "\ufeffid: 1.0\nevent: send.queued\ndata: {\"a\":1}\n\n",
  ": a comment\r\n\r\n",
  "event: message.delta\r\ndata: Grüße 👋🏽\r\ndata:two lines\r\n\r\n",
  "id:2.0\rdata:  one blank more\r\r",
  "event: empty\n\n",
  "data\n\n",
  "retry: 10\nunknown: x\ndata: last\n\n",
  "data: of half a frame\n",
].join("");

const FRAMES: Frame[] = [
  { id: "1.0", event: "send.queued", data: '{"a":1}' },
  { id: undefined, event: "message.delta", data: "Grüße 👋🏽\ntwo lines" },
  { id: "2.0", event: "message", data: " one blank more" },
  { id: undefined, event: "message", data: "" },
  { id: undefined, event: "message", data: "last" },
];

const bytes = new TextEncoder().encode(SAID);

function read(pieces: Uint8Array[]): Frame[] {
  const frames = new Frames();
  return pieces.flatMap((piece) => [...frames.push(piece)]);
}

test("frames are the same wherever their bytes are cut", () => {
  assert.deepEqual(read([bytes]), FRAMES);
  for (let at = 0; at <= bytes.length; at++) {
    assert.deepEqual(read([bytes.subarray(0, at), bytes.subarray(at)]), FRAMES, `cut at ${at}`);
  }
  assert.deepEqual(read(Array.from(bytes, (byte) => Uint8Array.of(byte))), FRAMES);
});
