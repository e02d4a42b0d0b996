// The same done to everything that a list shows.

import { get, post, words, type Page, type Query } from "../api.js";
import { ask, tell } from "../ui/dialog.js";
import { changed } from "../ui/live.js";

interface Acted {
  results: { id: string; done: boolean; problem?: { detail?: string; title?: string } | null }[];
  next_cursor?: string | null;
}

/** How many rows are counted before it is asked. */
const COUNTED = 1_000;
const PAGE = 200;

/** How many rows a list has, at most as many as are counted. */
async function size(path: string, query: Query): Promise<{ rows: number; isAll: boolean }> {
  let rows = 0;
  let cursor: string | null = null;
  while (rows < COUNTED) {
    const page: Page<unknown> = await get(path, { ...query, limit: PAGE, cursor: cursor ?? undefined });
    rows += page.data.length;
    cursor = page.next_cursor;
    if (cursor === null) return { rows, isAll: true };
  }
  return { rows, isAll: false };
}

/** From how many on a number has to be typed. */
const MANY = 100;

/** Asks, with how many it will be, then acts page by page and tells what became of them. */
export async function bulk(what: string, list: string, path: string, query: Query): Promise<void> {
  try {
    const { rows, isAll } = await size(list, query);
    const number = `${rows}${isAll ? "" : " or more"}`;
    const filters = Object.entries(query).map(([name, value]) => `${name}: ${String(value)}`);
    const sure = await ask(`${what} ${number}?`, {
      body: (
        <>
          <p>Everything that matches, also what comes to match meanwhile:</p>
          <ul>
            {filters.map((filter) => (
              <li key={filter}>
                <code>{filter}</code>
              </li>
            ))}
          </ul>
        </>
      ),
      action: what,
      danger: true,
      typed: rows >= MANY || !isAll ? String(rows) : "",
    });
    if (sure === null) return;
    let done = 0;
    const failed: string[] = [];
    let cursor: string | undefined;
    do {
      const acted: Acted = await post(path, undefined, { ...query, limit: PAGE, cursor });
      for (const result of acted.results) {
        if (result.done) done += 1;
        else failed.push(`${result.id}: ${result.problem?.detail ?? result.problem?.title ?? "refused"}`);
      }
      cursor = acted.next_cursor ?? undefined;
      if (cursor !== undefined) tell(`${what}: ${done} so far`);
    } while (cursor !== undefined);
    tell(`${what}: ${done} done${failed.length === 0 ? "" : `, ${failed.length} not`}`, failed.length > 0);
    if (failed.length > 0) {
      await ask(`${failed.length} were left`, {
        body: (
          <ul class="small">
            {failed.slice(0, 50).map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        ),
        action: "Close",
      });
    }
  } catch (error) {
    tell(words(error), true);
  }
  changed();
}
