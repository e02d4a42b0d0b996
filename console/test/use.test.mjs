// What people do with the console, on the real binary.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";

import { Server, fill, launch, page, whenDrawn } from "./kit.mjs";

let server;
let browser;
let made;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
  made = await fill(server);
});

after(async () => {
  await browser?.close();
  await server?.close();
});

async function ends(shown) {
  assert.deepEqual(shown.faults, []);
  await shown.context().close();
}

test("a message is sent, its answer streams, and the timeline has its round", async () => {
  const session = await server.post("/v1/sessions", {});
  const shown = await page(browser, server, `#/sessions/${session.id}`);
  await shown.getByLabel("Message", { exact: true }).fill("!stream 30x30ms");
  await shown.getByLabel("Message", { exact: true }).press("Control+Enter");
  await shown.locator(".message.live").waitFor();
  const first = (await shown.locator(".message.live").innerText()).length;
  await shown.waitForFunction((n) => (document.querySelector(".message.live")?.textContent ?? "").length > n + 5, first);
  await shown.getByRole("list", { name: "Timeline" }).getByText("completed").waitFor();
  assert.equal(await shown.locator(".message.live").count(), 0);
  assert.equal(await shown.locator(".message.assistant").count(), 1);
  assert.match(await shown.getByRole("list", { name: "Timeline" }).innerText(), /queued[\s\S]*round 0[\s\S]*completed/);
  await ends(shown);
});

test("an answer is drawn as it is stored, not when the list is asked for again", async () => {
  const session = await server.post("/v1/sessions", {});
  const shown = await page(browser, server, `#/sessions/${session.id}`);
  await shown.getByText("Nothing was said yet").waitFor();
  const late = [];
  for (let n = 0; n < 9; n += 1) {
    await shown.getByLabel("Message", { exact: true }).fill(`number ${n} of all`);
    const drawn = whenDrawn(shown, `number ${n} of all`);
    await shown.getByLabel("Message", { exact: true }).press("Control+Enter");
    const at = await drawn;
    const { data } = await server.get(`/v1/sends?session_id=${session.id}&limit=1`);
    late.push(at - Date.parse(data[0].finished_at));
  }
  late.sort((a, b) => a - b);
  // Lists are asked for every 2.5 s; `npm run measure` says how long it takes on a machine that does nothing else.
  assert.ok(late[4] < 1_000, `the median is ${late[4]} ms: ${late}`);
  await ends(shown);
});

test("a question is answered by its option, and leaves the inbox", async () => {
  const { session_id } = await server.post("/v1/sends?wait=20s", { input: '!tool ask_person {"question":"Tea or coffee?","options":["tea","coffee"]}', session: { agent: { tools: ["core"] } } });
  const shown = await page(browser, server, "#/inbox");
  await shown.getByRole("button", { name: /Tea or coffee/ }).click();
  await shown.getByRole("button", { name: "coffee", exact: true }).click();
  await shown.locator(".toast").getByText("Answered").waitFor();
  await server.until(`/v1/sends?session_id=${session_id}`, (page) => page.data[0].status === "completed");
  await shown.getByText(/has been answered/).waitFor();
  await ends(shown);
});

test("a question is answered with words by the keyboard alone", async () => {
  const { session_id } = await server.post("/v1/sends?wait=20s", { input: '!tool ask_person {"question":"What is your name?"}', session: { agent: { tools: ["core"] } } });
  const shown = await page(browser, server, `#/sessions/${session_id}`);
  await shown.getByText("What is your name?").first().waitFor();
  await shown.locator(".call textarea").focus();
  await shown.keyboard.type("Ada");
  await shown.keyboard.press("Control+Enter");
  const { data } = await server.until(`/v1/sends?session_id=${session_id}`, (page) => page.data[0].status === "completed");
  assert.match(data[0].output_text, /Ada/);
  await ends(shown);
});

