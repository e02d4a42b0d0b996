// Writes src/access.ts from docs/ACCESS.md, which is made from the list that schedulers check requests against.

import { readFileSync, writeFileSync } from "node:fs";

const rows = readFileSync(new URL("../../docs/ACCESS.md", import.meta.url), "utf8").matchAll(/^\| `([A-Z]+ \/\S+)` \| (.+?) \| (.+?) \|$/gm);
const lines = [];
for (const [, operation, needs, bound] of rows) {
  if (!operation.includes(" /v1/")) continue;
  // Each of the parts between commas and "and" is needed, and of a part one of the scopes that it names.
  const parts = needs.replace(/\(\S+\)/g, "").split(/,? and /);
  const scopes = parts.map((part) => [...part.matchAll(/`(\w+)`/g)].map(([, scope]) => scope).join("|")).filter((part) => part !== "");
  if (parts.some((part) => part.includes("operator"))) scopes.push("operator");
  if (bound.trim() === "no") scopes.push("unbound");
  lines.push(`  ${JSON.stringify(operation)}: ${JSON.stringify(scopes.join("&"))},`);
}
if (lines.length < 100) throw new Error(`docs/ACCESS.md has only ${lines.length} operations that can be read`);
const text = `// Made by scripts/access.mjs from docs/ACCESS.md. Do not edit.

/** What a key needs for each operation: one scope of each part. */
export const ACCESS = {
${lines.join("\n")}
} as const;
`;
writeFileSync(new URL("../src/access.ts", import.meta.url), text);
