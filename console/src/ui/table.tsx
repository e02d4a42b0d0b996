// Lists of any length: only the rows in sight are elements.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { Failed, Loading } from "./basics.js";
import { useKeys } from "./keys.js";
import type { Listed } from "./live.js";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** Its width as CSS has it. */
  width?: string;
  isNumber?: boolean;
  /** Whether a narrow window leaves it out. */
  isExtra?: boolean;
}

export interface TableProps<T> {
  label: string;
  list: Listed<T>;
  columns: Column<T>[];
  id: (row: T) => string;
  open?: (row: T) => void;
  href?: (row: T) => string;
  empty: ComponentChildren;
  selected?: Set<string>;
  onSelect?: (selected: Set<string>) => void;
}

/** The height of each row in pixels, as in the style sheet. */
const ROW = 37;
/** How many rows out of sight are there for those who scroll fast. */
const SPARE = 12;

export function Table<T>({ label, list, columns, id, open, href, empty, selected, onSelect }: TableProps<T>): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(800);
  const [at, setAt] = useState(-1);
  const rows = list.rows ?? [];
  const isPicking = selected !== undefined && onSelect !== undefined;

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setHeight(element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, [list.rows === undefined]);

  list.hold(top > ROW || (selected?.size ?? 0) > 0);

  const from = Math.max(0, Math.floor(top / ROW) - SPARE);
  const to = Math.min(rows.length, Math.ceil((top + height) / ROW) + SPARE);
  useEffect(() => {
    if (to >= rows.length - 2 * SPARE) list.more?.();
  }, [to, rows.length]);

  const move = (next: number): void => {
    const n = Math.max(0, Math.min(rows.length - 1, next));
    setAt(n);
    const element = box.current;
    if (element === null) return;
    if (n * ROW < element.scrollTop) element.scrollTop = n * ROW;
    else if ((n + 2) * ROW > element.scrollTop + element.clientHeight) element.scrollTop = (n + 2) * ROW - element.clientHeight;
  };
  const pick = (row: T): void => {
    if (!isPicking) return;
    const next = new Set(selected);
    if (!next.delete(id(row))) next.add(id(row));
    onSelect(next);
  };
  const current = rows[at];
  useKeys(
    label,
    [
      { keys: "j", does: "next row", run: () => move(at + 1) },
      { keys: "k", does: "row before", run: () => move(at - 1) },
      ...(open ? [{ keys: "Enter", does: "open the row", run: () => current !== undefined && open(current) }] : []),
      ...(isPicking ? [{ keys: "x", does: "select the row", run: () => current !== undefined && pick(current) }] : []),
    ],
  );

  if (list.rows === undefined) return list.error === undefined ? <Loading /> : <Failed error={list.error} what={label} />;
  return (
    <div class="list">
      {list.error === undefined ? null : <Failed error={list.error} what="Not up to date" />}
      {list.fresh > 0 ? (
        <button
          type="button"
          class="fresh"
          onClick={() => {
            list.show();
            if (box.current !== null) box.current.scrollTop = 0;
          }}
        >
          {list.fresh} new ↑
        </button>
      ) : null}
      {rows.length === 0 ? (
        empty
      ) : (
        <div
          class="box"
          ref={box}
          tabIndex={0}
          role="region"
          aria-label={label}
          onScroll={(event) => {
            const y = event.currentTarget.scrollTop;
            // A new row in sight is a reason to draw, a pixel is not.
            if (Math.floor(y / ROW) !== Math.floor(top / ROW)) setTop(y);
          }}
        >
          <table aria-rowcount={list.more === undefined ? rows.length + 1 : -1}>
            <thead>
              <tr aria-rowindex={1}>
                {isPicking ? (
                  <th scope="col" class="tick">
                    <input
                      type="checkbox"
                      aria-label="Select all rows that are loaded"
                      checked={rows.length > 0 && selected.size === rows.length}
                      onChange={() => onSelect(selected.size === rows.length ? new Set() : new Set(rows.map(id)))}
                    />
                  </th>
                ) : null}
                {columns.map((column) => (
                  <th key={column.name} scope="col" class={classes(column)} style={column.width ? { width: column.width } : undefined}>
                    {column.name || <span class="hidden">actions</span>}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {from > 0 ? <tr aria-hidden="true" class="spacer" style={{ height: `${from * ROW}px` }} /> : null}
              {rows.slice(from, to).map((row, n) => {
                const key = id(row);
                const isAt = from + n === at;
                return (
                  <tr
                    key={key}
                    aria-rowindex={from + n + 2}
                    class={`${isAt ? "at" : ""} ${selected?.has(key) ? "picked" : ""} ${open ? "opens" : ""}`}
                    onClick={(event) => {
                      setAt(from + n);
                      const isPart = event.target instanceof Element && event.target.closest("a,button,input") !== null;
                      if (!isPart && getSelection()?.isCollapsed !== false) open?.(row);
                    }}
                  >
                    {isPicking ? (
                      <td class="tick">
                        <input type="checkbox" aria-label={`Select ${key}`} checked={selected.has(key)} onChange={() => pick(row)} />
                      </td>
                    ) : null}
                    {columns.map((column, k) => (
                      <td key={column.name} class={classes(column)}>
                        {k === 0 && href ? <a href={href(row)}>{column.cell(row)}</a> : column.cell(row)}
                      </td>
                    ))}
                  </tr>
                );
              })}
              {to < rows.length ? <tr aria-hidden="true" class="spacer" style={{ height: `${(rows.length - to) * ROW}px` }} /> : null}
            </tbody>
          </table>
        </div>
      )}
      <p class="soft small foot" role="status">
        {rows.length} loaded{list.more === undefined ? "" : ", there are more"}
      </p>
    </div>
  );
}

function classes<T>(column: Column<T>): string {
  return `${column.isNumber ? "number" : ""} ${column.isExtra ? "extra" : ""}`.trim();
}

/** A short list without pages. */
export function Plain<T>({ label, rows, columns, id, empty }: { label: string; rows: T[] | undefined; columns: Column<T>[]; id: (row: T) => string; empty: ComponentChildren }): JSX.Element {
  if (rows === undefined) return <Loading />;
  if (rows.length === 0) return <>{empty}</>;
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table class="plain">
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} scope="col" class={classes(column)}>
                {column.name || <span class="hidden">actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td key={column.name} class={classes(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
