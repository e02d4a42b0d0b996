// What the console takes, on a machine that does nothing else: `npm run measure [SESSIONS]`, with MAINSPRING_BIN.

import { gzipSync } from "node:zlib";

import { Server, launch, page, whenDrawn } from "./kit.mjs";

const SESSIONS = Number(process.argv[2] ?? 100_000);
const SLOWER = 4;
const MESSAGES = 200;
const FRAMES = 240;

function at(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return Math.round(10 * sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]) / 10;
}

const [server, browser] = await Promise.all([Server.start(), launch()]);
let size = 0;
for (const path of ["/", "/console/app.js", "/console/app.css"]) {
  const response = await fetch(`${server.url}${path}`);
  size += gzipSync(Buffer.from(await response.arrayBuffer()), { level: 9 }).length;
}
console.log(`compressed: ${size} bytes`);

await server.post("/v1/sends?wait=20s", { input: "hello" });
const paints = [];
for (let n = 0; n < 5; n += 1) {
  const shown = await page(browser, server, "about:blank#");
  const session = await shown.context().newCDPSession(shown);
  await session.send("Network.enable");
  await session.send("Network.setCacheDisabled", { cacheDisabled: true });
  await session.send("Emulation.setCPUThrottlingRate", { rate: SLOWER });
  await shown.goto(`${server.url}/#/`);
  await shown.getByText("Newest sends").waitFor();
  const found = await shown.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0);
  const full = await shown.evaluate(() => performance.now());
  paints.push([found, full]);
  await shown.context().close();
}
console.log(`first paint, CPU ${SLOWER} times slower: median ${at(paints.map(([first]) => first), 0.5)} ms; with its content ${at(paints.map(([, full]) => full), 0.5)} ms`);

const { id } = await server.post("/v1/sessions", {});
const shown = await page(browser, server, `#/sessions/${id}`);
await shown.getByText("Nothing was said yet").waitFor();
const late = [];
for (let n = 0; n < MESSAGES; n += 1) {
  await shown.getByLabel("Message", { exact: true }).fill(`number ${n} of all`);
  const drawn = whenDrawn(shown, `number ${n} of all`);
  await shown.getByLabel("Message", { exact: true }).press("Control+Enter");
  const when = await drawn;
  const { data } = await server.get(`/v1/sends?session_id=${id}&limit=1`);
  late.push(when - Date.parse(data[0].finished_at));
}
console.log(`stored to drawn, ${MESSAGES} answers: median ${at(late, 0.5)} ms, p99 ${at(late, 0.99)} ms`);
await shown.context().close();

for (let n = 0; n < SESSIONS; n += 1_000) {
  await server.post("/v1/sends:batch", { sends: Array.from({ length: Math.min(1_000, SESSIONS - n) }, () => ({ input: "x" })) });
}
await server.until("/v1/queue", ({ data }) => data.every((pool) => pool.ready + pool.running === 0)).catch(() => undefined);
const list = await page(browser, server, "#/sessions");
await list.locator("tbody tr").first().waitFor();
const began = Date.now();
while (Date.now() - began < 300_000) {
  await list.locator(".box").evaluate((box) => box.scrollTo(0, box.scrollHeight));
  await list.waitForTimeout(20);
  if (!(await list.locator(".foot").innerText()).includes("more")) break;
}
console.log(`${await list.locator(".foot").innerText()} after ${Math.round((Date.now() - began) / 1_000)} s of scrolling to the end`);
const frames = await list.locator(".box").evaluate(async (box, frames) => {
  const took = [];
  let last = performance.now();
  for (let n = 0; n < frames; n += 1) {
    box.scrollTop -= 900;
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const now = performance.now();
    took.push(now - last);
    last = now;
  }
  return took;
}, FRAMES);
console.log(`frames while it scrolls: median ${at(frames, 0.5)} ms, p95 ${at(frames, 0.95)} ms, worst ${at(frames, 1)} ms`);
await browser.close();
await server.close();
process.exit(0);
