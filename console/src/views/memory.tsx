// What agents remember.

import type { JSX } from "preact";

import { call, can, post, type Page, type Schemas } from "../api.js";
import { place } from "../router.js";
import { Ago, Empty, Failed, Id } from "../ui/basics.js";
import { act, ask } from "../ui/dialog.js";
import { Filters, asked, isFiltered } from "../ui/filters.js";
import { line, plain } from "../ui/format.js";
import { useGet, useList } from "../ui/live.js";
import { Plain, Table } from "../ui/table.js";

type Entry = Schemas["MemoryEntry"];

const FILTERS = [
  { name: "namespace", label: "namespace", hint: "user/42" },
  { name: "q", label: "text" },
] as const;

export function Memory(): JSX.Element {
  const query = asked(FILTERS);
  const list = useList<Entry>("/v1/memories", query, (row) => row.id, 5_000);
  const erasures = useGet<Page<Schemas["Erasure"]>>(can("GET /v1/memories/erasures") ? "/v1/memories/erasures" : undefined, { limit: 20 }, 15_000);
  const one = place.value.parts[1];
  const add = async (): Promise<void> => {
    const given = await ask("Remember something", {
      fields: [
        { name: "namespace", label: "Namespace", value: String(query["namespace"] ?? ""), isRequired: true },
        { name: "text", label: "Text", isLong: true, isRequired: true },
      ],
      action: "Remember",
    });
    if (given !== null) await act("Remembered", () => post("/v1/memories", given));
  };
  const change = async (entry: Entry): Promise<void> => {
    const given = await ask("Change what is remembered", { fields: [{ name: "text", label: "Text", value: entry.text, isLong: true, isRequired: true }], action: "Change" });
    if (given !== null) await act("Changed", () => call({ method: "PATCH", path: `/v1/memories/${entry.id}`, body: given }));
  };
  const forget = async (entry: Entry): Promise<void> => {
    const sure = await ask("Forget this?", { body: <p>{plain(line(entry.text))}</p>, action: "Forget", danger: true });
    if (sure !== null) await act("Forgotten", () => call({ method: "DELETE", path: `/v1/memories/${entry.id}` }));
  };
  const erase = async (): Promise<void> => {
    const namespace = String(query["namespace"] ?? "");
    const sure = await ask(`Erase all of ${namespace}?`, { body: <p>With everything below it. This cannot be undone.</p>, action: "Erase", danger: true, typed: namespace });
    if (sure !== null) await act("Erased", () => call({ method: "DELETE", path: "/v1/memories", query: { namespace } }));
  };
  const isOne = one?.startsWith("mem_") ?? false;
  return (
    <>
      <div class="row">
        <h1>Memory</h1>
        {can("POST /v1/memories") ? (
          <button type="button" class="primary" onClick={() => void add()}>
            Remember…
          </button>
        ) : null}
        {query["namespace"] && can("DELETE /v1/memories") ? (
          <button type="button" class="danger" onClick={() => void erase()}>
            Erase the namespace…
          </button>
        ) : null}
      </div>
      <Filters of={FILTERS} />
      {isOne && one !== undefined ? <One id={one} /> : null}
      <Table
        label="Memory"
        list={list}
        id={(row) => row.id}
        columns={[
          { name: "namespace", width: "12rem", cell: (row) => <code>{plain(row.namespace)}</code> },
          { name: "text", cell: (row) => <span title={plain(row.text)}>{plain(line(row.text, 160))}</span> },
          { name: "changed", width: "8rem", isNumber: true, isExtra: true, cell: (row) => <Ago at={row.updated_at} /> },
          {
            name: "",
            width: "10rem",
            cell: (row) =>
              can("PATCH /v1/memories/{id}") ? (
                <>
                  <button type="button" class="quiet" onClick={() => void change(row)}>
                    change
                  </button>
                  <button type="button" class="quiet" onClick={() => void forget(row)}>
                    forget
                  </button>
                </>
              ) : null,
          },
        ]}
        empty={
          <Empty title={isFiltered(FILTERS) ? "Nothing that matches is remembered" : "Nothing is remembered yet"}>
            <p>
              An agent remembers if its <code>memory</code> names a namespace.
            </p>
          </Empty>
        }
      />
      {(erasures.value?.data ?? []).length === 0 ? null : (
        <>
          <h2>Erasures</h2>
          <Plain
            label="Erasures"
            rows={erasures.value?.data}
            id={(row) => row.id}
            columns={[
              { name: "when", cell: (row) => <Ago at={row.erased_at} /> },
              { name: "entries", isNumber: true, cell: (row) => row.deleted },
              { name: "by", cell: (row) => plain(row.by ?? "") },
            ]}
            empty={null}
          />
        </>
      )}
    </>
  );
}

function One({ id }: { id: string }): JSX.Element {
  const entry = useGet<Entry>(`/v1/memories/${id}`);
  if (entry.value === undefined) return <Failed error={entry.error} />;
  return (
    <article class="call">
      <Id id={id} full /> <code>{plain(entry.value.namespace)}</code>
      <p>{plain(entry.value.text)}</p>
    </article>
  );
}
