// What else there is about a session.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { get, post, type Page, type Schemas } from "../../api.js";
import { link, refine } from "../../router.js";
import { Ago, Bar, Cost, Empty, Facts, Failed, Loading, Status, Tokens } from "../../ui/basics.js";
import { count, line, money, plain } from "../../ui/format.js";
import { Payload } from "../../ui/json.js";
import { useGet } from "../../ui/live.js";
import { agentOf, titleOf } from "../sessions.js";
import type { SendView } from "../transcript.js";
import { drafts } from "./composer.js";
import { textOf } from "./conversation.js";

export function SendList({ sends, more, id }: { sends: SendView[]; more: boolean; id: string }): JSX.Element {
  if (sends.length === 0) return <Empty title="No send yet" />;
  return (
    <>
      <ul class="sends">
        {sends.map((send) => (
          <li key={send.id}>
            <button type="button" onClick={() => refine({ send: send.id, tab: "Timeline" })}>
              <Status of={send.status} on={send.waiting_on} /> <Ago at={send.created_at} /> <Tokens of={send.usage} /> <Cost of={send.usage} />
              <span class="soft">{plain(line(send.error ? `${send.error.code} ${send.error.message}` : (send.output_text ?? ""), 80))}</span>
            </button>
          </li>
        ))}
      </ul>
      {more ? <a href={link("/sends", { session_id: id })}>All sends</a> : null}
    </>
  );
}

