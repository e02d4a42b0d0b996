// The place in the page, which is in the fragment of its address: links can be shared, and no proxy has to know them.

import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);
addEventListener("hashchange", () => {
  hash.value = location.hash;
});

/** The path's parts and the query. */
export const place = computed(() => {
  const text = hash.value.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  const query = new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1));
  return { parts: path.split("/").filter((part) => part !== "").map(part), query };
});

/** A part of a path as it was written; a broken escape stands for itself. */
function part(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(path: string, query: Record<string, string | undefined> = {}): string {
  const given = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined && entry[1] !== "");
  const text = new URLSearchParams(given).toString();
  return `#${path}${text === "" ? "" : `?${text}`}`;
}

export function go(path: string, query: Record<string, string | undefined> = {}): void {
  location.hash = link(path, query);
}

/** Changes members of the query in place, without a step in the history. */
export function refine(changes: Record<string, string | undefined>): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const path = place.value.parts.map(encodeURIComponent).join("/");
  const text = query.toString();
  history.replaceState(null, "", `#/${path}${text === "" ? "" : `?${text}`}`);
  hash.value = location.hash;
}

/** Where something with this id is shown. */
export function placeOf(id: string): string | undefined {
  const kind = id.slice(0, id.indexOf("_"));
  const folder: Record<string, string> = { ses: "sessions", snd: "sends", run: "runs", tmr: "timers", whk: "webhooks", mem: "memory", ten: "admin" };
  const found = folder[kind];
  return found === undefined ? undefined : `/${found}/${id}`;
}