test("an approval is given by a key, a second one refused with a note that the model is told", async () => {
  const agent = { tools: [{ type: "worker", name: "current_time", approval: true }] };
  const ask = () => server.post("/v1/sends?wait=20s", { input: "!tool current_time {}", session: { agent } });
  const first = await ask();
  const shown = await page(browser, server, "#/inbox");
  await shown.getByRole("button", { name: /current_time/ }).first().click();
  await shown.keyboard.press("a");
  await server.until(`/v1/sends?session_id=${first.session_id}`, (page) => page.data[0].status === "completed");
  const second = await ask();
  await shown.goto(`${server.url}/#/sessions/${second.session_id}`);
  await shown.getByRole("button", { name: "Deny…" }).click();
  await shown.getByLabel(/Why/).fill("not today");
  await shown.getByRole("button", { name: "Deny", exact: true }).click();
  await server.until(`/v1/sends?session_id=${second.session_id}`, (page) => page.data[0].status === "completed");
  const { data } = await server.get(`/v1/sessions/${second.session_id}/messages`);
  assert.match(JSON.stringify(data), /not today/);
  await ends(shown);
});

test("two people answer one question: the second is told", async () => {
  const { session_id } = await server.post("/v1/sends?wait=20s", { input: '!tool ask_person {"question":"Who is first?"}', session: { agent: { tools: ["core"] } } });
  const one = await page(browser, server, `#/sessions/${session_id}`);
  await one.locator(".call textarea").fill("the second");
  const { data } = await server.get(`/v1/sessions/${session_id}/calls`);
  // The page does not know of the other's answer yet.
  await one.route("**/calls*", (route) => route.abort());
  await server.post(`/v1/sessions/${session_id}/tool-results`, { results: [{ call_id: data[0].call_id, output: "the first" }] });
  await one.locator(".call").getByRole("button", { name: "Answer" }).click();
  await one.getByText(/somebody else has answered|was not waiting/).first().waitFor();
  await one.context().close();
});

test("a message waits behind, steers or interrupts what runs", async () => {
  const session = await server.post("/v1/sessions", {});
  await server.post(`/v1/sessions/${session.id}/sends`, { input: "!stream 400x50ms" });
  const shown = await page(browser, server, `#/sessions/${session.id}`);
  await shown.getByRole("radio", { name: "interrupt" }).check();
  await shown.getByLabel("Message", { exact: true }).fill("stop, and say moon");
  await shown.getByRole("button", { name: "Send", exact: true }).click();
  await server.until(`/v1/sends?session_id=${session.id}`, (page) => page.data.every((send) => send.status === "completed"));
  await shown.locator(".message.assistant").getByText("say moon").first().waitFor();
  await ends(shown);
});

test("a session is forked at a message, and a message is edited and run again in a copy", async () => {
  const shown = await page(browser, server, `#/sessions/${made.hello.session_id}`);
  await shown.locator(".message.user").getByRole("button", { name: "edit and run again" }).click();
  await shown.locator("dialog textarea").fill("good evening");
  await shown.getByRole("button", { name: "Run", exact: true }).click();
  await shown.waitForFunction((id) => !location.hash.includes(id), made.hello.session_id);
  await shown.locator(".message.assistant").getByText("good evening").waitFor();
  assert.equal(await shown.locator(".message.user").count(), 1);
  const { data } = await server.get(`/v1/sessions/${made.hello.session_id}/messages`);
  assert.equal(data.length, 2, "the session that was copied has changed");
  await ends(shown);
});

test("a failed send is retried, with its failure and what explains it", async () => {
  const shown = await page(browser, server, `#/sends/${made.failed.id}`);
  await shown.waitForURL(/sessions/);
  const code = shown.getByRole("link", { name: made.failed.error.code }).first();
  assert.match(await code.getAttribute("href"), /errors/);
  await shown.getByRole("button", { name: "Retry" }).first().click();
  await shown.getByText("Sent again").waitFor();
  await ends(shown);
});

