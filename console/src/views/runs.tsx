// Runs of workflows.

import type { JSX } from "preact";

import { can, post, type Schemas } from "../api.js";
import { go, link } from "../router.js";
import { Ago, Command, Cost, Empty, Status, Took } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask } from "../ui/dialog.js";
import { Filters, asked, isFiltered } from "../ui/filters.js";
import { plain, short } from "../ui/format.js";
import { useList } from "../ui/live.js";
import { Table } from "../ui/table.js";
import { bulk } from "./bulk.js";

type View = Schemas["RunView"];

const FILTERS = [
  { name: "status", label: "status", options: ["queued", "running", "waiting", "completed", "failed", "cancelled"] satisfies View["status"][] },
  { name: "name", label: "name" },
  { name: "session_id", label: "session" },
  { name: "created_from", label: "since", hint: "2h, 7d" },
] as const;

const EXAMPLE = {
  name: "greetings",
  root: {
    type: "foreach",
    id: "all",
    as: "name",
    items_from: "input",
    body: { type: "agent", id: "greet", input: "Hello {{name}}", spec: { name: "greeter", system_prompt: "You greet people.", tools: [] } },
  },
};

async function begin(): Promise<void> {
  const given = await ask("Run a workflow", {
    fields: [
      { name: "spec", label: "Workflow, as JSON", value: JSON.stringify(EXAMPLE, null, 2), isLong: true, isRequired: true },
      { name: "input", label: "Input, as JSON; its own if empty", value: '["Ada", "Grace"]' },
    ],
    action: "Run",
  });
  if (given === null) return;
  const made = await act("Runs", async () => {
    const input = (given["input"] ?? "").trim();
    return post<View>("/v1/runs", { spec: given["spec"], ...(input === "" ? {} : { input: JSON.parse(input) as unknown }) });
  });
  if (made !== undefined) go(`/runs/${made.id}`);
}

export function Counts({ of }: { of: Schemas["RunCounts"] }): JSX.Element {
  const parts: [string, number][] = [
    ["good", of.completed],
    ["busy", of.live],
    ["bad", of.failed],
    ["idle", of.cancelled + of.skipped],
  ];
  const label = `${of.completed} of ${of.leaves} leaves completed, ${of.live} in flight, ${of.failed} failed, ${of.cancelled} cancelled, ${of.skipped} skipped`;
  return (
    <span class="counts" role="img" aria-label={label} title={label}>
      {parts.map(([tone, n]) => (n === 0 ? null : <span key={tone} class={tone} style={{ flexGrow: String(n) }} />))}
      {of.leaves > of.completed + of.live + of.failed + of.cancelled + of.skipped ? (
        <span style={{ flexGrow: String(of.leaves - of.completed - of.live - of.failed - of.cancelled - of.skipped) }} />
      ) : null}
    </span>
  );
}

export function Runs(): JSX.Element {
  const query = asked(FILTERS);
  const list = useList<View>("/v1/runs", query, (row) => row.id);
  return (
    <>
      <div class="row">
        <h1>Runs</h1>
        {can("POST /v1/runs") ? (
          <button type="button" class="primary" onClick={() => void begin()}>
            Run a workflow
          </button>
        ) : null}
      </div>
      <Filters of={FILTERS} withMetadata />
      {isFiltered(FILTERS) && can("POST /v1/runs:cancel") ? (
        <div class="row bulk" role="toolbar" aria-label="All that match">
          <span class="soft">all that match:</span>
          <button type="button" onClick={() => void bulk("Cancel", "/v1/runs", "/v1/runs:cancel", query)}>
            Cancel…
          </button>
          {can("POST /v1/runs:retry") ? (
            <button type="button" onClick={() => void bulk("Retry", "/v1/runs", "/v1/runs:retry", query)}>
              Retry…
            </button>
          ) : null}
        </div>
      ) : null}
      <Table
        label="Runs"
        list={list}
        id={(row) => row.id}
        href={(row) => link(`/runs/${row.id}`)}
        open={(row) => go(`/runs/${row.id}`)}
        columns={[
          { name: "name", cell: (row) => plain(row.name || short(row.id)) },
          { name: "status", width: "10rem", cell: (row) => <Status of={row.paused_at ? "paused" : row.status} /> },
          { name: "leaves", width: "10rem", cell: (row) => <Counts of={row.counts} /> },
          { name: "took", width: "6rem", isNumber: true, isExtra: true, cell: (row) => <Took from={row.started_at} to={row.finished_at} /> },
          { name: "cost", width: "6rem", isNumber: true, isExtra: true, cell: (row) => <Cost of={row.usage} /> },
          { name: "created", width: "8rem", isNumber: true, cell: (row) => <Ago at={row.created_at} /> },
        ]}
        empty={
          isFiltered(FILTERS) ? (
            <Empty title="No run matches all filters" />
          ) : (
            <Empty title="No workflow has run yet">
              <Command text={'mainspring run examples/workflows/research.json --input "the history of tea"'} />
            </Empty>
          )
        }
      />
      <details class="as">
        <summary>This list as a command</summary>
        <CopyAs asked={{ method: "GET", path: "/v1/runs", query }} />
      </details>
    </>
  );
}
