// Packs the package and uses it as a stranger would: from an empty folder, and as one file in a bare
// world that has what browsers and edge runtimes have, and nothing of Node.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createContext, Script } from "node:vm";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { Server } from "../build/test/server.js";

const root = fileURLToPath(new URL("..", import.meta.url));
/** The most bytes of the client in a page, minified and compressed. */
const BUNDLE_MAX = 20_000;

const PROGRAM = `import { Client, flow, webhooks, type Answer } from "@mainspring/client";
const client = new Client({ url: SERVER, timeout: "30s" });
const answer: Answer<string> = await client.session().sendAndWait("hello from an empty folder");
const stream = client.send(answer.send.id).stream();
for await (const event of stream) if (event.type === "send.completed") event.output_text satisfies string | null | undefined;
if (stream.text !== answer.output || !flow.input || !webhooks.verify) throw new Error(stream.text);
`;

const folder = mkdtempSync(join(tmpdir(), "package-"));
const server = await Server.start();
try {
  const npm = (...args) => execFileSync("npm", args, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  const [packed] = JSON.parse(npm("pack", root, "--json", "--silent", "--ignore-scripts"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module", "private": true }\n');
  npm("install", packed.filename, "--offline", "--no-audit", "--no-fund", "--silent");

  const strange = packed.files.map(({ path }) => path).filter((path) => !/^(dist\/|README\.md|LICENSE|package\.json)/.test(path));
  assert.deepEqual(strange, []);

  // Its types, for those who check those of their dependencies, too, with and without the types of Node.
  const declared = `declare const SERVER: string;\n${PROGRAM}`;
  writeFileSync(join(folder, "use.ts"), declared);
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  for (const module of [["--module", "nodenext"], ["--module", "esnext", "--moduleResolution", "bundler"]]) {
    const args = ["--strict", "--exactOptionalPropertyTypes", "--target", "es2022", "--lib", "es2022,dom,dom.iterable,dom.asynciterable", ...module];
    execFileSync(process.execPath, [tsc, ...args, "use.ts"], { cwd: folder, stdio: "inherit" });
  }
  const program = readFileSync(join(folder, "use.js"), "utf8");
  writeFileSync(join(folder, "use.js"), `const SERVER = ${JSON.stringify(server.url)};\n${program}`);
  for (const [runtime, ...args] of [[process.execPath], ["deno", "run", "--allow-net", "--no-prompt"], ["bun"]]) {
    try {
      execFileSync(runtime, [...args, "use.js"], { cwd: folder, stdio: "inherit" });
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
      console.log(`package: there is no ${runtime} here`);
    }
  }

  const options = { bundle: true, minify: true, platform: "browser", target: "es2022", write: false, absWorkingDir: folder };
  const whole = await build({ ...options, format: "esm", stdin: { contents: 'export * from "@mainspring/client";', resolveDir: folder } });
  const bytes = gzipSync(whole.outputFiles[0].contents, { level: 9 }).length;
  assert.ok(bytes <= BUNDLE_MAX, `${bytes} bytes`);

  const main = `(async () => { ${program.replace(/^import .*$/m, "").replace("export {};", "")} })()`;
  const contents = `import { Client, flow, webhooks } from "@mainspring/client";\nglobalThis.result = ${main};`;
  const page = await build({ ...options, format: "iife", stdin: { contents, resolveDir: folder }, define: { SERVER: JSON.stringify(server.url) } });
  const web = {
    AbortController, AbortSignal, Blob, Headers, ReadableStream, Request, Response, TextDecoder, TextEncoder, URL, URLSearchParams, atob,
    clearTimeout, console, crypto, fetch, performance, setTimeout,
  };
  const world = createContext(web);
  new Script(page.outputFiles[0].text).runInContext(world);
  await world.result;
  console.log(`package: ${packed.size} bytes packed, ${packed.unpackedSize} unpacked, ${bytes} in a page`);
} finally {
  await server.close();
  rmSync(folder, { recursive: true });
}