test("a file and a picture are attached; the picture is told by its bytes, not by its name", async () => {
  const session = await server.post("/v1/sessions", {});
  const shown = await page(browser, server, `#/sessions/${session.id}`);
  const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==", "base64");
  await shown.locator('input[type="file"]').setInputFiles([
    { name: "dot.txt", mimeType: "text/plain", buffer: png },
    { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("buy tea") },
  ]);
  await shown.getByLabel("Message", { exact: true }).fill("what is this?");
  await shown.getByRole("button", { name: "Send", exact: true }).click();
  await server.until(`/v1/sends?session_id=${session.id}`, (page) => page.data[0]?.status === "completed");
  const { data } = await server.get(`/v1/sessions/${session.id}/messages`);
  assert.deepEqual(data[0].content.map((part) => part.type).sort(), ["file", "image", "text"]);
  await ends(shown);
});

test("what the model sees is asked for with what is written", async () => {
  const shown = await page(browser, server, `#/sessions/${made.hello.session_id}`);
  await shown.getByLabel("Message", { exact: true }).fill("a very special question");
  await shown.getByRole("button", { name: "What the model sees" }).click();
  await shown.getByText("The model call for what is written below").waitFor();
  await shown.getByText(/likely cached/).waitFor();
  await ends(shown);
});

test("a run is watched, paused, resumed and cancelled", async () => {
  const leaf = { name: "leaf", system_prompt: "x", tools: [] };
  const run = await server.post("/v1/runs", {
    spec: { name: "slow", root: { type: "foreach", id: "all", as: "x", items_from: "input", max_concurrency: 1, body: { type: "agent", id: "leaf", input: "!sleep 300ms", spec: leaf } } },
    input: Array.from({ length: 60 }, (_, n) => n),
  });
  const shown = await page(browser, server, `#/runs/${run.id}`);
  await shown.locator(".cell.completed").first().waitFor();
  await shown.getByRole("button", { name: "Pause" }).click();
  await shown.getByRole("button", { name: "Resume" }).waitFor();
  assert.ok((await server.get(`/v1/runs/${run.id}`)).paused_at);
  await shown.getByRole("button", { name: "Resume" }).click();
  await shown.getByRole("button", { name: "Pause" }).waitFor();
  const before = await shown.locator(".cell.completed").count();
  await shown.waitForFunction((n) => document.querySelectorAll(".cell.completed").length > n, before);
  await shown.getByRole("button", { name: "Cancel…" }).click();
  await shown.getByRole("button", { name: "Cancel the run" }).click();
  await server.until(`/v1/runs/${run.id}`, (run) => run.status === "cancelled");
  await shown.locator(".cell.cancelled, .cell.skipped").first().waitFor();
  await ends(shown);
});

test("a node is looked at, amended, and its result changes", async () => {
  const shown = await page(browser, server, `#/runs/${made.run.id}`);
  await shown.getByRole("button", { name: /greet \[1\]/ }).click();
  await shown.getByText("Hello Grace").first().waitFor();
  await shown.getByRole("button", { name: "Amend…" }).click();
  await shown.locator("dialog textarea").fill("Good evening, Grace");
  await shown.getByRole("button", { name: "Replace" }).click();
  await server.until(`/v1/runs/${made.run.id}/nodes`, (page) => page.data.some((node) => node.amended));
  await shown.getByText("Good evening, Grace").first().waitFor();
  await ends(shown);
});

test("a timer is fired, paused and changed", async () => {
  const shown = await page(browser, server, `#/timers/${made.timer.id}`);
  await shown.getByRole("button", { name: "Fire now" }).click();
  await server.until(`/v1/timers/${made.timer.id}`, (timer) => timer.occurrences === 1);
  await shown.getByRole("button", { name: "Pause" }).click();
  await server.until(`/v1/timers/${made.timer.id}`, (timer) => timer.status === "paused");
  await shown.getByRole("button", { name: "Resume" }).click();
  await server.until(`/v1/timers/${made.timer.id}`, (timer) => timer.status === "armed");
  await shown.getByRole("button", { name: "Change…" }).click();
  await shown.locator("dialog").getByLabel("Value").fill("30 7 * * *");
  await shown.getByRole("button", { name: "Change", exact: true }).click();
  await shown.getByRole("heading", { name: /30 7/ }).waitFor();
  await ends(shown);
});

