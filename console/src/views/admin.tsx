// Tenants, keys, and what is kept for them.

import type { JSX } from "preact";

import { call, caller, can, lookAt, post, type Page, type Schemas } from "../api.js";
import { go } from "../router.js";
import { Ago, Command, Empty, Failed, Id } from "../ui/basics.js";
import { act, ask } from "../ui/dialog.js";
import { plain } from "../ui/format.js";
import { useGet } from "../ui/live.js";
import { Plain } from "../ui/table.js";
import { pause } from "./workers.js";

type Key = Schemas["ApiKey"];
type Tenant = Schemas["Tenant"];

const SCOPES = ["read", "use", "define", "send", "answer", "manage", "admin", "operate"] as const;

export function Admin(): JSX.Element {
  const tenants = useGet<Page<Tenant>>(can("GET /v1/tenants") ? "/v1/tenants" : undefined, { limit: 200 }, 10_000);
  const keys = useGet<Page<Key>>(can("GET /v1/keys") ? "/v1/keys" : undefined, { limit: 200 }, 10_000);
  const providers = useGet<Page<Schemas["ProviderKey"]>>(can("GET /v1/provider-keys") ? "/v1/provider-keys" : undefined, { limit: 200 }, 30_000);
  const secrets = useGet<Page<Schemas["Secret"]>>(can("GET /v1/secrets") ? "/v1/secrets" : undefined, { limit: 200 }, 30_000);
  return (
    <>
      <h1>Admin</h1>
      {can("GET /v1/keys") ? null : <p class="note">This key may not administer: most of what is here is closed to it.</p>}
      <h2>Tenants</h2>
      <Failed error={tenants.error} />
      <Plain label="Tenants" rows={tenants.value?.data ?? (tenants.error || !can("GET /v1/tenants") ? [] : undefined)} id={(row) => row.id} columns={TENANTS} empty={null} />
      {can("POST /v1/tenants") ? (
        <button type="button" onClick={() => void newTenant()}>
          New tenant…
        </button>
      ) : null}
      <h2>Keys</h2>
      <Failed error={keys.error} />
      <Plain
        label="Keys"
        rows={keys.value?.data ?? (keys.error || !can("GET /v1/keys") ? [] : undefined)}
        id={(row) => row.id}
        columns={KEYS}
        empty={
          can("GET /v1/keys") ? (
            <Empty title="No key">
              <p>A scheduler lets nobody in without one, once there is one.</p>
              <Command text="mainspring keys create me --scope admin" />
            </Empty>
          ) : null
        }
      />
      {can("POST /v1/keys") ? (
        <button type="button" onClick={() => void newKey()}>
          New key…
        </button>
      ) : null}
      <h2>Keys of model providers</h2>
      <Failed error={providers.error} />
      <Plain
        label="Keys of model providers"
        rows={providers.value?.data ?? (providers.error || !can("GET /v1/provider-keys") ? [] : undefined)}
        id={(row) => row.provider}
        columns={[
          { name: "provider", cell: (row) => plain(row.provider) },
          { name: "ends with", cell: (row) => <code>{plain(row.hint)}</code> },
          { name: "set", cell: (row) => <Ago at={row.set_at} /> },
        ]}
        empty={<p class="soft">none: the workers' own keys are used</p>}
      />
      <h2>Secrets of tools</h2>
      <Failed error={secrets.error} />
      <Plain
        label="Secrets of tools"
        rows={secrets.value?.data ?? (secrets.error || !can("GET /v1/secrets") ? [] : undefined)}
        id={(row) => row.name}
        columns={[
          { name: "name", cell: (row) => plain(row.name) },
          { name: "goes to", cell: (row) => plain(row.hosts.join(", ")) },
          { name: "set", cell: (row) => <Ago at={row.set_at} /> },
        ]}
        empty={<p class="soft">none</p>}
      />
    </>
  );
}

const TENANTS = [
  { name: "name", cell: (row: Tenant) => plain(row.name) },
  { name: "id", cell: (row: Tenant) => <Id id={row.id} /> },
  { name: "weight", isNumber: true, cell: (row: Tenant) => row.weight },
  { name: "limits", cell: (row: Tenant) => <span class="soft">{Object.entries(row.limits).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(", ") || "none"}</span> },
  { name: "since", cell: (row: Tenant) => (row.erasing_at ? <span class="bad">is being erased</span> : <Ago at={row.created_at} />) },
  {
    name: "",
    cell: (row: Tenant) => (
      <>
        {caller.value?.operates === true ? (
          <button
            type="button"
            class="quiet"
            onClick={() => {
              lookAt(row.id === caller.value?.tenant_id ? "" : row.id);
              go("/");
            }}
          >
            look at
          </button>
        ) : null}
        {can("POST /v1/tenants/{id}/pause") ? (
          <button type="button" class="quiet" onClick={() => void pause("tenant", row.id)}>
            pause…
          </button>
        ) : null}
      </>
    ),
  },
];

const KEYS = [
  { name: "name", cell: (row: Key) => plain(row.name) },
  { name: "id", cell: (row: Key) => <Id id={row.id} /> },
  { name: "scopes", cell: (row: Key) => row.scopes.join(" ") },
  { name: "bound", cell: (row: Key) => (row.binding ? "yes" : "") },
  { name: "used", cell: (row: Key) => <Ago at={row.last_used_at} /> },
  { name: "ends", cell: (row: Key) => (row.revoked_at ? <span class="bad">revoked</span> : <Ago at={row.expires_at} />) },
  {
    name: "",
    cell: (row: Key) =>
      can("POST /v1/keys/{id}/rotate") && !row.revoked_at ? (
        <>
          <button type="button" class="quiet" onClick={() => void rotate(row)}>
            rotate…
          </button>
          <button type="button" class="quiet" onClick={() => void revoke(row)}>
            revoke…
          </button>
        </>
      ) : null,
  },
];

async function once(title: string, secret: string | null | undefined): Promise<void> {
  if (secret) await ask(title, { body: <Command text={secret} />, action: "Done" });
}

async function newKey(): Promise<void> {
  const given = await ask("New key", {
    fields: [
      { name: "name", label: "Name", isRequired: true },
      { name: "scopes", label: "Scopes, with spaces between them", value: "read use", isRequired: true, hint: SCOPES.join(" ") },
    ],
    action: "Create",
  });
  if (given === null) return;
  const scopes = (given["scopes"] ?? "").split(/\s+/).filter((scope) => scope !== "");
  const made = await act("Created", () => post<Key>("/v1/keys", { name: given["name"], scopes }));
  await once("The key is shown once", made?.key);
}

async function rotate(key: Key): Promise<void> {
  const sure = await ask(`Rotate ${key.name}?`, { body: <p>A new secret takes the place of this one, which is good for a while longer.</p>, action: "Rotate" });
  if (sure === null) return;
  const made = await act("Rotated", () => post<Key>(`/v1/keys/${key.id}/rotate`, {}));
  await once("The new key is shown once", made?.key);
}

async function revoke(key: Key): Promise<void> {
  const sure = await ask(`Revoke ${key.name}?`, { body: <p>It is refused within seconds, everywhere, for good.</p>, action: "Revoke", danger: true });
  if (sure !== null) await act("Revoked", () => call({ method: "DELETE", path: `/v1/keys/${key.id}` }));
}

async function newTenant(): Promise<void> {
  const given = await ask("New tenant", { fields: [{ name: "name", label: "Name", isRequired: true }], action: "Create" });
  if (given !== null) await act("Created", () => post("/v1/tenants", given));
}
