// Runs the programs of the README against the real binary.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Server } from "./server.js";

const folder = fileURLToPath(new URL("../readme/", import.meta.url));
let server: Server;
let there: string;
before(async () => {
  server = await Server.start();
  there = mkdtempSync(join(tmpdir(), "readme-"));
});
after(async () => {
  await server.close();
  rmSync(there, { recursive: true });
});

for (const program of readdirSync(folder).filter((name) => name.endsWith(".js"))) {
  test(`the README's program ${program}`, async () => {
    const env = { ...process.env, MAINSPRING_SERVER: server.url, MAINSPRING_API_KEY: "" };
    const { stdout } = await promisify(execFile)(process.execPath, [join(folder, program)], { env, cwd: there, timeout: 60_000 });
    const prints = fileURLToPath(new URL(`../../readme/${program.replace(/js$/, "txt")}`, import.meta.url));
    if (existsSync(prints)) assert.equal(stdout, readFileSync(prints, "utf8"));
  });
}