test("two versions of an agent are compared, and an alias is moved", async () => {
  const shown = await page(browser, server, "#/agents/shop");
  await shown.locator(".added").getByText("coffee").waitFor();
  await shown.getByRole("button", { name: "alias…" }).first().click();
  await shown.getByRole("button", { name: "Point", exact: true }).click();
  await server.until("/v1/agents/shop", (agent) => agent.aliases.prod === 2);
  await ends(shown);
});

test("something is remembered, found and forgotten", async () => {
  const shown = await page(browser, server, "#/memory");
  await shown.getByRole("button", { name: "Remember…" }).click();
  await shown.locator("dialog").getByLabel("Namespace").fill("user/43");
  await shown.locator("dialog").getByLabel("Text").fill("likes the sea");
  await shown.getByRole("button", { name: "Remember", exact: true }).click();
  await shown.locator(".filters").getByLabel("namespace").fill("user/43");
  await shown.locator(".filters").getByLabel("namespace").press("Enter");
  await shown.getByText("likes the sea").waitFor();
  await shown.getByRole("button", { name: "forget", exact: true }).click();
  await shown.getByRole("button", { name: "Forget", exact: true }).click();
  await shown.getByText("Nothing that matches is remembered").waitFor();
  await ends(shown);
});

test("a pool is paused with a reason, which is shown, and goes on", async () => {
  const shown = await page(browser, server, "#/workers");
  await shown.getByRole("button", { name: "Pause…", exact: true }).first().click();
  await shown.getByLabel(/Why/).fill("maintenance");
  await shown.getByRole("button", { name: "Pause", exact: true }).click();
  await shown.getByText("maintenance").waitFor();
  await shown.getByRole("button", { name: "Resume" }).first().click();
  await shown.getByText("Nothing is paused.").waitFor();
  await ends(shown);
});

test("filters are in the address, apply to everything, and survive a reload", async () => {
  const shown = await page(browser, server, "#/sessions");
  await shown.locator(".filters").getByLabel("agent").fill("painter");
  await shown.locator(".filters").getByLabel("agent").press("Enter");
  await shown.waitForURL(/agent=painter/);
  await shown.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await shown.reload();
  await shown.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  assert.equal(await shown.locator(".filters").getByLabel("agent").inputValue(), "painter");
  await ends(shown);
});

test("all that match is acted on after it was counted", async () => {
  for (let n = 0; n < 3; n += 1) await server.post("/v1/sends", { input: "!sleep 60s", options: { metadata: { batch: "b" } } });
  const shown = await page(browser, server, "#/sends?metadata.batch=b");
  await shown.waitForFunction(() => document.querySelectorAll("tbody tr").length === 3);
  await shown.getByRole("button", { name: "Cancel…" }).click();
  await shown.getByRole("heading", { name: "Cancel 3?" }).waitFor();
  await shown.getByRole("button", { name: "Cancel", exact: true }).last().click();
  await server.until("/v1/sends?metadata.batch=b", (page) => page.data.every((send) => send.status === "cancelled"));
  await shown.getByText("Cancel: 3 done").first().waitFor();
  await ends(shown);
});

test("selected rows are deleted by the keyboard", async () => {
  const made = [];
  for (let n = 0; n < 2; n += 1) made.push((await server.post("/v1/sessions", { metadata: { doomed: "1" } })).id);
  const shown = await page(browser, server, "#/sessions?metadata.doomed=1");
  await shown.waitForFunction(() => document.querySelectorAll("tbody tr").length === 2);
  for (const key of ["j", "x", "j", "x"]) await shown.keyboard.press(key);
  await shown.getByText("2 selected").waitFor();
  await shown.getByRole("button", { name: "Delete…" }).click();
  await shown.getByRole("button", { name: "Delete", exact: true }).click();
  await shown.getByText("No session matches all filters").waitFor();
  await ends(shown);
});

