// What needs a file system. Everything else is in the main module, which runs anywhere.

import { mkdirSync, openSync, closeSync, fsyncSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Journal } from "./tools.js";

/** A journal that has a file in this folder for each call that is begun and not yet reported. */
export function fileJournal(folder: string): Journal {
  mkdirSync(folder, { recursive: true });
  const note = (callId: string) => join(folder, encodeURIComponent(callId));
  return {
    begin(callId) {
      try {
        const file = openSync(note(callId), "wx");
        fsyncSync(file);
        closeSync(file);
        return true;
      } catch (error) {
        if ((error as { code?: string }).code === "EEXIST") return false;
        throw error;
      }
    },
    end: (callId) => rmSync(note(callId), { force: true }),
  };
}
