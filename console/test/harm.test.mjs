// What goes wrong around the console, and what others try with it.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import { Server, launch, page } from "./kit.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

const ROOT = "a-root-key-of-some-length-0123456789";
/** A server whose every request needs a key. */
const KEYED = { MAINSPRING_ROOT_KEY: ROOT, MAINSPRING_SECRETS_KEY: Buffer.alloc(32, "a").toString("base64") };

const HOSTILE = [
  `<img src=x onerror="window.harmed=1">`,
  `<script>window.harmed=1</script>`,
  `<svg onload="window.harmed=1"><a xlink:href="javascript:window.harmed=1">x</a></svg>`,
  `[click](javascript:window.harmed=1) ![x](javascript:window.harmed=1) [y](data:text/html,<script>window.harmed=1</script>)`,
  `\u001b[31mred\u001b[0m \u001b]0;title\u0007 \u202egnp.exe\u202c`,
  `| a | b |\n|---|---|\n| <b onmouseover=window.harmed=1>x</b> | \`<i>\` |`,
];

test("hostile texts in every place are shown as they are, and do nothing", async () => {
  const server = await Server.start();
  const all = HOSTILE.join("\n\n");
  const sent = await server.post("/v1/sends?wait=20s", { input: all, session: { metadata: { [HOSTILE[0]]: HOSTILE[1] }, agent: { name: HOSTILE[0], system_prompt: all } } });
  await server.post("/v1/sends?wait=20s", { input: `!tool ask_person ${JSON.stringify({ question: all, options: [HOSTILE[0], HOSTILE[3]] })}`, session: { agent: { tools: ["core"] } } });
  await server.post("/v1/memories", { namespace: "user/1", text: all });
  await server.post("/v1/runs?wait=20s", { spec: { name: HOSTILE[0], root: { type: "agent", id: "a", input: all, spec: { name: "x", system_prompt: "x", tools: [] } } } });
  const shown = await page(browser, server, "#/");
  const views = ["#/", "#/sessions", `#/sessions/${sent.session_id}`, `#/sessions/${sent.session_id}?tab=JSON`, "#/inbox", "#/sends", "#/runs", "#/memory", "#/play"];
  for (const view of views) {
    await shown.goto(`${server.url}/${view}`);
    await shown.waitForTimeout(400);
    const found = await shown.evaluate(() => ({
      harmed: window.harmed,
      images: document.images.length,
      links: [...document.links].map((link) => link.protocol).filter((scheme) => !["http:", "https:", "mailto:"].includes(scheme)),
      scripts: [...document.scripts].length,
      controls: /[\u0000-\u0008\u001b\u202e]/.test(document.body.innerText),
    }));
    assert.deepEqual(found, { harmed: undefined, images: 0, links: [], scripts: 1, controls: false }, view);
  }
  assert.deepEqual(shown.faults, []);
  await shown.context().close();
  await server.close();
});

test("a server that dies in the middle of an answer is told, and everything goes on when it is back", async () => {
  const server = await Server.start();
  const session = await server.post("/v1/sessions", {});
  await server.post(`/v1/sessions/${session.id}/sends`, { input: "!stream 60x100ms" });
  const shown = await page(browser, server, `#/sessions/${session.id}`);
  await shown.locator(".message.live").waitFor();
  await server.kill();
  await shown.getByText(/no answer for/).waitFor();
  await server.start();
  await shown.locator(".live.good").waitFor();
  await server.until(`/v1/sends?session_id=${session.id}`, (page) => page.data[0].status === "completed");
  await shown.getByRole("list", { name: "Timeline" }).getByText("completed").waitFor();
  assert.equal(await shown.locator(".message.assistant").count(), 1);
  assert.equal(await shown.locator(".message.live").count(), 0);
  const { data } = await server.get(`/v1/sessions/${session.id}/messages`);
  assert.equal((await shown.locator(".message.assistant .md").innerText()).trim(), data[1].content[0].text.trim());
  assert.deepEqual(shown.faults, []);
  await shown.context().close();
  await server.close();
});

