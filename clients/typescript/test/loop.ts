// A tool loop in a process of its own, as the scenarios start it. Argument: what it does, as JSON.

import { appendFileSync } from "node:fs";
import { Client, type Repeat } from "@mainspring/client";

export interface LoopArguments {
  url: string;
  key?: string;
  /** The file that gets the id of each call. */
  calls: string;
  lease?: number;
  tool: { name: string; repeat: Repeat; result?: unknown; error?: string; dies?: boolean };
}

const { url, key, calls, lease, tool } = JSON.parse(process.argv[2]!) as LoopArguments;
const client = new Client({ url, key });
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
const { name, repeat } = tool;
const run = client.tool(name, { repeat }, (_, call) => {
  appendFileSync(calls, `${call.id}\n`);
  if (tool.dies) process.kill(process.pid, "SIGKILL");
  if (tool.error !== undefined) throw new Error(tool.error);
  return tool.result;
});
await client.serve([run], { signal: stop.signal, lease });
