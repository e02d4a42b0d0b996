// What the page shows is asked for again and again while somebody looks at it, and at once when they come back to it.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

import { get, tenant, type Page, type Query } from "../api.js";

/** Raised by whatever changed something: everything on the page is asked for again. */
export const changes = signal(0);

export function changed(): void {
  changes.value += 1;
}

/** The time in seconds; ages follow it. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1_000);

/** How often lists are asked for again. */
export const EVERY = 2_500;

/** The longest wait after failures. */
const SLOWEST = 20_000;

export interface Polled<T> {
  value: T | undefined;
  error: unknown;
  again: () => void;
}

/** Loads something, again every while; what was loaded stays while a later attempt fails. */
export function usePoll<T>(load: (signal: AbortSignal) => Promise<T>, every: number, deps: unknown[]): Polled<T> {
  const [state, set] = useState<{ value: T | undefined; error: unknown }>({ value: undefined, error: undefined });
  const kick = useRef<() => void>(() => undefined);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) set({ value: undefined, error: undefined });
    first.current = false;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let busy = false;
    let asked = false;
    let failures = 0;
    const run = async (): Promise<void> => {
      clearTimeout(timer);
      if (busy) {
        asked = true;
        return;
      }
      busy = true;
      asked = false;
      try {
        const value = await load(stop.signal);
        failures = 0;
        if (!stop.signal.aborted) set({ value, error: undefined });
      } catch (error) {
        failures += 1;
        if (!stop.signal.aborted) set((before) => ({ value: before.value, error }));
      }
      busy = false;
      if (stop.signal.aborted) return;
      if (asked) void run();
      else if (every > 0 && !document.hidden) timer = setTimeout(run, Math.min(every * 2 ** failures, SLOWEST));
    };
    const seen = (): void => {
      if (document.hidden) clearTimeout(timer);
      else void run();
    };
    kick.current = () => void run();
    const forget = changes.subscribe(() => void run());
    document.addEventListener("visibilitychange", seen);
    return () => {
      stop.abort();
      clearTimeout(timer);
      forget();
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...deps, tenant.value]);
  return { ...state, again: () => kick.current() };
}

/** Loads one thing of the API. */
export function useGet<T>(path: string | undefined, query: Query = {}, every = EVERY): Polled<T> {
  return usePoll(
    (signal) => (path === undefined ? new Promise<T>(() => undefined) : get<T>(path, query, signal)),
    path === undefined ? 0 : every,
    [path, JSON.stringify(query)],
  );
}

export interface Listed<T> {
  rows: T[] | undefined;
  error: unknown;
  /** Rows that came while nothing was to move. */
  fresh: number;
  show: () => void;
  more: (() => void) | undefined;
  /** Tells the list whether rows may move. */
  hold: (isHeld: boolean) => void;
}

const PAGE = 50;
const PAGE_MAX = 200;

/**
 * The known rows that go on where a page of the beginning ends: those behind the last one that both have. What is new, changed
 * or gone before it is as the page says, in whatever order the list is.
 */
export function behind<T>(known: T[], page: T[], id: (row: T) => string): T[] {
  const have = new Set(page.map(id));
  const last = known.findLastIndex((row) => have.has(id(row)));
  return last < 0 ? [] : known.slice(last + 1);
}

/** A list of the API, page by page, the newest first. */
export function useList<T>(path: string, query: Query, id: (row: T) => string, every = EVERY): Listed<T> {
  const [shown, setShown] = useState<T[] | undefined>(undefined);
  const [waiting, setWaiting] = useState<T[] | undefined>(undefined);
  const rows = useRef<T[]>([]);
  const cursor = useRef<string | null>(null);
  const held = useRef(false);
  const loading = useRef(false);
  const deps = [path, JSON.stringify(query)];
  useEffect(() => {
    rows.current = [];
    cursor.current = null;
    setShown(undefined);
    setWaiting(undefined);
  }, [...deps, tenant.value]);
  const polled = usePoll(
    async (signal) => {
      const limit = Math.min(PAGE_MAX, Math.max(PAGE, rows.current.length));
      const page = await get<Page<T>>(path, { ...query, limit }, signal);
      if (signal.aborted) return 0;
      const known = rows.current;
      const rest = page.next_cursor === null ? [] : behind(known, page.data, id);
      const next = [...page.data, ...rest];
      if (rest.length === 0) cursor.current = page.next_cursor;
      const have = new Set(known.map(id));
      const isNew = next.some((row) => !have.has(id(row)));
      if (held.current && isNew && known.length > 0) {
        const by = new Map(next.map((row) => [id(row), row]));
        rows.current = known.map((row) => by.get(id(row)) ?? row);
        setWaiting(next);
      } else {
        rows.current = next;
        setWaiting(undefined);
      }
      setShown(rows.current);
      return 0;
    },
    every,
    deps,
  );
  const more = async (): Promise<void> => {
    if (loading.current || cursor.current === null) return;
    loading.current = true;
    const at = rows.current;
    try {
      const page = await get<Page<T>>(path, { ...query, limit: PAGE_MAX, cursor: cursor.current });
      const have = new Set(rows.current.map(id));
      if (rows.current.length >= at.length) {
        rows.current = [...rows.current, ...page.data.filter((row) => !have.has(id(row)))];
        cursor.current = page.next_cursor;
        setShown(rows.current);
      }
    } catch {
      // The list's own attempts tell what is wrong.
    }
    loading.current = false;
  };
  const have = new Set((shown ?? []).map(id));
  return {
    rows: shown,
    error: polled.error,
    fresh: (waiting ?? []).filter((row) => !have.has(id(row))).length,
    show: () => {
      if (waiting === undefined) return;
      rows.current = waiting;
      setShown(waiting);
      setWaiting(undefined);
    },
    more: cursor.current === null ? undefined : () => void more(),
    hold: (isHeld) => {
      held.current = isHeld;
    },
  };
}
