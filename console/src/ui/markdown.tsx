// The part of Markdown that models write, as elements. No text ever becomes markup, so there is nothing to clean.

import type { ComponentChildren, JSX } from "preact";

import { Copy } from "./basics.js";
import { plain } from "./format.js";

/** Longer texts are shown as they are: a page must not stand still for one answer. */
const PARSED_MAX = 100_000;

export function Markdown({ text }: { text: string }): JSX.Element {
  const clean = plain(text);
  if (clean.length > PARSED_MAX) return <pre class="wrap">{clean}</pre>;
  return <div class="md">{blocks(clean.split("\n"))}</div>;
}

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+-]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const DELIMITER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

function blocks(lines: string[], depth = 0): ComponentChildren[] {
  const made: ComponentChildren[] = [];
  let at = 0;
  const line = (n: number): string => lines[n] ?? "";
  while (at < lines.length) {
    const text = line(at);
    const fence = FENCE.exec(text);
    if (fence !== null) {
      const end = fence[1] ?? "```";
      const body: string[] = [];
      at += 1;
      while (at < lines.length && !line(at).trim().startsWith(end)) {
        body.push(line(at));
        at += 1;
      }
      at += 1;
      const code = body.join("\n");
      made.push(
        <div class="command">
          <pre data-language={fence[2]}>{code}</pre>
          <Copy text={code} />
        </div>,
      );
      continue;
    }
    if (text.trim() === "") {
      at += 1;
      continue;
    }
    const heading = HEADING.exec(text);
    if (heading !== null) {
      made.push(<p class={`heading h${heading[1]?.length ?? 1}`}>{inline(heading[2] ?? "")}</p>);
      at += 1;
      continue;
    }
    if (RULE.test(text)) {
      made.push(<hr />);
      at += 1;
      continue;
    }
    if (/^\s{0,3}>/.test(text) && depth < 8) {
      const quoted: string[] = [];
      while (at < lines.length && /^\s{0,3}>/.test(line(at))) {
        quoted.push(line(at).replace(/^\s{0,3}>\s?/, ""));
        at += 1;
      }
      made.push(<blockquote>{blocks(quoted, depth + 1)}</blockquote>);
      continue;
    }
    if (ITEM.test(text) && depth < 8) {
      const [list, next] = items(lines, at, depth);
      made.push(list);
      at = next;
      continue;
    }
    if (text.includes("|") && DELIMITER.test(line(at + 1)) && line(at + 1).includes("-")) {
      const head = cells(text);
      const rows: string[][] = [];
      at += 2;
      while (at < lines.length && line(at).includes("|")) {
        rows.push(cells(line(at)));
        at += 1;
      }
      made.push(
        <div class="scroll">
          <table class="plain">
            <thead>
              <tr>{head.map((cell) => <th scope="col">{inline(cell)}</th>)}</tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr>{head.map((_, n) => <td>{inline(row[n] ?? "")}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>,
      );
      continue;
    }
    const body: string[] = [];
    while (at < lines.length && line(at).trim() !== "" && (body.length === 0 || !starts(line(at)))) {
      body.push(line(at));
      at += 1;
    }
    made.push(<p>{body.flatMap((part, n) => (n === 0 ? inline(part) : [<br />, ...inline(part)]))}</p>);
  }
  return made;
}

function starts(text: string): boolean {
  return FENCE.test(text) || HEADING.test(text) || ITEM.test(text) || /^\s{0,3}>/.test(text) || RULE.test(text);
}

function cells(row: string): string[] {
  return row.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** A list, and the line behind it. */
function items(lines: string[], from: number, depth: number): [JSX.Element, number] {
  const first = ITEM.exec(lines[from] ?? "");
  const indent = first?.[1]?.length ?? 0;
  const isOrdered = /\d/.test(first?.[2] ?? "");
  const made: JSX.Element[] = [];
  let at = from;
  while (at < lines.length) {
    const found = ITEM.exec(lines[at] ?? "");
    if (found === null || (found[1]?.length ?? 0) !== indent || /\d/.test(found[2] ?? "") !== isOrdered) break;
    const body = [found[3] ?? ""];
    at += 1;
    // What is indented below an item is the item's.
    for (;;) {
      const text = lines[at] ?? "";
      const isBlank = text.trim() === "" && /^\s{2,}\S/.test(lines[at + 1] ?? "");
      const isDeeper = text.trim() !== "" && text.search(/\S/) > indent;
      if (at >= lines.length || !(isBlank || isDeeper)) break;
      body.push(text.slice(Math.min(text.search(/\S/) < 0 ? 0 : text.search(/\S/), indent + 2)));
      at += 1;
    }
    made.push(<li>{body.length === 1 ? inline(body[0] ?? "") : blocks(body, depth + 1)}</li>);
  }
  const start = Number.parseInt(first?.[2] ?? "1", 10);
  return [isOrdered ? <ol start={start}>{made}</ol> : <ul>{made}</ul>, at];
}

// Each alternative is bounded, and none nests another, so that no text takes long.
const INLINE =
  /(`+)([^`]{1,2000}?)\1(?!`)|\*\*([^*\n]{1,2000}?)\*\*|__([^_\n]{1,2000}?)__|(?<![\w*])\*([^*\s][^*\n]{0,2000}?)\*(?!\w)|(?<!\w)_([^_\s][^_\n]{0,2000}?)_(?!\w)|~~([^~\n]{1,2000}?)~~|!?\[([^\]\n]{0,500})\]\(([^)\s]{1,2000})(?:\s+"[^"\n]{0,500}")?\)|(https?:\/\/[^\s<>"')\]]{1,2000})/g;

export function inline(text: string): ComponentChildren[] {
  const made: ComponentChildren[] = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > last) made.push(text.slice(last, found.index));
    last = found.index + found[0].length;
    const [whole, , code, strong, strong2, emphasis, emphasis2, struck, label, target, bare] = found;
    if (code !== undefined) made.push(<code>{code}</code>);
    else if ((strong ?? strong2) !== undefined) made.push(<strong>{strong ?? strong2}</strong>);
    else if ((emphasis ?? emphasis2) !== undefined) made.push(<em>{emphasis ?? emphasis2}</em>);
    else if (struck !== undefined) made.push(<s>{struck}</s>);
    else made.push(anchor(target ?? bare ?? "", label ?? "", whole));
  }
  if (last < text.length) made.push(text.slice(last));
  return made;
}

/** A link, with where it leads if its words do not say so; any other scheme is shown as it was written. */
function anchor(target: string, label: string, whole: string): ComponentChildren {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return whole;
  return (
    <a href={target} target="_blank" rel="noopener noreferrer nofollow" title={target}>
      {label === "" ? target : label}
    </a>
  );
}
