// The built binary with the demo model, and a real Chromium.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { chromium } from "playwright-core";

const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** `mainspring dev` in a data folder of its own. */
export class Server {
  folder = mkdtempSync(join(tmpdir(), "mainspring-console-"));

  constructor(port, settings) {
    this.port = port;
    this.settings = settings;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  static async start(settings = {}) {
    const server = new Server(await freePort(), settings);
    await server.start();
    return server;
  }

  async start() {
    const binary = process.env.MAINSPRING_BIN;
    if (!binary) throw new Error("set MAINSPRING_BIN to the path of a mainspring binary");
    const plain = Object.entries(process.env).filter(([name]) => !name.startsWith("MAINSPRING_"));
    const env = { ...Object.fromEntries(plain), ...this.settings };
    const args = ["dev", "--listen", `127.0.0.1:${this.port}`, "--data-dir", this.folder, "--provider", "demo"];
    const child = spawn(binary, args, { env, stdio: "ignore" });
    running.add((this.child = child));
    // A test that failed must not keep the others from ending.
    child.unref();
    for (const end = Date.now() + 30_000; Date.now() < end; await sleep(20)) {
      if (child.exitCode !== null) throw new Error(`mainspring ended with ${child.exitCode}`);
      const response = await fetch(`${this.url}/readyz`).catch(() => undefined);
      if (response?.ok) return;
    }
    throw new Error("mainspring does not start");
  }

  async kill() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await ended;
    running.delete(this.child);
  }

  async close() {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A request to the API that has to succeed. */
  async api(method, path, body, key) {
    const headers = { ...(body === undefined ? {} : { "content-type": "application/json" }), ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) };
    const response = await fetch(`${this.url}${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }

  post(path, body, key) {
    return this.api("POST", path, body, key);
  }

  get(path, key) {
    return this.api("GET", path, undefined, key);
  }

  /** Asks until an answer is as it should be. */
  async until(path, is) {
    for (const end = Date.now() + 20_000; Date.now() < end; await sleep(25)) {
      const found = await this.get(path);
      if (is(found)) return found;
    }
    throw new Error(`${path} does not get there`);
  }
}

/** A browser without what would look for hosts elsewhere. */
export function launch() {
  const path = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  return chromium.launch({ executablePath: path, args });
}

/** A page whose errors are kept: what the console's own script throws, and what its policy forbids. */
export async function page(browser, server, path = "", options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const made = await context.newPage();
  made.faults = [];
  made.on("pageerror", (error) => made.faults.push(String(error)));
  made.on("console", (message) => {
    const text = message.text();
    // A refused request is told by the browser, too; what it means is up to the test.
    if (message.type() === "error" && !/Failed to load resource|ERR_/.test(text)) made.faults.push(text);
  });
  made.setDefaultTimeout(30_000);
  await unbuilt(context);
  await made.goto(`${server.url}/${path}`);
  return made;
}

/**
 * With `PAGES`, a folder, its files stand for those in the binary, under the binary's headers: whoever works on the page need
 * not build the server for each change.
 */
async function unbuilt(context) {
  const folder = process.env.PAGES;
  if (!folder) return;
  await context.route(/\/(console\/app\.(js|css))?(#.*)?$/, async (route) => {
    const path = new URL(route.request().url()).pathname;
    const file = path === "/" ? "index.html" : path.slice("/console/".length);
    const response = await route.fetch({ headers: { ...route.request().headers(), "if-none-match": "" } });
    const { "content-encoding": _, ...headers } = response.headers();
    await route.fulfill({ response, headers, body: readFileSync(join(folder, file)) });
  });
}

/** When a text of an assistant is on the screen, in milliseconds since 1970. */
export function whenDrawn(page, text) {
  return page.evaluate(
    (text) =>
      new Promise((resolve) => {
        new MutationObserver((_, watch) => {
          if (![...document.querySelectorAll(".message.assistant")].some((one) => one.textContent?.includes(text))) return;
          watch.disconnect();
          requestAnimationFrame(() => resolve(Date.now()));
        }).observe(document.body, { childList: true, subtree: true, characterData: true });
      }),
    text,
  );
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What is wrong for those who use the page with other means than a screen and a mouse. */
export async function findings(page) {
  // By the debugger, which the policy of the page does not bind.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  const expression = `axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }).then((found) =>
    JSON.stringify(found.violations.map((one) => one.id + ": " + one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", "))))`;
  const { result } = await session.send("Runtime.evaluate", { expression, awaitPromise: true });
  await session.detach();
  return JSON.parse(result.value);
}

/** Something of everything that the console shows. */
export async function fill(server) {
  const hello = await server.post("/v1/sends?wait=20s", { input: "hello **world**", session: { metadata: { customer: "42" } }, options: { metadata: { ticket: "7" } } });
  const tool = await server.post("/v1/sends?wait=20s", {
    input: '!tool todo {"items":[{"text":"buy tea","status":"pending"}]}\n!then\n!tool ask_person {"question":"In which colour?","options":["red","blue"],"kind":"choice"}',
    session: { agent: { name: "painter", tools: ["core", "todo"] } },
  });
  const failed = await server.post("/v1/sends?wait=20s", { input: "!fail 400" });
  await server.post("/v1/agents", { name: "shop", spec: { system_prompt: "You sell tea.", tools: [] } });
  await server.post("/v1/agents", { name: "shop", spec: { system_prompt: "You sell tea and coffee.", tools: [] } });
  await server.api("PUT", "/v1/agents/shop/aliases/prod", { version: 1 });
  const leaf = { name: "leaf", system_prompt: "x", tools: [] };
  const run = await server.post("/v1/runs?wait=20s", {
    spec: {
      name: "greetings",
      root: {
        type: "sequence",
        steps: [
          { type: "foreach", id: "all", as: "name", items_from: "input", body: { type: "agent", id: "greet", input: "Hello {{name}}", spec: leaf } },
          { type: "agent", id: "close", input: "Bye", spec: leaf },
        ],
      },
    },
    input: ["Ada", "Grace"],
  });
  const timer = await server.post("/v1/timers", { session_id: hello.session_id, input: "good morning", cron: "0 9 * * *" });
  const memory = await server.post("/v1/memories", { namespace: "user/42", text: "likes tea" });
  const hook = await server.post("/v1/webhooks", { url: "https://example.com/hook", events: ["send.*"] });
  return { hello, tool, failed, run, timer, memory, hook };
}
