// Keys, everywhere. A view says what its keys do while it is shown; the newest comes first.

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

import { isAsking } from "./dialog.js";

export interface Key {
  keys: string;
  does: string;
  run: (event: KeyboardEvent) => void;
}

interface Layer {
  title: string;
  keys: Key[];
}

const layers = signal<Layer[]>([]);

/** What keys do while a part of the page is there. Each drawing replaces it at once, since keys can come faster than effects. */
export function useKeys(title: string, keys: Key[]): void {
  const layer = useRef<Layer>({ title, keys });
  layer.current.keys = keys;
  useLayoutEffect(() => {
    const own = layer.current;
    layers.value = [...layers.value, own];
    return () => {
      layers.value = layers.value.filter((other) => other !== own);
    };
  }, []);
}

export function known(): Layer[] {
  return layers.value;
}

/** How long the second key of a pair may take. */
const PAIR_MS = 1_200;

let first: { key: string; at: number } | undefined;

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));
}

addEventListener("keydown", (event) => {
  if (event.altKey || isAsking() || event.defaultPrevented) return;
  const withControl = event.ctrlKey || event.metaKey;
  const name = withControl ? `ctrl+${event.key.toLowerCase()}` : event.key;
  if (isWriting(event.target) && name !== "ctrl+k") return;
  // What has the focus answers its own keys.
  if (event.key === "Enter" && event.target instanceof HTMLElement && /^(a|button|summary)$/i.test(event.target.tagName)) return;
  const all = layers.value.flatMap((layer) => layer.keys).reverse();
  const pair = first !== undefined && event.timeStamp - first.at < PAIR_MS ? `${first.key} ${name}` : undefined;
  const paired = pair === undefined ? undefined : all.find((key) => key.keys === pair);
  const found = paired ?? all.find((key) => key.keys === name);
  const begins = paired === undefined && all.some((key) => key.keys.startsWith(`${name} `));
  first = begins ? { key: name, at: event.timeStamp } : undefined;
  if (found === undefined) return;
  event.preventDefault();
  found.run(event);
});