export function Context({ id }: { id: string }): JSX.Element {
  const draft = (drafts.get(id) ?? "").trim();
  const [preview, set] = useState<Schemas["Preview"] | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  const load = async (): Promise<void> => {
    try {
      set(draft === "" ? await get<Schemas["Preview"]>(`/v1/sessions/${id}/context`) : await post<Schemas["Preview"]>(`/v1/sessions/${id}/context`, { input: draft, request: true }));
      setError(undefined);
    } catch (failed) {
      setError(failed);
    }
  };
  useEffect(() => void load(), [id]);
  return (
    <>
      <div class="row">
        <span class="soft">{draft === "" ? "The next model call" : "The model call for what is written below"}</span>
        <button type="button" onClick={() => void load()}>
          Ask again
        </button>
      </div>
      <Failed error={error} />
      {preview === undefined ? null : (
        <>
          <Facts
            of={[
              ["model", `${preview.provider}/${preview.model}`],
              ["tokens", `${count(preview.tokens)} of ${count(preview.budget)}`],
              ["likely cached", count(preview.cached)],
              ["cost", money((preview.cost as { usd?: number } | null)?.usd)],
            ]}
          />
          <Bar value={preview.tokens} max={preview.budget} label={`${preview.tokens} of ${preview.budget} tokens`} />
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">part</th>
                <th scope="col" class="number">
                  count
                </th>
                <th scope="col" class="number">
                  tokens
                </th>
                <th scope="col" class="number">
                  cached
                </th>
              </tr>
            </thead>
            <tbody>
              {preview.parts.map((part, n) => (
                <tr key={n}>
                  <td>{part.kind}</td>
                  <td class="number">{part.count}</td>
                  <td class="number">{count(part.tokens)}</td>
                  <td class="number">{count(part.cached)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {preview.next_fold ? (
            <p class="note">
              Messages {preview.next_fold.from_seq}–{preview.next_fold.to_seq} would be folded ({preview.next_fold.strategy}, {preview.next_fold.when}).
            </p>
          ) : null}
          {(preview.limits ?? []).map((limit) => (
            <p key={limit.code} class="note">
              <code>{limit.code}</code> {plain(limit.detail)}
            </p>
          ))}
          {preview.request ? <Payload title="request" value={preview.request} open={1} /> : null}
        </>
      )}
    </>
  );
}

export function Lists({ id }: { id: string }): JSX.Element {
  const lists = useGet<Schemas["SessionLists"]>(`/v1/sessions/${id}/lists`);
  if (lists.value === undefined) return lists.error === undefined ? <Loading /> : <Failed error={lists.error} />;
  const all = [
    ["To do", lists.value.todo],
    ["Notes", lists.value.notes],
    ["Board", lists.value.board],
  ] as const;
  return (
    <>
      {all.map(([title, entries]) => (
        <section key={title}>
          <h2>{title}</h2>
          {entries.length === 0 ? (
            <p class="soft">empty</p>
          ) : (
            <ul>
              {entries.map((entry) => (
                <li key={entry.id}>
                  {entry.status ? <span class="tag">{plain(entry.status)}</span> : null} {plain(entry.text)} {entry.author ? <span class="soft small">{plain(entry.author)}</span> : null}
                </li>
              ))}
            </ul>
          )}
        </section>
      ))}
    </>
  );
}

export function Children({ id }: { id: string }): JSX.Element {
  const children = useGet<Page<Schemas["SessionView"]>>(`/v1/sessions/${id}/children`, { limit: 100 });
  const runs = useGet<Page<Schemas["RunView"]>>("/v1/runs", { session_id: id, limit: 50 });
  if (children.value === undefined) return children.error === undefined ? <Loading /> : <Failed error={children.error} />;
  const rows = children.value.data;
  return (
    <>
      <h2>Sub-agents</h2>
      {rows.length === 0 ? <p class="soft">none</p> : <Tree rows={rows} />}
      <h2>Runs</h2>
      {(runs.value?.data ?? []).length === 0 ? <p class="soft">none</p> : null}
      <ul>
        {(runs.value?.data ?? []).map((run) => (
          <li key={run.id}>
            <a href={link(`/runs/${run.id}`)}>{plain(run.name || "workflow")}</a> <Status of={run.status} /> <Ago at={run.created_at} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Tree({ rows }: { rows: Schemas["SessionView"][] }): JSX.Element {
  return (
    <ul class="tree">
      {rows.map((row) => (
        <Branch key={row.id} row={row} />
      ))}
    </ul>
  );
}

/** A sub-agent; those below it are asked for when it is opened. */
function Branch({ row }: { row: Schemas["SessionView"] }): JSX.Element {
  const [open, set] = useState(false);
  const below = useGet<Page<Schemas["SessionView"]>>(open ? `/v1/sessions/${row.id}/children` : undefined, { limit: 100 });
  return (
    <li>
      <button type="button" class="quiet" aria-expanded={open} aria-label={open ? "Close" : "Open"} onClick={() => set(!open)}>
        {open ? "▾" : "▸"}
      </button>
      <a href={link(`/sessions/${row.id}`)}>{plain(titleOf(row.metadata) || agentOf(row))}</a> <Status of={row.status} /> <Ago at={row.created_at} />
      {open && below.value !== undefined ? below.value.data.length === 0 ? <p class="soft">nothing below</p> : <Tree rows={below.value.data} /> : null}
    </li>
  );
}

export function Items({ id }: { id: string }): JSX.Element {
  const items = useGet<Page<Schemas["InboxItem"]>>(`/v1/sessions/${id}/inbox`, { limit: 100 });
  if (items.value === undefined) return items.error === undefined ? <Loading /> : <Failed error={items.error} />;
  if (items.value.data.length === 0) return <Empty title="Nothing was delivered to this session while it was busy" />;
  return (
    <ul>
      {items.value.data.map((item) => (
        <li key={item.id}>
          <span class="tag">{item.mode}</span> <span class="tag">{item.fate}</span> <Ago at={item.created_at} /> {plain(line(textOf(item.content), 120))}
        </li>
      ))}
    </ul>
  );
}

export function SessionUsage({ id }: { id: string }): JSX.Element {
  const usage = useGet<{ own: Schemas["UsageView"]; below?: Schemas["UsageView"] } & Record<string, unknown>>(`/v1/sessions/${id}/usage`);
  if (usage.value === undefined) return usage.error === undefined ? <Loading /> : <Failed error={usage.error} />;
  return (
    <>
      {Object.entries(usage.value)
        .filter((entry): entry is [string, Schemas["UsageView"]] => typeof entry[1] === "object" && entry[1] !== null && "usage" in (entry[1] as object))
        .map(([name, view]) => (
          <section key={name}>
            <h2>{name}</h2>
            <Facts
              of={[
                ["model calls", count(view.calls)],
                ["tokens", <Tokens of={view.usage} />],
                ["cost", <Cost of={view.usage} />],
              ]}
            />
          </section>
        ))}
      <Payload title="usage" value={usage.value} open={2} />
    </>
  );
}
