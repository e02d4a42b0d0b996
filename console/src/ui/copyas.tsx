// A request as a person would write it elsewhere.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { address, get, tenant, type Asked } from "../api.js";
import { Copy, Tabs } from "./basics.js";

export interface Operation {
  method: string;
  path: string;
  id: string;
  summary: string;
  parameters: { name: string; in: string; required?: boolean; description?: string; example?: unknown }[];
  example: unknown;
  hasBody: boolean;
}

interface Description {
  paths: Record<
    string,
    Record<
      string,
      {
        operationId?: string;
        summary?: string;
        parameters?: Operation["parameters"];
        requestBody?: { content?: Record<string, { example?: unknown }> };
      }
    >
  >;
}

/** What the server can do, once it was asked. */
export const operations = signal<Operation[] | undefined>(undefined);

let asking: Promise<void> | undefined;

export function learn(): Promise<void> {
  asking ??= get<Description>("/openapi.json").then(
    (description) => {
      operations.value = Object.entries(description.paths).flatMap(([path, methods]) =>
        Object.entries(methods)
          .filter(([, operation]) => operation.operationId !== undefined)
          .map(([method, operation]) => ({
            method: method.toUpperCase(),
            path,
            id: operation.operationId ?? "",
            summary: operation.summary ?? "",
            parameters: operation.parameters ?? [],
            example: operation.requestBody?.content?.["application/json"]?.example,
            hasBody: operation.requestBody !== undefined,
          })),
      );
    },
    (error: unknown) => {
      asking = undefined;
      throw error;
    },
  );
  return asking;
}

/** The operation of a request, and the values of the parameters in its path. */
export function operationOf(asked: Asked): { operation: Operation; values: Record<string, string> } | undefined {
  for (const operation of operations.value ?? []) {
    if (operation.method !== asked.method) continue;
    const names: string[] = [];
    const pattern = operation.path.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, (_, name: string) => {
      names.push(name);
      return "([^/]+)";
    });
    const found = new RegExp(`^${pattern}$`).exec(asked.path);
    if (found === null) continue;
    const values = Object.fromEntries(names.map((name, n) => [name, decodeURIComponent(found[n + 1] ?? "")]));
    // A path without a parameter goes before one with it, as in the server.
    if (names.length > 0 && operations.value?.some((other) => other !== operation && other.method === asked.method && other.path === asked.path)) continue;
    return { operation, values };
  }
  return undefined;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Whether the page has to say who asks, which a copied command cannot. */
function needsKey(): boolean {
  return !/^(127\.|localhost$|\[::1\]$)/.test(location.hostname);
}

export function curl(asked: Asked): string {
  const parts = [`curl${asked.method === "GET" ? "" : ` -X ${asked.method}`} ${quoted(address(asked.path, asked.query))}`];
  if (needsKey()) parts.push(`-H "Authorization: Bearer $MAINSPRING_API_KEY"`);
  if (tenant.value !== "") parts.push(`-H ${quoted(`mainspring-tenant: ${tenant.value}`)}`);
  if (asked.body !== undefined) parts.push(`--json ${quoted(JSON.stringify(asked.body))}`);
  return parts.join(" \\\n  ");
}

function snake(name: string): string {
  return name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase();
}

/** A value as Python writes it. */
export function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value)
      .map(([name, member]) => `${JSON.stringify(name)}: ${python(member)}`)
      .join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** The arguments of the generated operations: those of the path, the query, and the body. */
function given(asked: Asked): { id: string; path: [string, string][]; query: [string, unknown][] } | undefined {
  const found = operationOf(asked);
  if (found === undefined) return undefined;
  const query = Object.entries(asked.query ?? {}).filter(([, value]) => value !== undefined && value !== "");
  return { id: found.operation.id, path: Object.entries(found.values), query };
}

export function inPython(asked: Asked): string {
  const call = given(asked);
  if (call === undefined) return "# Loading the description of the API…";
  const values = [
    ...call.path.map(([, value]) => python(value)),
    ...(asked.body === undefined ? [] : [python(asked.body)]),
    ...call.query.map(([name, value]) => `${snake(name)}=${python(value)}`),
  ];
  return `from mainspring import Client\n\nwith Client() as client:\n    print(client.api.${snake(call.id)}(${values.join(", ")}))`;
}

export function inTypeScript(asked: Asked): string {
  const call = given(asked);
  if (call === undefined) return "// Loading the description of the API…";
  const values: Record<string, unknown> = { ...Object.fromEntries(call.path), ...Object.fromEntries(call.query) };
  if (asked.body !== undefined) values["body"] = asked.body;
  const text = Object.keys(values).length === 0 ? "" : JSON.stringify(values);
  return `import { Client } from "@mainspring/client";\n\nconst client = new Client();\nconsole.log(await client.api.${call.id}(${text}));`;
}

