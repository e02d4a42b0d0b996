// A run as a graph that moves.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { can, get, post, words, type Page, type Schemas } from "../api.js";
import { link, place, refine } from "../router.js";
import { follow } from "../sse.js";
import { Ago, Cost, Empty, Facts, Failed, Failure, Id, Loading, Status, Tabs, Tokens, Took } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask } from "../ui/dialog.js";
import { plain } from "../ui/format.js";
import { Payload } from "../ui/json.js";
import { EVERY, changed, useGet, usePoll } from "../ui/live.js";
import { inOrder, treeOf, type Branch, type NodeState, type Spec } from "./graph.js";
import { Counts } from "./runs.js";

type View = Schemas["RunView"];
type Node = Schemas["NodeView"];

const FINAL = ["completed", "failed", "cancelled"];
/** From how many on children are cells instead of boxes. */
const BOXES = 24;
/** How many rows the table shows. */
const ROWS = 500;

/** Follows the events of a run; the state of each of its nodes by path. */
function useNodes(id: string, attempt: number, isFinal: boolean): { nodes: Map<string, NodeState>; error: string } {
  const [state, set] = useState<{ nodes: Map<string, NodeState>; error: string }>({ nodes: new Map(), error: "" });
  const held = useRef(new Map<string, NodeState>());
  useEffect(() => {
    const stop = new AbortController();
    let isDrawing = false;
    const draw = (): void => {
      if (isDrawing) return;
      isDrawing = true;
      setTimeout(() => {
        isDrawing = false;
        if (!stop.signal.aborted) set({ nodes: new Map(held.current), error: "" });
      }, 60);
    };
    const look = async (): Promise<void> => {
      const page = await get<Page<Node>>(`/v1/runs/${id}/nodes`, { limit: 200 }, stop.signal);
      for (const node of page.data) held.current.set(node.path, node);
      draw();
    };
    // What a leaf waits for has no event of the run's; and events may have been removed.
    const again = setInterval(() => {
      if (!isFinal && !document.hidden) void look().catch(() => undefined);
    }, EVERY);
    const begin = async (): Promise<void> => {
      await look();
      await follow(
        `/v1/runs/${id}/events`,
        stop.signal,
        (event) => {
          if (event.type.startsWith("node.")) {
            const node = JSON.parse(event.data) as NodeState;
            held.current.set(node.path, { ...held.current.get(node.path), ...node });
            draw();
          } else if (event.type.startsWith("run.")) changed();
        },
        (event) => /^run\.(completed|failed|cancelled)$/.test(event.type),
      );
    };
    begin().catch((error: unknown) => {
      if (!stop.signal.aborted) set({ nodes: new Map(held.current), error: words(error) });
    });
    return () => {
      clearInterval(again);
      stop.abort();
    };
  }, [id, attempt, isFinal]);
  return state;
}

export function Run({ id }: { id: string }): JSX.Element {
  const run = useGet<View>(`/v1/runs/${id}`);
  const view = run.value;
  const isFinal = view !== undefined && FINAL.includes(view.status);
  const { nodes, error } = useNodes(id, view?.attempt ?? 0, isFinal);
  const exported = useGet<{ spec?: { root?: Spec } }>(`/v1/runs/${id}/export`, {}, 0);
  const tree = useMemo(() => treeOf(nodes.values(), isFinal ? undefined : exported.value?.spec?.root), [nodes, exported.value, isFinal]);
  const at = place.value.query.get("node") ?? undefined;
  const tab = place.value.query.get("tab") ?? "graph";
  const filter = place.value.query.get("state") ?? "";
  const pick = (path: string): void => refine({ node: path });
  if (view === undefined) return run.error === undefined ? <Loading /> : <Failed error={run.error} />;
  return (
    <div class="run">
      <header class="row head">
        <a href={link("/runs")}>Runs</a>
        <h1>{plain(view.name || "workflow")}</h1>
        <Status of={view.paused_at ? "paused" : view.status} />
        <Id id={id} />
        {view.session_id ? (
          <span>
            below <Id id={view.session_id} />
          </span>
        ) : null}
        <Actions view={view} />
      </header>
      {view.error ? (
        <p class="bad">
          <Failure of={view.error} />
        </p>
      ) : null}
      <Counts of={view.counts} />
      <Facts
        of={[
          ["leaves", `${view.counts.completed} of ${view.counts.leaves}`],
          ["failed", view.counts.failed],
          ["attempt", view.attempt],
          ["took", <Took from={view.started_at} to={view.finished_at} />],
          ["tokens", <Tokens of={view.usage} />],
          ["cost", <Cost of={view.usage} />],
          ["created", <Ago at={view.created_at} />],
        ]}
      />
      <Failed error={error === "" ? undefined : new Error(error)} what="The events could not be read" />
      <div class="halves">
        <div>
          <Tabs label="Nodes as" names={["graph", "table", "spec", "result"]} at={tab} onPick={(name) => refine({ tab: name })} />
          {tab === "graph" ? (
            tree === undefined ? (
              <Empty title="Nothing has begun yet" />
            ) : (
              <div class="graph scroll" tabIndex={0} role="region" aria-label="Graph">
                <Box of={tree} at={at} onPick={pick} />
              </div>
            )
          ) : null}
          {tab === "table" ? <NodeTable nodes={nodes} filter={filter} at={at} onPick={pick} /> : null}
          {tab === "spec" ? exported.value === undefined ? <Loading /> : <Payload title="spec" value={exported.value.spec} open={6} /> : null}
          {tab === "result" ? (
            <>
              <Payload title="input" value={view.input} />
              <Payload title="result" value={view.result ?? null} open={3} />
              <CopyAs asked={{ method: "GET", path: `/v1/runs/${id}` }} />
            </>
          ) : null}
        </div>
        <div>{at === undefined ? <Empty title="Choose a node" /> : <Details run={view} path={at} state={nodes.get(at)} />}</div>
      </div>
    </div>
  );
}

