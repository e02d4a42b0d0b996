// What needs a file system. Everything else is in the main module, which runs anywhere.

import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Journal } from "./tools.js";

/** Names this process, also among those that had or will have its number. */
const SELF = { host: hostname(), pid: process.pid, started: Math.round(Date.now() - process.uptime() * 1000) };

/** A journal that has a file in this folder for each call that is begun and not yet reported. The loops of a machine may share it. */
export function fileJournal(folder: string): Journal {
  mkdirSync(folder, { recursive: true });
  const note = (callId: string) => join(folder, encodeURIComponent(callId));
  return {
    begin(callId) {
      try {
        const file = openSync(note(callId), "wx");
        writeSync(file, JSON.stringify(SELF));
        fsyncSync(file);
        closeSync(file);
        return "new";
      } catch (error) {
        if (!is(error, "EEXIST")) throw error;
        return isAlive(note(callId)) ? "elsewhere" : "begun";
      }
    },
    end: (callId) => rmSync(note(callId), { force: true }),
  };
}

/** Whether the process that left this note still runs. A number that another process has by now counts as running. */
function isAlive(note: string): boolean {
  try {
    const text = readFileSync(note, "utf8");
    if (!text) return true; // it is being written
    const { host, pid, started } = JSON.parse(text) as typeof SELF;
    if (pid === SELF.pid) return host === SELF.host && started === SELF.started;
    return host === SELF.host && process.kill(pid, 0);
  } catch (error) {
    return is(error, "ENOENT") || is(error, "EPERM"); // reported just now; another user's
  }
}

function is(error: unknown, code: string): boolean {
  return (error as { code?: string }).code === code;
}
