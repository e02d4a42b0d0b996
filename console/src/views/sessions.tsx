// All sessions.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { call, can, post, type Page, type Schemas } from "../api.js";
import { go, link, place, refine } from "../router.js";
import { Ago, Command, Empty, Status } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask, tell } from "../ui/dialog.js";
import { Filters, asked, isFiltered } from "../ui/filters.js";
import { plain, short } from "../ui/format.js";
import { useList } from "../ui/live.js";
import { Table } from "../ui/table.js";
import { bulk } from "./bulk.js";

type View = Schemas["SessionView"];

const FILTERS = [
  { name: "status", label: "status", options: ["idle", "queued", "running", "waiting", "closed"] satisfies View["status"][] },
  { name: "agent", label: "agent" },
  { name: "key", label: "key" },
  { name: "created_from", label: "since", hint: "2h, 7d" },
] as const;

export function agentOf(session: { agent_ref?: { name: string; version: number } | null; agent?: { name?: string | null } | null }): string {
  if (session.agent_ref) return `${session.agent_ref.name} v${session.agent_ref.version}`;
  return session.agent?.name ?? "inline";
}

/** What tells a session from others: its metadata in a line. */
export function titleOf(metadata: unknown): string {
  if (typeof metadata !== "object" || metadata === null) return "";
  return Object.entries(metadata)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" ");
}

/** Creates a session with its first message. */
export async function begin(): Promise<void> {
  const agents = await call<Page<Schemas["NamedAgent"]>>({ method: "GET", path: "/v1/agents", query: { limit: 200 } }).then(
    (page) => page.data.map((agent) => agent.name),
    () => [],
  );
  const given = await ask("New session", {
    fields: [
      { name: "agent", label: "Agent", options: ["(none)", ...agents] },
      { name: "input", label: "First message", isLong: true, isRequired: true, hint: "The demo model echoes it; !stream 20x100ms shows how an answer streams." },
    ],
    action: "Send",
  });
  if (given === null) return;
  const named = given["agent"] === "(none)" ? {} : { session: { agent: given["agent"] } };
  const sent = await act("Sent", () => post<{ id: string; session_id: string }>("/v1/sends", { input: given["input"], ...named }));
  if (sent !== undefined) go(`/sessions/${sent.session_id}`);
}

export function Sessions(): JSX.Element {
  const query = asked(FILTERS);
  const list = useList<View>("/v1/sessions", query, (row) => row.id);
  const [selected, select] = useState<Set<string>>(new Set());
  useEffect(() => {
    if (place.value.query.get("new") === null) return;
    refine({ new: undefined });
    void begin();
  }, [place.value.query.get("new")]);
  const remove = async (): Promise<void> => {
    const ids = [...selected];
    const sure = await ask(`Delete ${ids.length} sessions?`, {
      body: <p>With their transcripts, timers and what runs in them. This cannot be undone.</p>,
      action: "Delete",
      danger: true,
      typed: ids.length >= 100 ? String(ids.length) : "",
    });
    if (sure === null) return;
    let done = 0;
    for (const id of ids) {
      const gone = await call({ method: "DELETE", path: `/v1/sessions/${id}` }).then(
        () => true,
        () => false,
      );
      if (gone) done += 1;
    }
    tell(`${done} of ${ids.length} deleted`, done < ids.length);
    select(new Set());
  };
  return (
    <>
      <div class="row">
        <h1>Sessions</h1>
        {can("POST /v1/sends") ? (
          <button type="button" class="primary" onClick={() => void begin()}>
            New session
          </button>
        ) : null}
      </div>
      <Filters of={FILTERS} withMetadata />
      {selected.size > 0 ? (
        <div class="row bulk" role="toolbar" aria-label="Selected sessions">
          <span>{selected.size} selected</span>
          {can("DELETE /v1/sessions/{id}") ? (
            <button type="button" class="danger" onClick={() => void remove()}>
              Delete…
            </button>
          ) : null}
          <button type="button" class="quiet" onClick={() => select(new Set())}>
            none
          </button>
        </div>
      ) : isFiltered(FILTERS) && can("POST /v1/sessions:delete") ? (
        <div class="row bulk">
          <button type="button" class="danger" onClick={() => void bulk("Delete", "/v1/sessions", "/v1/sessions:delete", query)}>
            Delete all that match…
          </button>
        </div>
      ) : null}
      <Table
        label="Sessions"
        list={list}
        id={(row) => row.id}
        href={(row) => link(`/sessions/${row.id}`)}
        open={(row) => go(`/sessions/${row.id}`)}
        selected={selected}
        onSelect={select}
        columns={[
          { name: "id", width: "9rem", cell: (row) => <code>{short(row.id)}</code> },
          { name: "status", width: "8rem", cell: (row) => <Status of={row.status} /> },
          { name: "agent", width: "12rem", cell: (row) => plain(agentOf(row)) },
          { name: "metadata", isExtra: true, cell: (row) => <span class="soft">{plain(titleOf(row.metadata))}</span> },
          { name: "messages", width: "6rem", isNumber: true, isExtra: true, cell: (row) => row.messages },
          { name: "changed", width: "8rem", isNumber: true, cell: (row) => <Ago at={row.updated_at} /> },
        ]}
        empty={
          isFiltered(FILTERS) ? (
            <Empty title="No session matches all filters" />
          ) : (
            <Empty title="There is no session yet">
              <p>A send makes one:</p>
              <Command text={'mainspring send --wait "hello"'} />
            </Empty>
          )
        }
      />
      <details class="as">
        <summary>This list as a command</summary>
        <CopyAs asked={{ method: "GET", path: "/v1/sessions", query }} />
      </details>
    </>
  );
}