/** The command line's word for an operation, where it has one. */
const COMMANDS: Record<string, (id: string, query: Record<string, unknown>, body: Record<string, unknown>) => string> = {
  listSessions: (_, query) => `sessions list${flags(query)}`,
  getSession: (id) => `sessions show ${id}`,
  deleteSession: (id) => `sessions delete ${id}`,
  forkSession: (id, _, body) => `sessions fork ${id}${body["seq"] === undefined ? "" : ` --seq ${String(body["seq"])}`}`,
  listMessages: (id) => `sessions messages ${id}`,
  createSend: (_, __, body) => `send ${said(body)}`,
  createSendInSession: (id, _, body) => `send --session ${id} ${said(body)}`,
  listSends: (_, query) => `sends list${flags(query)}`,
  getSend: (id) => `sends show ${id}`,
  cancelSend: (id) => `sends cancel ${id}`,
  streamSend: (id) => `sends tail ${id}`,
  streamSession: (id) => `sessions tail ${id}`,
  getSessionContext: (id) => `sessions context ${id}`,
  getSessionUsage: (id) => `sessions usage ${id}`,
  listInbox: (id) => `sessions inbox ${id}`,
  exportSession: (id) => `sessions export ${id}`,
  listCalls: (_, query) => `inbox${flags({ agent: query["agent"] })}`,
  listRuns: (_, query) => `runs list${flags(query)}`,
  getRun: (id) => `runs show ${id}`,
  streamRun: (id) => `runs tail ${id}`,
  listNodes: (id) => `runs nodes ${id}`,
  cancelRun: (id) => `runs cancel ${id}`,
  retryRun: (id) => `runs retry ${id}`,
  pauseRun: (id) => `runs pause ${id}`,
  resumeRun: (id) => `runs resume ${id}`,
  listTimers: (_, query) => `timers list${flags(query)}`,
  getTimer: (id) => `timers show ${id}`,
  fireTimer: (id) => `timers fire ${id}`,
  pauseTimer: (id) => `timers pause ${id}`,
  resumeTimer: (id) => `timers resume ${id}`,
  cancelTimer: (id) => `timers cancel ${id}`,
  listAgents: () => "agents list",
  getAgent: (name) => `agents show ${name}`,
  listWorkers: () => "workers",
  getQueue: () => "queue",
  listPauses: () => "pauses",
  listTenants: () => "tenants list",
  getTenantUsage: (id) => `tenants usage ${id}`,
  listKeys: () => "keys list",
  listWebhooks: () => "webhooks list",
  listTools: () => "tools",
  listSkills: () => "skills list",
};

/** Parameters that the command line calls something else. */
const FLAGS: Record<string, string> = { session_id: "session", created_from: "since", created_before: "before" };

function flags(query: Record<string, unknown>): string {
  const given = Object.entries(query).filter(([name, value]) => value !== undefined && value !== "" && name !== "limit" && name !== "cursor");
  return given
    .map(([name, value]) =>
      name.startsWith("metadata.") ? ` --metadata ${quoted(`${name.slice("metadata.".length)}=${String(value)}`)}` : ` --${FLAGS[name] ?? name} ${quoted(String(value))}`,
    )
    .join("");
}

function said(body: Record<string, unknown>): string {
  return quoted(typeof body["input"] === "string" ? body["input"] : JSON.stringify(body["input"] ?? ""));
}

export function onCommandLine(asked: Asked): string {
  const found = operationOf(asked);
  const command = found === undefined ? undefined : COMMANDS[found.operation.id];
  if (found === undefined || command === undefined) return "# The command line has no word for this request; curl has.";
  const id = Object.values(found.values)[0] ?? "";
  return `mainspring ${command(id, { ...asked.query }, { ...(asked.body as object | undefined) })}`;
}

const FORMS = { curl, Python: inPython, TypeScript: inTypeScript, CLI: onCommandLine } as const;
type Form = keyof typeof FORMS;

export function CopyAs({ asked }: { asked: Asked }): JSX.Element {
  const [form, set] = useState<Form>("curl");
  if (operations.value === undefined) void learn().catch(() => undefined);
  const text = FORMS[form](asked);
  return (
    <div class="copyas">
      <Tabs label="Copy as" names={Object.keys(FORMS)} at={form} onPick={(name) => set(name as Form)} />
      <div class="command">
        <pre>{text}</pre>
        <Copy text={text} />
      </div>
    </div>
  );
}
