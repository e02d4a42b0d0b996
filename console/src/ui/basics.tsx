// The small parts that all views are made of.

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";

import { skew, words } from "../api.js";
import { link, placeOf } from "../router.js";
import { count, duration, money, plain, short, time } from "./format.js";
import { now } from "./live.js";

/** A sign for those who do not see colours, and a word for everybody. */
const SIGNS: Record<string, [string, string]> = {
  queued: ["…", "idle"],
  ready: ["…", "idle"],
  blocked: ["·", "idle"],
  idle: ["○", "idle"],
  closed: ["■", "idle"],
  running: ["▶", "busy"],
  waiting: ["◐", "wait"],
  armed: ["◷", "busy"],
  paused: ["‖", "wait"],
  completed: ["✓", "good"],
  done: ["✓", "good"],
  delivered: ["✓", "good"],
  failed: ["✕", "bad"],
  dead: ["✕", "bad"],
  refused: ["✕", "bad"],
  cancelled: ["⊘", "idle"],
  skipped: ["↷", "idle"],
  pending: ["…", "wait"],
};

export function Status({ of, on }: { of: string; on?: string | null | undefined }): JSX.Element {
  const [sign, tone] = SIGNS[of] ?? ["?", "idle"];
  return (
    <span class={`status ${tone}`}>
      <span aria-hidden="true">{sign}</span> {of}
      {on ? <span class="soft"> · {on}</span> : null}
    </span>
  );
}

/** How long ago something was, by the server's clock. */
export function Ago({ at }: { at: string | null | undefined }): JSX.Element {
  if (!at) return <span class="soft">–</span>;
  const ms = now.value + skew.value - Date.parse(at);
  const said = ms < 0 ? `in ${duration(-ms)}` : ms < 1_500 ? "now" : `${duration(ms)} ago`;
  return (
    <time dateTime={at} title={new Date(at).toISOString()}>
      {said}
    </time>
  );
}

export function At({ at }: { at: string | null | undefined }): JSX.Element {
  if (!at) return <span class="soft">–</span>;
  return (
    <time dateTime={at} title={new Date(at).toISOString()}>
      {time(at)}
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Took({ from, to }: { from: string | null | undefined; to: string | null | undefined }): JSX.Element {
  if (!from) return <span class="soft">–</span>;
  const end = to ? Date.parse(to) : now.value + skew.value;
  return <span>{duration(end - Date.parse(from))}</span>;
}

export interface Spent {
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  reasoning_tokens?: number;
  cost_usd?: number | null;
}

export function Cost({ of }: { of: Spent | null | undefined }): JSX.Element {
  return <span>{money(of?.cost_usd)}</span>;
}

/** Tokens in and out, and how much of the input came from the provider's cache. */
export function Tokens({ of }: { of: Spent | null | undefined }): JSX.Element | null {
  if (!of) return null;
  const cached = of.cache_read_tokens ?? 0;
  const share = of.input_tokens > 0 && cached > 0 ? ` · cache ${Math.round((100 * cached) / of.input_tokens)} %` : "";
  const title = `${of.input_tokens} in, ${of.output_tokens} out, ${cached} read from and ${of.cache_write_tokens ?? 0} written to the cache, ${of.reasoning_tokens ?? 0} for reasoning`;
  return (
    <span class="nowrap" title={title}>
      {count(of.input_tokens)} → {count(of.output_tokens)}
      {share}
    </span>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }): JSX.Element {
  const [done, set] = useState(false);
  const copy = async (event: Event): Promise<void> => {
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Pages without TLS have no clipboard; an old way works in all of them.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    set(true);
    setTimeout(() => set(false), 1_500);
  };
  return (
    <button type="button" class="quiet copy" onClick={copy} aria-label={done ? "copied" : `${label}: ${line(text)}`}>
      {done ? "✓" : <span class="sheets" aria-hidden="true" />}
    </button>
  );
}

function line(text: string): string {
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

export function Id({ id, full = false }: { id: string; full?: boolean }): JSX.Element {
  const path = placeOf(id);
  const shown = full ? id : short(id);
  return (
    <span class="id">
      {path === undefined ? <code title={id}>{shown}</code> : <a href={link(path)} title={id}><code>{shown}</code></a>}
      <Copy text={id} label="Copy id" />
    </span>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <p class="strong">{title}</p>
      {children}
    </div>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }): JSX.Element {
  return (
    <div class="command">
      <pre>{text}</pre>
      <Copy text={text} />
    </div>
  );
}

export function Failed({ error, what }: { error: unknown; what?: string }): JSX.Element | null {
  if (error === undefined || error === null) return null;
  const id = error instanceof Object && "requestId" in error ? String(error.requestId) : "";
  const code = error instanceof Object && "code" in error ? String(error.code) : "";
  return (
    <div class="problem" role="alert">
      <p>
        {what ? <strong>{what}: </strong> : null}
        {plain(words(error))}
      </p>
      <p class="soft small">
        {code === "" ? null : (
          <a href={`./errors/${encodeURIComponent(code)}`} target="_blank" rel="noreferrer">
            {code}
          </a>
        )}{" "}
        {id === "" ? null : (
          <>
            request <code>{id}</code> <Copy text={id} />
          </>
        )}
      </p>
    </div>
  );
}

/** What went wrong with a send, a node or a timer, with the page that explains its code. */
export function Failure({ of }: { of: { code: string; message: string } | null | undefined }): JSX.Element | null {
  if (!of) return null;
  return (
    <span class="failure">
      <a href={`./errors/${encodeURIComponent(of.code)}`} target="_blank" rel="noreferrer">
        {of.code}
      </a>{" "}
      {plain(of.message)}
    </span>
  );
}

export function Loading(): JSX.Element {
  return (
    <p class="soft loading" role="status">
      Loading…
    </p>
  );
}

export function Tabs({ names, at, onPick, label }: { names: readonly string[]; at: string; onPick: (name: string) => void; label: string }): JSX.Element {
  const keys = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const next = names[(names.indexOf(at) + step + names.length) % names.length];
    if (next === undefined) return;
    onPick(next);
    const tabs = (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]");
    tabs[names.indexOf(next)]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={keys}>
      {names.map((name) => (
        <button key={name} type="button" role="tab" aria-selected={name === at} tabIndex={name === at ? 0 : -1} onClick={() => onPick(name)}>
          {name}
        </button>
      ))}
    </div>
  );
}

/** Facts, one beside the other. */
export function Facts({ of }: { of: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A share of something as a bar. */
export function Bar({ value, max, label }: { value: number; max: number; label: string }): JSX.Element {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  return (
    <span class={`bar ${share >= 0.95 ? "full" : ""}`} role="img" aria-label={label} title={label}>
      <span style={{ width: `${share * 100}%` }} />
    </span>
  );
}
