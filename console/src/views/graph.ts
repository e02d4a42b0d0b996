// The tree of a run: what has been reached, and what its workflow still has before it.

export interface NodeState {
  path: string;
  kind: string;
  state: string;
  id?: string | null;
  session_id?: string | null;
  send_id?: string | null;
  waiting_on?: string | null;
}

export interface Branch {
  node: NodeState;
  children: Branch[];
  isPlanned: boolean;
}

/** A node of a workflow's text, as far as its shape is of interest. */
export interface Spec {
  type?: string;
  id?: string;
  steps?: Spec[];
  branches?: Spec[] | Record<string, Spec>;
}

/** The path of the node above: a node of a fan-out is below the fan-out, whichever item it is for. */
export function parentOf(path: string, has: (path: string) => boolean): string {
  let at = path;
  for (;;) {
    const cut = at.lastIndexOf("/");
    if (cut <= 0) return "/";
    at = at.slice(0, cut);
    if (has(at)) return at;
    const bare = at.replace(/\[[^\]]*\]$/, "");
    if (bare !== at && has(bare)) return bare;
  }
}

const ITEM = /\[(\d+)\]/g;

/** Paths in the order of their steps and items. */
export function inOrder(a: string, b: string): number {
  const pad = (path: string): string => path.replace(ITEM, (_, n: string) => `[${n.padStart(8, "0")}]`).replace(/\/(\d+)/g, (_, n: string) => `/${n.padStart(6, "0")}`);
  return pad(a) < pad(b) ? -1 : 1;
}

/** The tree of nodes; those of the workflow's sequences that are not there yet are planned. */
export function treeOf(nodes: Iterable<NodeState>, spec: Spec | undefined): Branch | undefined {
  const all = new Map<string, Branch>();
  for (const node of nodes) all.set(node.path, { node, children: [], isPlanned: false });
  if (spec !== undefined) plan(all, spec, "/");
  const root = all.get("/");
  const has = (path: string): boolean => all.has(path);
  for (const [path, branch] of all) {
    if (path === "/") continue;
    (all.get(parentOf(path, has)) ?? root)?.children.push(branch);
  }
  for (const branch of all.values()) branch.children.sort((a, b) => inOrder(a.node.path, b.node.path));
  return root;
}

function plan(all: Map<string, Branch>, spec: Spec, path: string): void {
  if (!all.has(path)) {
    const node = { path, kind: spec.type ?? "agent", state: "planned", id: spec.id ?? null };
    all.set(path, { node, children: [], isPlanned: true });
  }
  const below = spec.type === "sequence" ? spec.steps : spec.type === "parallel" && Array.isArray(spec.branches) ? spec.branches : undefined;
  for (const [n, one] of (below ?? []).entries()) {
    const name = one.id === undefined ? String(n) : `${n}:${one.id}`;
    plan(all, one, `${path === "/" ? "" : path}/${name}`);
  }
}