test("a tab that slept shows what happened meanwhile as soon as it wakes", async () => {
  const server = await Server.start();
  const shown = await page(browser, server, "#/sessions");
  await shown.getByText("There is no session yet").waitFor();
  const hide = (hidden) =>
    shown.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  let asked = 0;
  shown.on("request", (request) => (asked += Number(request.url().includes("/v1/sessions?"))));
  await server.post("/v1/sessions", { metadata: { late: "1" } });
  await shown.waitForTimeout(3_000);
  assert.ok(asked <= 1, `a hidden tab asked ${asked} times`);
  await hide(false);
  await shown.getByText("late=1").waitFor();
  await shown.context().close();
  await server.close();
});

test("a clock that is off by a day does not make ages wrong", async () => {
  const server = await Server.start();
  await server.post("/v1/sends?wait=20s", { input: "hi" });
  const shown = await page(browser, server);
  await shown.addInitScript(() => {
    const real = Date.now;
    Date.now = () => real() + 86_400_000;
  });
  await shown.goto(`${server.url}/#/sends`);
  await shown.reload();
  await shown.locator("tbody tr").first().waitFor();
  await shown.waitForTimeout(1_200);
  assert.match(await shown.locator("tbody tr").first().innerText(), /now|\d s ago|\d\.\d s ago/);
  await shown.context().close();
  await server.close();
});

test("a session of many messages opens at its end and is read backwards", async () => {
  const server = await Server.start();
  const lines = [];
  const { session_id } = await server.post("/v1/sends?wait=20s", { input: "first of all" });
  for (let n = 0; n < 150; n += 50) {
    const batch = await server.post("/v1/sends:batch", { sends: Array.from({ length: 50 }, (_, k) => ({ session_id, input: `line ${n + k}` })) });
    lines.push(...batch.results);
  }
  await server.until(`/v1/sessions/${session_id}`, (session) => session.messages === 302 && session.status === "idle");
  const shown = await page(browser, server, `#/sessions/${session_id}`);
  await shown.locator(".message.assistant").getByText("line 149", { exact: true }).waitFor();
  assert.equal(await shown.getByText("first of all").count(), 0);
  await shown.getByRole("button", { name: "Earlier messages" }).click();
  await shown.getByText("first of all").first().waitFor();
  assert.equal(await shown.locator(".message").count(), 302);
  assert.deepEqual(shown.faults, []);
  await shown.context().close();
  await server.close();
});

test("a list of thousands scrolls through all of them with few elements", async () => {
  const server = await Server.start();
  for (let n = 0; n < 3; n += 1) {
    await server.post("/v1/sends:batch", { sends: Array.from({ length: 1000 }, () => ({ input: "x" })) });
  }
  const shown = await page(browser, server, "#/sessions");
  await shown.locator("tbody tr").first().waitFor();
  for (const end = Date.now() + 30_000; Date.now() < end; ) {
    await shown.locator(".box").evaluate((box) => box.scrollTo(0, box.scrollHeight));
    await shown.waitForTimeout(60);
    if ((await shown.locator(".foot").innerText()) === "3000 loaded") break;
  }
  assert.equal(await shown.locator(".foot").innerText(), "3000 loaded");
  assert.ok((await shown.locator("tbody tr").count()) < 80);
  await shown.context().close();
  await server.close();
});