test("rows that come do not move those that are looked at", async () => {
  for (let n = 0; n < 60; n += 1) await server.post("/v1/sessions", {});
  const shown = await page(browser, server, "#/sessions");
  await shown.locator("tbody tr").first().waitFor();
  await shown.locator(".box").evaluate((box) => box.scrollTo(0, 400));
  await shown.waitForTimeout(100);
  const before = await shown.locator("tbody tr:not(.spacer)").first().innerText();
  await server.post("/v1/sessions", { metadata: { fresh: "1" } });
  await shown.getByRole("button", { name: /1 new/ }).waitFor();
  const name = before.split("\t")[0].split("\n")[0];
  assert.ok((await shown.locator("tbody").innerText()).includes(name));
  await shown.getByRole("button", { name: /1 new/ }).click();
  await shown.getByText("fresh=1").waitFor();
  await ends(shown);
});

test("keys go everywhere: views, the palette, the help", async () => {
  const shown = await page(browser, server, "#/");
  await shown.getByRole("heading", { name: "Overview" }).waitFor();
  for (const [key, name] of [["s", "Sessions"], ["i", "Inbox"], ["r", "Runs"], ["t", "Timers"], ["a", "Agents"], ["w", "Workers"], ["u", "Usage"]]) {
    await shown.keyboard.press("g");
    await shown.keyboard.press(key);
    await shown.getByRole("heading", { name, exact: true, level: 1 }).waitFor();
  }
  await shown.keyboard.press("Control+k");
  await shown.keyboard.type(made.hello.session_id);
  await shown.keyboard.press("Enter");
  await shown.waitForURL(new RegExp(made.hello.session_id));
  await shown.keyboard.press("?");
  await shown.getByRole("heading", { name: "Keys" }).waitFor();
  await shown.keyboard.press("Escape");
  await ends(shown);
});

test("the whole page can be reached by the tab key, and what has the focus is seen", async () => {
  const shown = await page(browser, server, `#/sessions/${made.hello.session_id}`);
  await shown.getByText("hello").first().waitFor();
  const seen = new Set();
  for (let n = 0; n < 60; n += 1) {
    await shown.keyboard.press("Tab");
    const at = await shown.evaluate(() => {
      const element = document.activeElement;
      if (element === null || element === document.body) return "";
      const style = getComputedStyle(element);
      return `${element.tagName} ${element.textContent?.trim().slice(0, 20)} ${style.outlineStyle === "none" && style.outlineWidth === "0px" ? "no outline" : "outlined"}`;
    });
    seen.add(at);
  }
  const all = [...seen].join("\n");
  for (const name of ["Sessions", "Fork", "Delete…", "Timeline", "Attach"]) assert.ok(all.includes(name), `${name} is not reached:\n${all}`);
  assert.ok(![...seen].some((at) => at.endsWith("no outline") && !at.startsWith("MAIN")), all);
  await ends(shown);
});

test("the playground does what it says, and says it in four languages", async () => {
  const shown = await page(browser, server, "#/play?operation=listSessions");
  await shown.getByRole("button", { name: "Ask", exact: true }).click();
  await shown.getByText("200 OK").waitFor();
  assert.match(await shown.locator(".copyas pre").innerText(), /curl '.*\/v1\/sessions'/);
  await shown.getByRole("tab", { name: "Python" }).click();
  assert.match(await shown.locator(".copyas pre").innerText(), /client\.api\.list_sessions\(\)/);
  await shown.getByRole("tab", { name: "TypeScript" }).click();
  assert.match(await shown.locator(".copyas pre").innerText(), /client\.api\.listSessions\(\)/);
  await shown.getByRole("tab", { name: "CLI" }).click();
  assert.match(await shown.locator(".copyas pre").innerText(), /mainspring sessions list/);
  await ends(shown);
});

