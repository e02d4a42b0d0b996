// Each view: it shows what there is, without an error, for everybody, in every width and light.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Server, fill, findings, launch, page } from "./kit.mjs";

let server;
let browser;
let made;
let views;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
  made = await fill(server);
  views = [
    ["#/", "Newest sends"],
    ["#/sessions", "customer=42"],
    [`#/sessions/${made.hello.session_id}`, "hello"],
    [`#/sessions/${made.tool.session_id}`, "In which colour?"],
    [`#/sessions/${made.hello.session_id}?tab=Sends`, "hello **world**"],
    [`#/sessions/${made.hello.session_id}?tab=Context`, "likely cached"],
    [`#/sessions/${made.tool.session_id}?tab=Lists`, "buy tea"],
    [`#/sessions/${made.hello.session_id}?tab=Children`, "Sub-agents"],
    [`#/sessions/${made.hello.session_id}?tab=Inbox`, "delivered"],
    [`#/sessions/${made.hello.session_id}?tab=Usage`, "model calls"],
    [`#/sessions/${made.hello.session_id}?tab=JSON`, "agent_version"],
    ["#/inbox", "In which colour?"],
    ["#/sends", "llm.invalid_request"],
    ["#/runs", "greetings"],
    [`#/runs/${made.run.id}`, "greet [0]"],
    [`#/runs/${made.run.id}?tab=table`, "/0:all[1]/greet"],
    [`#/runs/${made.run.id}?tab=spec`, "foreach"],
    [`#/runs/${made.run.id}?tab=result&node=${encodeURIComponent("/1:close")}`, "Bye"],
    ["#/timers", "0 9 * * *"],
    ["#/timers?as=calendar", "09:00"],
    [`#/timers/${made.timer.id}`, "Due next"],
    ["#/agents", "prod → 1"],
    ["#/agents/shop", "You sell tea and coffee."],
    ["#/workers", "default"],
    ["#/memory", "likes tea"],
    ["#/webhooks", "example.com/hook"],
    [`#/webhooks/${made.hook.id}`, "Rotate the secret"],
    ["#/usage", "model calls"],
    ["#/tools", "ask_person"],
    ["#/admin", "Tenants"],
    ["#/play", "createSend"],
    ["#/nowhere", "Nothing is here"],
  ];
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** The timeline's calendar shows local times: the browser's is UTC. */
const options = { timezoneId: "UTC" };

for (let n = 0; n < 32; n += 1) {
  test(`view ${n} shows what there is, and is clean for axe in light and dark`, async (context) => {
    const [path, text] = views[n];
    context.diagnostic(path);
    const light = await page(browser, server, path, { ...options, colorScheme: "light" });
    await light.getByText(text, { exact: false }).first().waitFor({ state: "attached" });
    await light.waitForTimeout(100);
    assert.deepEqual(await findings(light), [], `${path} in light`);
    assert.deepEqual(light.faults, [], path);
    await light.emulateMedia({ colorScheme: "dark" });
    await light.waitForTimeout(50);
    assert.deepEqual(await findings(light), [], `${path} in dark`);
    await light.context().close();
  });

  test(`view ${n} fits a phone`, async (context) => {
    const [path, text] = views[n];
    context.diagnostic(path);
    const narrow = await page(browser, server, path, { ...options, viewport: { width: 360, height: 720 } });
    await narrow.getByText(text, { exact: false }).first().waitFor({ state: "attached" });
    const over = await narrow.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(over, 0, `${path} is ${over} pixels too wide`);
    assert.deepEqual(narrow.faults, []);
    await narrow.context().close();
  });
}

test("there are as many views as are tested", () => assert.equal(views.length, 32));
