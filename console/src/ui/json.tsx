// Any JSON, however large: members are made when they are opened, and long texts are cut until they are asked for.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { Copy } from "./basics.js";
import { count, plain } from "./format.js";

/** How many members of one value are shown at first. */
const MEMBERS = 100;
/** How many characters of a text. */
const LETTERS = 2_000;

export function Json({ value, open = 1, label = "" }: { value: unknown; open?: number; label?: string }): JSX.Element {
  return (
    <div class="json" role="tree" aria-label={label === "" ? "JSON" : label}>
      <Node value={value} depth={open} />
    </div>
  );
}

function Node({ name, value, depth }: { name?: string; value: unknown; depth: number }): JSX.Element {
  const isNested = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  return isNested ? <Nested name={name} value={value} depth={depth} /> : <Leaf name={name} value={value} />;
}

function Name({ name }: { name: string | undefined }): JSX.Element | null {
  return name === undefined ? null : <span class="name">{plain(name)}: </span>;
}

function Leaf({ name, value }: { name: string | undefined; value: unknown }): JSX.Element {
  const [whole, set] = useState(false);
  if (typeof value === "string") {
    const isLong = value.length > LETTERS;
    const shown = plain(isLong && !whole ? value.slice(0, LETTERS) : value);
    return (
      <div class="leaf" role="treeitem">
        <Name name={name} />
        <span class="text">{shown.includes("\n") ? shown : JSON.stringify(shown)}</span>
        {isLong && !whole ? (
          <button type="button" class="quiet" onClick={() => set(true)}>
            all {count(value.length)} characters
          </button>
        ) : null}
      </div>
    );
  }
  const kind = value === null ? "null" : typeof value;
  return (
    <div class="leaf" role="treeitem">
      <Name name={name} />
      <span class={kind}>{JSON.stringify(value) ?? String(value)}</span>
    </div>
  );
}

function Nested({ name, value, depth }: { name: string | undefined; value: object; depth: number }): JSX.Element {
  const [isOpen, set] = useState(depth > 0);
  const [most, setMost] = useState(MEMBERS);
  const isList = Array.isArray(value);
  const members = Object.entries(value) as [string, unknown][];
  const size = isList ? `[${members.length}]` : `{${members.length}}`;
  return (
    <div class="nested" role="treeitem" aria-expanded={isOpen}>
      <button type="button" class="quiet" onClick={() => set(!isOpen)} aria-label={`${isOpen ? "Close" : "Open"} ${name ?? "value"}`}>
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span>
      </button>
      <Name name={name} />
      <span class="soft">{size}</span>
      {isOpen ? (
        <div class="members" role="group">
          {members.slice(0, most).map(([key, member]) => (
            <Node key={key} name={key} value={member} depth={depth - 1} />
          ))}
          {members.length > most ? (
            <button type="button" class="quiet" onClick={() => setMost(most + 10 * MEMBERS)}>
              {count(members.length - most)} more
            </button>
          ) : null}
        </div>
      ) : null}
    </div>
  );
}

/** A value with its size and a way to copy it. */
export function Payload({ title, value, open = 2 }: { title: string; value: unknown; open?: number }): JSX.Element {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return (
    <section class="payload">
      <p class="title">
        {title} <Copy text={text ?? ""} />
      </p>
      <Json value={value} open={open} label={title} />
    </section>
  );
}
