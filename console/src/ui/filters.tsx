// Filters of a list. They are in the address, and the server applies them to everything that there is.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";

import type { Query } from "../api.js";
import { place, refine } from "../router.js";
import { useKeys } from "./keys.js";

export interface Filter {
  /** The parameter of the API. */
  name: string;
  label: string;
  options?: readonly string[];
  hint?: string;
}

const AGES: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** The times that ages stood for when they were first asked for: a list that is looked at keeps its beginning. */
const times = new Map<string, string>();
addEventListener("hashchange", () => times.clear());

/** The earliest time of `2h`, `7d` and the like, or the time that was given. */
export function since(text: string): string {
  const found = /^(\d{1,5})\s*([mhdw])$/.exec(text.trim());
  if (found === null) return text;
  const ms = Number(found[1]) * (AGES[found[2] ?? "h"] ?? 0);
  const time = times.get(text) ?? new Date(Date.now() - ms).toISOString();
  times.set(text, time);
  return time;
}

/** What the address says of a list, as the API wants it. */
export function asked(filters: readonly Filter[]): Query {
  const query: Query = {};
  for (const filter of filters) {
    const value = place.value.query.get(filter.name) ?? "";
    if (value !== "") query[filter.name] = filter.name.startsWith("created_") ? since(value) : value;
  }
  for (const [name, value] of place.value.query) {
    if (name.startsWith("metadata.")) query[name] = value;
  }
  return query;
}

export function isFiltered(filters: readonly Filter[]): boolean {
  return Object.keys(asked(filters)).length > 0;
}

export function Filters({ of, withMetadata = false }: { of: readonly Filter[]; withMetadata?: boolean }): JSX.Element {
  const first = useRef<HTMLFormElement>(null);
  const [meta, setMeta] = useState("");
  useKeys("Filters", [{ keys: "/", does: "filter the list", run: () => first.current?.querySelector<HTMLElement>("input,select")?.focus() }]);
  const query = place.value.query;
  const chips = [...query].filter(([name]) => name.startsWith("metadata."));
  const add = (): void => {
    const cut = meta.search(/[:=]/);
    if (cut <= 0) return;
    refine({ [`metadata.${meta.slice(0, cut).trim()}`]: meta.slice(cut + 1).trim() });
    setMeta("");
  };
  return (
    <form
      class="filters"
      ref={first}
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        add();
      }}
    >
      {of.map((filter) => (
        <label key={filter.name}>
          <span>{filter.label}</span>
          {filter.options ? (
            <select value={query.get(filter.name) ?? ""} onChange={(event) => refine({ [filter.name]: event.currentTarget.value })}>
              <option value="">any</option>
              {filter.options.map((option) => (
                <option key={option} value={option}>
                  {option}
                </option>
              ))}
            </select>
          ) : (
            <input
              value={query.get(filter.name) ?? ""}
              placeholder={filter.hint ?? ""}
              onChange={(event) => refine({ [filter.name]: event.currentTarget.value.trim() })}
            />
          )}
        </label>
      ))}
      {withMetadata ? (
        <label>
          <span>metadata</span>
          <input value={meta} placeholder="customer=42" onInput={(event) => setMeta(event.currentTarget.value)} onBlur={add} />
        </label>
      ) : null}
      {chips.map(([name, value]) => (
        <button key={name} type="button" class="chip" aria-label={`Remove the filter ${name} ${value}`} onClick={() => refine({ [name]: undefined })}>
          {name.slice("metadata.".length)}={value} ×
        </button>
      ))}
      {isFiltered(of) ? (
        <button type="button" class="quiet" onClick={() => refine(Object.fromEntries([...query.keys()].map((name) => [name, undefined])))}>
          clear
        </button>
      ) : null}
    </form>
  );
}
