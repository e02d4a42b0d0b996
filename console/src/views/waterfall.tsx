// The spans of sends, one below the other.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { skew } from "../api.js";
import { Empty } from "../ui/basics.js";
import { count, duration, money, plain } from "../ui/format.js";
import { now } from "../ui/live.js";
import { scaleOf, type Span } from "./timeline.js";

export interface Picked {
  call?: string;
  round?: number;
  send?: string;
}

export function Waterfall({ spans, picked, onPick }: { spans: Span[]; picked: Picked; onPick: (picked: Picked) => void }): JSX.Element {
  const [folds, setFolds] = useState(true);
  if (spans.length === 0) return <Empty title="Nothing has happened in this send yet" />;
  const end = spans.some((span) => span.end === undefined) ? now.value + skew.value : Math.max(...spans.map((span) => span.end ?? 0));
  const scale = scaleOf(spans, end, folds);
  const first = Math.min(...spans.map((span) => span.start));
  return (
    <div class="fall">
      <div class="row small">
        <span class="soft">{duration(end - first)} in all</span>
        <label>
          <input type="checkbox" checked={!folds} onChange={(event) => setFolds(!event.currentTarget.checked)} /> waits in full
        </label>
      </div>
      <ol aria-label="Timeline">
        {spans.map((span, n) => {
          const left = scale.at(span.start);
          const width = Math.max(0, scale.at(span.end ?? end) - left);
          const isAt = (span.call !== undefined && span.call === picked.call) || (span.call === undefined && span.round !== undefined && span.round === picked.round && span.send === picked.send);
          return (
            <li key={n} class={isAt ? "at" : ""}>
              <button type="button" onClick={() => onPick({ call: span.call, round: span.round, send: span.send })} title={title(span, end)}>
                <span class="label">{plain(span.label)}</span>
                <span class="track">
                  <span class={`span ${span.kind} ${span.tone}`} style={{ left: `${left * 100}%`, width: `${width * 100}%` }} />
                </span>
                <span class="took">{span.kind === "mark" ? "" : duration((span.end ?? end) - span.start)}</span>
              </button>
              {span.usage ? (
                <span class="soft small detail">
                  {span.note ? `${plain(span.note)} · ` : ""}
                  {count(span.usage.input_tokens)} → {count(span.usage.output_tokens)} tokens
                  {span.usage.cache_read_tokens > 0 ? ` · cache ${Math.round((100 * span.usage.cache_read_tokens) / Math.max(1, span.usage.input_tokens))} %` : ""}
                  {span.usage.cost_usd ? ` · ${money(span.usage.cost_usd)}` : ""}
                </span>
              ) : span.note ? (
                <span class="soft small detail">{plain(span.note)}</span>
              ) : null}
            </li>
          );
        })}
      </ol>
      {scale.folds.length === 0 ? null : (
        <p class="soft small">
          Folded: {scale.folds.map((fold) => duration(fold.ms)).join(", ")} in which nothing happened.
        </p>
      )}
    </div>
  );
}

function title(span: Span, now: number): string {
  const from = new Date(span.start).toISOString();
  if (span.kind === "mark") return `${span.label} at ${from}`;
  return `${span.label}: ${duration((span.end ?? now) - span.start)} from ${from}`;
}