/** Whether the command line knows these words: with `--help` behind them it does nothing. */
function isKnown(command) {
  const line = command.replace(/^mainspring /, '"$MAINSPRING_BIN" ').replaceAll("{id}", "x").replaceAll("{name}", "x");
  const ran = spawnSync("sh", ["-c", `${line} --help`], { encoding: "utf8", timeout: 20_000 });
  return ran.status === 0 ? "" : `${command}: ${ran.stderr.split("\n")[0]}`;
}

test("each command that the playground writes is one, with all filters of its list", async () => {
  const shown = await page(browser, server, "#/play");
  await shown.getByText("createSend").first().waitFor();
  const { paths } = await server.get("/openapi.json");
  const ids = Object.values(paths).flatMap((methods) => Object.values(methods).map((operation) => operation.operationId)).filter(Boolean);
  const commands = new Set();
  for (const id of ids) {
    await shown.evaluate((id) => (location.hash = `#/play?operation=${id}`), id);
    await shown.locator("h2 code").waitFor();
    await shown.getByRole("tab", { name: "CLI" }).click();
    const text = await shown.locator(".copyas pre").innerText();
    if (text.startsWith("mainspring ")) commands.add(text);
  }
  const filters = "status=failed&agent=x&created_from=2h&metadata.a=b";
  for (const view of [`sessions?${filters.replace("failed", "idle")}`, `sends?${filters}&text=y&session_id=${made.hello.session_id}`, `runs?status=failed&name=x&created_from=2h&metadata.a=b`]) {
    await shown.goto(`${server.url}/#/${view}`);
    await shown.locator("details.as summary").click();
    await shown.getByRole("tab", { name: "CLI" }).click();
    commands.add(await shown.locator(".copyas pre").innerText());
  }
  assert.ok(commands.size > 40, [...commands].join("\n"));
  assert.deepEqual([...commands].map(isKnown).filter((fault) => fault !== ""), []);
  await ends(shown);
});

test("each command that an empty view teaches is one", async () => {
  const empty = await Server.start();
  const shown = await page(browser, empty, "");
  const commands = new Set();
  for (const view of ["", "sessions", "inbox", "runs", "timers", "agents", "webhooks", "tools", "admin"]) {
    await shown.goto(`${empty.url}/#/${view}`);
    await shown.locator(".empty .command pre").first().waitFor();
    for (const text of await shown.locator(".empty .command pre").allInnerTexts()) commands.add(text);
  }
  const ours = [...commands].filter((text) => text.startsWith("mainspring "));
  assert.ok(ours.length >= 8, ours.join("\n"));
  assert.deepEqual(ours.map((text) => isKnown(text.replace(/ --help$/, ""))).filter((fault) => fault !== ""), []);
  await ends(shown);
  await empty.close();
});

test("a refusal says what is wrong, where, and under which request", async () => {
  const shown = await page(browser, server, "#/play?operation=createSend");
  await shown.locator("textarea").fill('{"input": 7}');
  await shown.getByRole("button", { name: "Do it" }).click();
  await shown.getByText(/400|422/).first().waitFor();
  await shown.getByText("/input").first().waitFor();
  await ends(shown);
});

test("an empty server teaches", async () => {
  const empty = await Server.start();
  const shown = await page(browser, empty, "");
  await shown.getByText("Nothing has run yet").waitFor();
  await shown.getByText('mainspring send --wait "hello"').waitFor();
  await shown.getByRole("button", { name: "Or here" }).click();
  await shown.getByLabel("First message").fill("hello there");
  await shown.getByRole("button", { name: "Send", exact: true }).click();
  await shown.locator(".message.assistant").getByText("hello there").waitFor();
  await ends(shown);
  await empty.close();
});
