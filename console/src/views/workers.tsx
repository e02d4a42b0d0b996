// Who does the work, what waits for them, and what is paused.

import type { JSX } from "preact";

import { can, info, post, type Page, type Schemas } from "../api.js";
import { Ago, Bar, Command, Empty, Failed, Facts } from "../ui/basics.js";
import { act, ask } from "../ui/dialog.js";
import { count, duration, plain } from "../ui/format.js";
import { useGet } from "../ui/live.js";
import { Plain } from "../ui/table.js";
import { Payload } from "../ui/json.js";

type Worker = Schemas["WorkerView"];
type Pool = Schemas["QueueStats"] & { depth?: number | null };
type Pause = Schemas["Pause"];

/** From when on work that waits is worth a word. */
const LATE = 10_000;

interface Row {
  name: string;
  stats: Pool | undefined;
  workers: number;
  slots: number;
  used: number;
}

function rowsOf(pools: Pool[], workers: Worker[]): Row[] {
  const names = new Set([...pools.map((pool) => pool.pool), ...workers.map((worker) => worker.pool)]);
  return [...names].sort().map((name) => {
    const own = workers.filter((worker) => worker.pool === name);
    return {
      name,
      stats: pools.find((pool) => pool.pool === name),
      workers: own.length,
      slots: own.reduce((sum, worker) => sum + worker.concurrency, 0),
      used: own.reduce((sum, worker) => sum + worker.in_flight, 0),
    };
  });
}

const PLACES = { pool: "pools", provider: "providers", tool: "tools", agent: "agents", tenant: "tenants" } as const;

export async function pause(kind: keyof typeof PLACES, name: string): Promise<void> {
  const given = await ask(`Pause ${kind} ${name}?`, {
    body: <p>What needs it waits; nothing is refused or lost.</p>,
    fields: [{ name: "reason", label: "Why? People see it." }],
    action: "Pause",
  });
  if (given === null) return;
  const reason = given["reason"] ?? "";
  await act("Paused", () => post(`/v1/${PLACES[kind]}/${encodeURIComponent(name)}/pause`, reason === "" ? {} : { reason }));
}

function canResume(kind: Pause["kind"]): boolean {
  return can(kind === "tenant" ? "POST /v1/tenants/{id}/resume" : `POST /v1/${PLACES[kind]}/{name}/resume`);
}

function resume(kind: string, name: string): Promise<unknown> {
  const place = PLACES[kind as keyof typeof PLACES];
  return act("Goes on", () => post(`/v1/${place}/${encodeURIComponent(name)}/resume`));
}

