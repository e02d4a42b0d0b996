// Writes the programs of the README to readme/, each with what it is to print, for the compiler and the tests.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const folder = new URL("../readme/", import.meta.url);
mkdirSync(folder, { recursive: true });
const text = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const blocks = [...text.matchAll(/```ts\n(.*?)```(?:\n\n```text\n(.*?)```)?/gs)];
for (const [n, [, program, prints]] of blocks.entries()) {
  const name = String(n + 1).padStart(2, "0");
  writeFileSync(new URL(`${name}.ts`, folder), program);
  if (prints !== undefined) writeFileSync(new URL(`${name}.txt`, folder), prints);
}
