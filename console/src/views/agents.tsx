// Published agents: versions, aliases, and what differs between them.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { call, can, post, type Page, type Schemas } from "../api.js";
import { go, link, place, refine } from "../router.js";
import { Ago, Command, Empty, Failed, Loading, Status } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask } from "../ui/dialog.js";
import { plain } from "../ui/format.js";
import { Json, Payload } from "../ui/json.js";
import { useGet, useList } from "../ui/live.js";
import { Plain, Table } from "../ui/table.js";

type Named = Schemas["NamedAgent"];
type Version = Schemas["AgentVersion"];

async function publish(name = "", spec: unknown = { system_prompt: "Be brief." }): Promise<void> {
  const given = await ask("Publish an agent", {
    fields: [
      { name: "name", label: "Name", value: name, isRequired: true },
      { name: "spec", label: "Agent, as JSON", value: JSON.stringify(spec, null, 2), isLong: true, isRequired: true },
    ],
    action: "Publish",
  });
  if (given === null) return;
  const made = await act("Published", async () => post<Named>("/v1/agents", { name: given["name"], spec: JSON.parse(given["spec"] ?? "") as unknown }));
  if (made !== undefined) go(`/agents/${encodeURIComponent(made.name)}`);
}

export function Agents(): JSX.Element {
  const list = useList<Named>("/v1/agents", {}, (row) => row.name);
  return (
    <>
      <div class="row">
        <h1>Agents</h1>
        {can("POST /v1/agents") ? (
          <button type="button" class="primary" onClick={() => void publish()}>
            Publish
          </button>
        ) : null}
      </div>
      <Table
        label="Agents"
        list={list}
        id={(row) => row.name}
        href={(row) => link(`/agents/${encodeURIComponent(row.name)}`)}
        open={(row) => go(`/agents/${encodeURIComponent(row.name)}`)}
        columns={[
          { name: "name", cell: (row) => plain(row.name) },
          { name: "version", width: "6rem", isNumber: true, cell: (row) => row.version },
          { name: "aliases", cell: (row) => <span class="soft">{plain(Object.entries(row.aliases).map(([alias, version]) => `${alias} → ${version}`).join(", "))}</span> },
          { name: "changed", width: "9rem", isNumber: true, cell: (row) => <Ago at={row.updated_at} /> },
        ]}
        empty={
          <Empty title="No agent is published">
            <Command text={"mainspring agents apply examples/agents.toml"} />
          </Empty>
        }
      />
    </>
  );
}

export function Agent({ id }: { id: string }): JSX.Element {
  const path = `/v1/agents/${encodeURIComponent(id)}`;
  const agent = useGet<Named>(path);
  const versions = useGet<Page<Version>>(`${path}/versions`, { limit: 50 });
  const pauses = useGet<Page<Schemas["Pause"]>>("/v1/pauses", { limit: 200 });
  const all = versions.value?.data ?? [];
  const newest = all[0]?.version;
  const to = Number(place.value.query.get("to") ?? newest ?? 0);
  const from = Number(place.value.query.get("from") ?? to - 1);
  const diff = useGet<Schemas["AgentDiff"]>(from > 0 && to > 0 && from !== to ? `${path}/diff` : undefined, { from: String(from), to: String(to) }, 0);
  const [shown, show] = useState<number | undefined>(undefined);
  if (agent.value === undefined) return agent.error === undefined ? <Loading /> : <Failed error={agent.error} />;
  const view = agent.value;
  const paused = (pauses.value?.data ?? []).some((pause) => pause.kind === "agent" && pause.name === id);
  const current = all.find((version) => version.version === (shown ?? newest));
  const point = async (version: number): Promise<void> => {
    const given = await ask(`Point an alias at version ${version}`, { fields: [{ name: "alias", label: "Alias", value: "prod", isRequired: true }], action: "Point" });
    if (given !== null) await act("Pointed", () => call({ method: "PUT", path: `${path}/aliases/${encodeURIComponent(given["alias"] ?? "")}`, body: { version } }));
  };
  return (
    <>
      <header class="row head">
        <a href={link("/agents")}>Agents</a>
        <h1>{plain(view.name)}</h1>
        {paused ? <Status of="paused" /> : null}
        {view.archived_at ? <span class="tag warn">archived</span> : null}
        <a href={link("/sessions", { agent: view.name })}>its sessions</a>
        <a href={link("/sends", { agent: view.name, status: "failed" })}>what failed</a>
        <div class="row actions">
          {can("POST /v1/agents") ? (
            <button type="button" onClick={() => void publish(view.name, current?.spec)}>
              New version…
            </button>
          ) : null}
          {can("POST /v1/agents/{name}/pause") ? (
            <button type="button" onClick={() => void act(paused ? "Goes on" : "Paused", () => post(`${path}/${paused ? "resume" : "pause"}`, {}))}>
              {paused ? "Resume" : "Pause"}
            </button>
          ) : null}
        </div>
      </header>
      <div class="halves">
        <div>
          <h2>Versions</h2>
          <Plain
            label="Versions"
            rows={versions.value?.data}
            id={(row) => String(row.version)}
            columns={[
              {
                name: "version",
                isNumber: true,
                cell: (row) => (
                  <button type="button" class="quiet" onClick={() => show(row.version)}>
                    {row.version}
                  </button>
                ),
              },
              { name: "aliases", cell: (row) => Object.entries(view.aliases).filter(([, version]) => version === row.version).map(([alias]) => <span key={alias} class="tag">{plain(alias)}</span>) },
              { name: "published", cell: (row) => <Ago at={row.created_at} /> },
              {
                name: "",
                cell: (row) => (
                  <>
                    <button type="button" class="quiet" onClick={() => refine({ to: String(row.version), from: String(Math.max(1, row.version - 1)) })}>
                      compare
                    </button>
                    {can("PUT /v1/agents/{name}/aliases/{alias}") ? (
                      <button type="button" class="quiet" onClick={() => void point(row.version)}>
                        alias…
                      </button>
                    ) : null}
                  </>
                ),
              },
            ]}
            empty={<p class="soft">none</p>}
          />
          {from > 0 && from !== to ? (
            <>
              <h2>
                {from} → {to}
              </h2>
              <Failed error={diff.error} />
              {diff.value === undefined ? null : diff.value.changes.length === 0 ? (
                <p class="soft">no difference</p>
              ) : (
                <table class="plain diff">
                  <thead>
                    <tr>
                      <th scope="col">member</th>
                      <th scope="col">before</th>
                      <th scope="col">after</th>
                    </tr>
                  </thead>
                  <tbody>
                    {diff.value.changes.map((change) => (
                      <tr key={change.pointer}>
                        <td>
                          <code>{plain(change.pointer)}</code>
                        </td>
                        <td class="removed">{change.before === undefined ? "" : <Json value={change.before} />}</td>
                        <td class="added">{change.after === undefined ? "" : <Json value={change.after} />}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              )}
            </>
          ) : null}
        </div>
        <div>
          {current === undefined ? <Loading /> : <Payload title={`version ${current.version}`} value={current.spec} open={3} />}
          {view.limits && Object.keys(view.limits).length > 0 ? <Payload title="limits" value={view.limits} /> : null}
          <CopyAs asked={{ method: "GET", path }} />
        </div>
      </div>
    </>
  );
}