function Actions({ view }: { view: View }): JSX.Element | null {
  const path = `/v1/runs/${view.id}`;
  const isFinal = FINAL.includes(view.status);
  if (!can(isFinal ? "POST /v1/runs/{id}/retry" : "POST /v1/runs/{id}/cancel")) return null;
  const cancel = async (): Promise<void> => {
    const sure = await ask("Cancel this run?", { body: <p>With everything below it. What has completed stays.</p>, action: "Cancel the run", danger: true });
    if (sure !== null) await act("Cancelled", () => post(`${path}/cancel`));
  };
  return (
    <div class="row actions">
      {isFinal ? (
        <button type="button" onClick={() => void act("Tries again", () => post(`${path}/retry`))}>
          Retry
        </button>
      ) : (
        <>
          {view.paused_at ? (
            <button type="button" class="primary" onClick={() => void act("Goes on", () => post(`${path}/resume`))}>
              Resume
            </button>
          ) : (
            <button type="button" onClick={() => void act("Paused", () => post(`${path}/pause`))}>
              Pause
            </button>
          )}
          <button type="button" class="danger" onClick={() => void cancel()}>
            Cancel…
          </button>
        </>
      )}
    </div>
  );
}

function nameOf(node: NodeState): string {
  const item = /\[([^\]]*)\][^\]]*$/.exec(node.path)?.[1];
  const name = node.id ?? node.path.slice(node.path.lastIndexOf("/") + 1);
  return item === undefined ? name || node.kind : `${name} [${item}]`;
}

function Box({ of, at, onPick }: { of: Branch; at: string | undefined; onPick: (path: string) => void }): JSX.Element {
  const { node, children } = of;
  const label = (
    <button type="button" class={`node ${node.state} ${at === node.path ? "at" : ""}`} onClick={() => onPick(node.path)} aria-current={at === node.path}>
      <span class="strong">{plain(node.path === "/" ? node.kind : nameOf(node))}</span>
      <span class="small">
        {of.isPlanned ? <span class="soft">planned</span> : <Status of={node.state} on={node.waiting_on} />} <span class="soft">{node.kind}</span>
      </span>
    </button>
  );
  if (children.length === 0) return label;
  if (children.length > BOXES && children.every((child) => child.children.length === 0)) {
    return (
      <div class={`group ${node.kind}`}>
        {label}
        <div class="cells" role="group" aria-label={`${children.length} nodes`}>
          {children.map((child) => (
            <button
              key={child.node.path}
              type="button"
              class={`cell ${child.node.state} ${at === child.node.path ? "at" : ""}`}
              aria-label={`${nameOf(child.node)} ${child.node.state}`}
              title={`${nameOf(child.node)}: ${child.node.state}`}
              onClick={() => onPick(child.node.path)}
            />
          ))}
        </div>
      </div>
    );
  }
  return (
    <div class={`group ${node.kind}`}>
      {label}
      <div class="below">
        {children.map((child, n) => (
          <>
            {n > 0 && node.kind === "sequence" ? (
              <span key={`${child.node.path} arrow`} class="arrow" aria-hidden="true">
                →
              </span>
            ) : null}
            <Box key={child.node.path} of={child} at={at} onPick={onPick} />
          </>
        ))}
      </div>
    </div>
  );
}

const STATES = ["blocked", "ready", "queued", "running", "waiting", "completed", "failed", "cancelled", "skipped"] satisfies Node["state"][];

