// Sends of all sessions: what runs, waits and has failed.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { can, post, words, type Schemas } from "../api.js";
import { go, link } from "../router.js";
import { Ago, Cost, Empty, Failed, Loading, Status, Took } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { tell } from "../ui/dialog.js";
import { Filters, asked, isFiltered } from "../ui/filters.js";
import { line, plain, short } from "../ui/format.js";
import { changed, useGet, useList } from "../ui/live.js";
import { Table } from "../ui/table.js";
import { bulk } from "./bulk.js";

type View = Schemas["SendView"];

const FILTERS = [
  { name: "status", label: "status", options: ["queued", "running", "waiting", "completed", "failed", "cancelled"] satisfies View["status"][] },
  { name: "agent", label: "agent" },
  { name: "text", label: "text" },
  { name: "session_id", label: "session" },
  { name: "created_from", label: "since", hint: "2h, 7d" },
] as const;

/** Does something to each of the selected; tells how many it worked for. */
async function each(what: string, ids: string[], path: (id: string) => string): Promise<void> {
  let done = 0;
  let why = "";
  for (const id of ids) {
    try {
      await post(path(id));
      done += 1;
    } catch (error) {
      why = words(error);
    }
  }
  tell(`${what}: ${done} of ${ids.length}${why === "" ? "" : ` – ${why}`}`, done < ids.length);
  changed();
}

export function Sends(): JSX.Element {
  const query = asked(FILTERS);
  const list = useList<View>("/v1/sends", query, (row) => row.id);
  const [selected, select] = useState<Set<string>>(new Set());
  const ids = [...selected];
  return (
    <>
      <h1>Sends</h1>
      <Filters of={FILTERS} withMetadata />
      {selected.size > 0 && can("POST /v1/sends/{id}/cancel") ? (
        <div class="row bulk" role="toolbar" aria-label="Selected sends">
          <span>{selected.size} selected</span>
          <button type="button" onClick={() => void each("Cancelled", ids, (id) => `/v1/sends/${id}/cancel`)}>
            Cancel
          </button>
          <button type="button" onClick={() => void each("Sent again", ids, (id) => `/v1/sends/${id}/retry`)}>
            Retry
          </button>
          <button type="button" class="quiet" onClick={() => select(new Set())}>
            none
          </button>
        </div>
      ) : isFiltered(FILTERS) && can("POST /v1/sends:cancel") ? (
        <div class="row bulk" role="toolbar" aria-label="All that match">
          <span class="soft">all that match:</span>
          <button type="button" onClick={() => void bulk("Cancel", "/v1/sends", "/v1/sends:cancel", query)}>
            Cancel…
          </button>
          <button type="button" onClick={() => void bulk("Retry", "/v1/sends", "/v1/sends:retry", query)}>
            Retry…
          </button>
          {can("POST /v1/sends:resume") ? (
            <button type="button" onClick={() => void bulk("Resume", "/v1/sends", "/v1/sends:resume", query)}>
              Resume…
            </button>
          ) : null}
        </div>
      ) : null}
      <Table
        label="Sends"
        list={list}
        id={(row) => row.id}
        href={(row) => link(`/sessions/${row.session_id}`, { send: row.id })}
        open={(row) => go(`/sessions/${row.session_id}`, { send: row.id })}
        selected={selected}
        onSelect={select}
        columns={[
          { name: "id", width: "9rem", cell: (row) => <code>{short(row.id)}</code> },
          { name: "status", width: "11rem", cell: (row) => <Status of={row.status} on={row.waiting_on} /> },
          { name: "says", cell: (row) => <span class={row.error ? "bad" : "soft"}>{plain(line(row.error ? `${row.error.code} ${row.error.message}` : (row.output_text ?? ""), 120))}</span> },
          { name: "rounds", width: "5rem", isNumber: true, isExtra: true, cell: (row) => row.rounds },
          { name: "took", width: "6rem", isNumber: true, isExtra: true, cell: (row) => <Took from={row.created_at} to={row.finished_at} /> },
          { name: "cost", width: "6rem", isNumber: true, isExtra: true, cell: (row) => <Cost of={row.usage} /> },
          { name: "created", width: "8rem", isNumber: true, cell: (row) => <Ago at={row.created_at} /> },
        ]}
        empty={<Empty title={isFiltered(FILTERS) ? "No send matches all filters" : "Nothing was sent yet"} />}
      />
      <details class="as">
        <summary>This list as a command</summary>
        <CopyAs asked={{ method: "GET", path: "/v1/sends", query }} />
      </details>
    </>
  );
}

/** A send is shown in its session. */
export function SendPlace({ id }: { id: string }): JSX.Element {
  const send = useGet<View>(`/v1/sends/${id}`, {}, 0);
  useEffect(() => {
    if (send.value !== undefined) location.replace(link(`/sessions/${send.value.session_id}`, { send: id }));
  }, [send.value]);
  return send.error === undefined ? <Loading /> : <Failed error={send.error} />;
}