export function Workers(): JSX.Element {
  const queue = useGet<Page<Pool>>(can("GET /v1/queue") ? "/v1/queue" : undefined);
  const workers = useGet<Page<Worker>>(can("GET /v1/workers") ? "/v1/workers" : undefined);
  const pauses = useGet<Page<Pause>>("/v1/pauses", { limit: 200 });
  const all = workers.value?.data ?? [];
  const isKnown = can("GET /v1/queue") && can("GET /v1/workers");
  const rows = !isKnown ? [] : queue.value === undefined || workers.value === undefined ? undefined : rowsOf(queue.value.data, all);
  const paused = pauses.value?.data ?? [];
  return (
    <>
      <h1>Workers</h1>
      {can("GET /v1/workers") ? null : <p class="note">Pools and workers are for operators.</p>}
      <Failed error={queue.error ?? workers.error} />
      <h2>Pools</h2>
      <Plain
        label="Pools"
        rows={rows}
        id={(row) => row.name}
        columns={[
          { name: "pool", cell: (row) => plain(row.name) },
          { name: "ready", isNumber: true, cell: (row) => count(row.stats?.ready ?? 0) },
          { name: "running", isNumber: true, cell: (row) => count(row.stats?.running ?? row.used) },
          {
            name: "oldest",
            isNumber: true,
            cell: (row) => {
              const ms = row.stats?.oldest_ready_ms ?? 0;
              return <span class={ms > LATE ? "bad" : ""}>{row.stats?.ready ? duration(ms) : "–"}</span>;
            },
          },
          { name: "jobs", isNumber: true, cell: (row) => (row.stats?.depth == null ? "–" : count(row.stats.depth)) },
          { name: "workers", isNumber: true, cell: (row) => row.workers },
          { name: "slots", cell: (row) => (row.workers === 0 ? <span class={row.stats?.ready ? "bad" : "soft"}>no worker serves it</span> : <Bar value={row.used} max={row.slots} label={`${row.used} of ${row.slots} slots`} />) },
          {
            name: "",
            cell: (row) =>
              paused.some((one) => one.kind === "pool" && one.name === row.name) ? (
                <button type="button" onClick={() => void resume("pool", row.name)}>
                  Resume
                </button>
              ) : can("POST /v1/pools/{name}/pause") ? (
                <button type="button" onClick={() => void pause("pool", row.name)}>
                  Pause…
                </button>
              ) : null,
          },
        ]}
        empty={
          isKnown ? (
            <Empty title="No worker, and nothing that waits for one">
              <Command text="mainspring worker" />
            </Empty>
          ) : (
            <p class="soft">not shown to this key</p>
          )
        }
      />
      <h2>Workers</h2>
      <Plain
        label="Workers"
        rows={isKnown ? workers.value?.data : []}
        id={(row) => row.id}
        columns={[
          { name: "name", cell: (row) => plain(row.name) },
          { name: "pool", cell: (row) => plain(row.pool) },
          { name: "in flight", cell: (row) => <Bar value={row.in_flight} max={row.concurrency} label={`${row.in_flight} of ${row.concurrency} slots`} /> },
          { name: "slots", isNumber: true, cell: (row) => `${row.in_flight}/${row.concurrency}` },
          { name: "lease", cell: (row) => <Ago at={row.lease_until} /> },
          { name: "started", cell: (row) => <Ago at={row.started_at} /> },
          { name: "protocol", isNumber: true, cell: (row) => row.protocol },
        ]}
        empty={
          isKnown ? (
            <Empty title="No worker is alive">
              <p>Work is kept until one is.</p>
              <Command text="mainspring worker" />
            </Empty>
          ) : (
            <p class="soft">not shown to this key</p>
          )
        }
      />
      {new Set(all.map((worker) => worker.protocol)).size > 1 ? <p class="note">Workers of two releases are running.</p> : null}
      <h2>Paused</h2>
      <Failed error={pauses.error} />
      <Plain
        label="Paused"
        rows={pauses.value?.data}
        id={(row) => `${row.kind} ${row.name} ${row.tenant ?? ""}`}
        columns={[
          { name: "what", cell: (row) => row.kind },
          { name: "name", cell: (row) => plain(row.name) },
          { name: "since", cell: (row) => <Ago at={row.created_at} /> },
          { name: "why", cell: (row) => plain(row.reason ?? "") },
          {
            name: "",
            cell: (row) =>
              canResume(row.kind) ? (
                <button type="button" onClick={() => void resume(row.kind, row.name)}>
                  Resume
                </button>
              ) : null,
          },
        ]}
        empty={<p class="soft">Nothing is paused.</p>}
      />
      <div class="row">
          {(["provider", "tool"] as const).filter((kind) => can(`POST /v1/${PLACES[kind]}/{name}/pause`)).map((kind) => (
            <button
              key={kind}
              type="button"
              onClick={async () => {
                const given = await ask(`Pause a ${kind}`, { fields: [{ name: "name", label: "Name", isRequired: true }], action: "Next" });
                if (given?.["name"]) await pause(kind, given["name"]);
              }}
            >
              Pause a {kind}…
            </button>
          ))}
      </div>
      <h2>This server</h2>
      <Health />
    </>
  );
}

function Health(): JSX.Element {
  const said = useGet<Record<string, unknown>>("/v1/info");
  const server = said.value ?? info.value;
  if (!server) return <Failed error={said.error} />;
  const queue = server["queue"] as { available?: boolean; trouble?: string | null } | undefined;
  const bus = server["bus"] as { available?: boolean } | undefined;
  const store = server["store"] as unknown as { server?: string; schema?: unknown } | undefined;
  return (
    <>
      <Facts
        of={[
          ["version", String(server["version"] ?? "")],
          ["database", String(store?.server ?? "")],
          ["schema", String(store?.schema ?? "")],
          ["queue", <span class={queue?.available === false ? "bad" : ""}>{queue?.available === false ? `away: ${plain(queue.trouble ?? "")}` : "available"}</span>],
          ["bus", <span class={bus?.available === false ? "bad" : ""}>{bus?.available === false ? "away" : "available"}</span>],
        ]}
      />
      <Payload title="all" value={server} open={1} />
    </>
  );
}