test("with keys, one signs in; the key is out of reach of scripts, and a reading one cannot act", async () => {
  const server = await Server.start(KEYED);
  const sent = await server.post("/v1/sends?wait=20s", { input: "hi" }, ROOT);
  const reader = await server.post("/v1/keys", { name: "reader", scopes: ["read"] }, ROOT);
  const shown = await page(browser, server, "#/sends");
  await shown.getByLabel("API key").fill("msk_wrong");
  await shown.getByRole("button", { name: "Sign in" }).click();
  await shown.getByRole("alert").getByText(/unknown|invalid|refused|key/).first().waitFor();
  await shown.getByLabel("API key").fill(reader.key);
  await shown.getByRole("button", { name: "Sign in" }).click();
  await shown.locator("tbody tr").first().waitFor();
  const reach = await shown.evaluate(() => JSON.stringify([document.cookie, Object.entries(localStorage), Object.entries(sessionStorage)]));
  assert.ok(!reach.includes(reader.key) && !reach.includes("__Host"), reach);
  const cookies = await shown.context().cookies();
  const cookie = cookies.find((one) => one.name === "__Host-mainspring");
  assert.ok(cookie?.httpOnly && cookie.secure && cookie.sameSite === "Strict");
  assert.ok(!cookie.value.includes(reader.key));
  // What it cannot do is not offered.
  await shown.goto(`${server.url}/#/sessions`);
  await shown.locator("tbody tr").first().waitFor();
  assert.equal(await shown.getByRole("button", { name: "New session" }).count(), 0);
  // Nor is anything asked for that would be refused.
  const refused = [];
  shown.on("response", (response) => response.status() === 403 && refused.push(response.url()));
  const views = ["", "sessions", `sessions/${sent.session_id}`, "inbox", "sends", "runs", "timers", "agents", "workers", "memory", "webhooks", "usage", "tools", "admin"];
  for (const view of views) {
    await shown.goto(`${server.url}/#/${view}`);
    await shown.locator("h1").first().waitFor();
    await shown.waitForTimeout(300);
    const buttons = await shown.locator("main").getByRole("button").allInnerTexts();
    const acts = buttons.filter((text) => /^(Send|Delete|Cancel|Retry|Fork|Close|Pause|Publish|New|Remember|Run a|Fire|Change|Answer|Approve|Revoke|Rotate|forget|redeliver|pause|fork here|edit)/.test(text));
    assert.deepEqual(acts, [], `#/${view}`);
  }
  assert.deepEqual(refused, []);
  await shown.reload();
  await shown.locator("h1").first().waitFor();
  // A key that was revoked ends the session.
  await server.api("DELETE", `/v1/keys/${reader.id}`, undefined, ROOT);
  await shown.getByLabel("API key").waitFor();
  await shown.context().close();
  await server.close();
});

for (const [who, name] of [["a key", "key"], ["the root key", "root"]]) {
  test(`signing out ends what ${who} began`, async () => {
    const server = await Server.start(KEYED);
    const admin = await server.post("/v1/keys", { name: "admin", scopes: ["admin"] }, ROOT);
    const shown = await page(browser, server, "");
    await shown.getByLabel("API key").fill(name === "root" ? ROOT : admin.key);
    await shown.getByRole("button", { name: "Sign in" }).click();
    await shown.getByRole("button", { name: "Sign out" }).waitFor();
    await shown.reload();
    await shown.getByRole("button", { name: "Sign out" }).click();
    await shown.getByLabel("API key").waitFor();
    assert.equal((await shown.context().cookies()).length, 0);
    await shown.reload();
    await shown.getByLabel("API key").waitFor();
    await shown.context().close();
    await server.close();
  });
}

test("a foreign page can neither frame the console, nor read it, nor act with its cookie", async () => {
  const server = await Server.start(KEYED);
  const admin = await server.post("/v1/keys", { name: "admin", scopes: ["admin"] }, ROOT);
  const foreign = createServer((_, response) => {
    response.setHeader("content-type", "text/html");
    response.end(`<iframe src="${server.url}/"></iframe>`);
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => foreign.once("listening", resolve));
  foreign.unref();
  const shown = await page(browser, server, "");
  await shown.getByLabel("API key").fill(admin.key);
  await shown.getByRole("button", { name: "Sign in" }).click();
  await shown.getByRole("heading").first().waitFor();
  const other = await shown.context().newPage();
  await other.goto(`http://127.0.0.1:${foreign.address().port}/`);
  await other.waitForTimeout(500);
  for (const frame of other.frames().slice(1)) {
    assert.ok(!(await frame.content().catch(() => "")).includes('id="app"'), "the console is in a frame");
  }
  const tried = await other.evaluate(async (url) => {
    const attempt = (path, init) => fetch(`${url}${path}`, { credentials: "include", ...init }).then((response) => response.status, () => "blocked");
    return {
      read: await attempt("/v1/sessions"),
      write: await attempt("/v1/sessions", { method: "POST", body: "{}", headers: { "content-type": "text/plain" } }),
      marked: await attempt("/v1/sessions", { headers: { "mainspring-console": "1" } }),
      signIn: await attempt("/console/session", { method: "POST", mode: "no-cors", body: '{"key":"x"}' }),
    };
  }, server.url);
  assert.deepEqual([tried.read, tried.write, tried.marked], ["blocked", "blocked", "blocked"]);
  const { data } = await server.get("/v1/sessions", admin.key);
  assert.deepEqual(data, []);
  foreign.close();
  await shown.context().close();
  await server.close();
});