function NodeTable({ nodes, filter, at, onPick }: { nodes: Map<string, NodeState>; filter: string; at: string | undefined; onPick: (path: string) => void }): JSX.Element {
  const rows = [...nodes.values()].filter((node) => filter === "" || node.state === filter).sort((a, b) => inOrder(a.path, b.path));
  return (
    <>
      <form class="filters">
        <label>
          <span>state</span>
          <select value={filter} onChange={(event) => refine({ state: event.currentTarget.value })}>
            <option value="">any</option>
            {STATES.map((state) => (
              <option key={state}>{state}</option>
            ))}
          </select>
        </label>
        <span class="soft">
          {rows.length} nodes{rows.length > ROWS ? `, the first ${ROWS} are shown` : ""}
        </span>
      </form>
      <div class="scroll tall" tabIndex={0} role="region" aria-label="Nodes">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">path</th>
              <th scope="col">kind</th>
              <th scope="col">state</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS).map((node) => (
              <tr key={node.path} class={at === node.path ? "at" : ""}>
                <td>
                  <button type="button" class="quiet" onClick={() => onPick(node.path)}>
                    <code>{plain(node.path)}</code>
                  </button>
                </td>
                <td>{node.kind}</td>
                <td>
                  <Status of={node.state} on={node.waiting_on} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Details({ run, path, state }: { run: View; path: string; state: NodeState | undefined }): JSX.Element {
  const found = usePoll(
    async (signal) => {
      const page = await get<Page<Node>>(`/v1/runs/${run.id}/nodes`, { prefix: path, limit: 50 }, signal);
      return page.data.find((node) => node.path === path);
    },
    5_000,
    [path, state?.state],
  );
  const base = `/v1/runs/${run.id}/nodes/${encodeURIComponent(path)}`;
  const node = found.value;
  if (node === undefined) return <>{found.error === undefined ? <Empty title={state === undefined ? "It has not been reached yet" : "Loading…"} /> : <Failed error={found.error} />}</>;
  const isOver = ["completed", "failed", "cancelled", "skipped"].includes(node.state);
  const amend = async (): Promise<void> => {
    const given = await ask("Replace the result", {
      body: <p>Settled nodes that use it run again.</p>,
      fields: [{ name: "text", label: "Text, or JSON", value: node.output === null || node.output === undefined ? (node.text ?? "") : JSON.stringify(node.output, null, 2), isLong: true, isRequired: true }],
      action: "Replace",
    });
    if (given === null) return;
    const text = given["text"] ?? "";
    let body: Record<string, unknown> = { text };
    try {
      body = { output: JSON.parse(text), text };
    } catch {
      // It is a text.
    }
    await act("Replaced", () => post(`${base}/amend`, body));
  };
  const steer = async (): Promise<void> => {
    const given = await ask("Tell it something before its next round", { fields: [{ name: "text", label: "Message", isLong: true, isRequired: true }], action: "Tell" });
    if (given !== null) await act("Told", () => post(`${base}/steer`, { text: given["text"] }));
  };
  return (
    <article>
      <h2>
        <code>{plain(path)}</code>
      </h2>
      <div class="row">
        <Status of={node.state} on={node.waiting_on} />
        <span class="tag">{node.kind}</span>
        {node.tolerated ? <span class="tag">tolerated</span> : null}
        {node.amended ? <span class="tag warn">amended</span> : null}
        {node.session_id ? <a href={link(`/sessions/${node.session_id}`)}>session ↗</a> : null}
      </div>
      <div class="row">
          {!can("POST /v1/runs/{id}/nodes/{path}/retry") ? null : isOver ? (
            <button type="button" onClick={() => void act("Runs again", () => post(`${base}/retry`))}>
              Retry
            </button>
          ) : (
            <button type="button" onClick={() => void act("Cancelled", () => post(`${base}/cancel`))}>
              Cancel
            </button>
          )}
          {can("POST /v1/runs/{id}/nodes/{path}/amend") && ["agent", "tool", "approval"].includes(node.kind) ? (
            <button type="button" onClick={() => void amend()}>
              Amend…
            </button>
          ) : null}
          {can("POST /v1/runs/{id}/nodes/{path}/steer") && node.kind === "agent" && !isOver ? (
            <button type="button" onClick={() => void steer()}>
              Steer…
            </button>
          ) : null}
      </div>
      {node.error ? (
        <p class="bad">
          <Failure of={node.error} />
        </p>
      ) : null}
      <Facts
        of={[
          ["attempt", node.attempt],
          ["took", <Took from={node.started_at} to={node.settled_at} />],
          ["tokens", <Tokens of={node.usage} />],
          ["cost", <Cost of={node.usage} />],
        ]}
      />
      {node.text ? <Payload title="text" value={node.text} /> : null}
      {node.output === null || node.output === undefined ? null : <Payload title="output" value={node.output} open={3} />}
      {(node.steered ?? []).length > 0 ? <Payload title="told meanwhile" value={node.steered} /> : null}
      {(node.earlier ?? []).length > 0 ? <Payload title="earlier attempts" value={node.earlier} /> : null}
      <CopyAs asked={{ method: "GET", path: `/v1/runs/${run.id}/nodes`, query: { prefix: path } }} />
    </article>
  );
}
