// Webhooks, and what became of each delivery.

import type { JSX } from "preact";

import { call, can, post, type Schemas } from "../api.js";
import { go, link } from "../router.js";
import { Ago, Command, Empty, Failed, Id, Loading, Status } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask } from "../ui/dialog.js";
import { Filters, asked } from "../ui/filters.js";
import { plain } from "../ui/format.js";
import { useGet, useList } from "../ui/live.js";
import { Table } from "../ui/table.js";
import { bulk } from "./bulk.js";

type Hooked = Schemas["Webhook"];
type Delivery = Schemas["WebhookDelivery"];

const FILTERS = [{ name: "status", label: "status", options: ["pending", "delivered", "dead"] satisfies Delivery["status"][] }] as const;

export function Webhooks(): JSX.Element {
  const list = useList<Hooked>("/v1/webhooks", {}, (row) => row.id);
  const add = async (): Promise<void> => {
    const given = await ask("New webhook", {
      fields: [
        { name: "url", label: "URL", isRequired: true },
        { name: "events", label: "Events, with commas between them", value: "send.*", isRequired: true },
      ],
      action: "Create",
    });
    if (given === null) return;
    const events = (given["events"] ?? "").split(",").map((event) => event.trim());
    const made = await act("Created", () => post<Hooked>("/v1/webhooks", { url: given["url"], events }));
    if (made?.secret) {
      await ask("Its signing secret is shown once", { body: <Command text={made.secret} />, action: "Done" });
    }
    if (made !== undefined) go(`/webhooks/${made.id}`);
  };
  return (
    <>
      <div class="row">
        <h1>Webhooks</h1>
        {can("POST /v1/webhooks") ? (
          <button type="button" class="primary" onClick={() => void add()}>
            New webhook
          </button>
        ) : null}
      </div>
      <Table
        label="Webhooks"
        list={list}
        id={(row) => row.id}
        href={(row) => link(`/webhooks/${row.id}`)}
        open={(row) => go(`/webhooks/${row.id}`)}
        columns={[
          { name: "url", cell: (row) => plain(row.url) },
          { name: "events", cell: (row) => <span class="soft">{plain(row.events.join(", "))}</span> },
          { name: "state", width: "14rem", cell: (row) => (row.disabled ? <span class="bad">disabled {plain(row.disabled_reason ?? "")}</span> : <span class="soft">active</span>) },
          { name: "created", width: "8rem", isNumber: true, cell: (row) => <Ago at={row.created_at} /> },
        ]}
        empty={
          <Empty title="No webhook">
            <p>Events are posted to an address of yours, signed, until it has taken them.</p>
            <Command text={"mainspring webhooks create https://example.com/hook --event 'send.*'"} />
          </Empty>
        }
      />
    </>
  );
}

export function Hook({ id }: { id: string }): JSX.Element {
  const path = `/v1/webhooks/${id}`;
  const query = asked(FILTERS);
  const hook = useGet<Hooked>(path);
  const list = useList<Delivery>(`${path}/deliveries`, query, (row) => row.id);
  if (hook.value === undefined) return hook.error === undefined ? <Loading /> : <Failed error={hook.error} />;
  const view = hook.value;
  const remove = async (): Promise<void> => {
    const sure = await ask("Delete this webhook?", { action: "Delete", danger: true });
    if (sure === null) return;
    const done = await act("Deleted", async () => {
      await call({ method: "DELETE", path });
      return true;
    });
    if (done === true) go("/webhooks");
  };
  const rotate = async (): Promise<void> => {
    const made = await act("Rotated", () => post<Hooked>(`${path}/rotate`, {}));
    if (made?.secret) await ask("The new signing secret is shown once", { body: <Command text={made.secret} />, action: "Done" });
  };
  return (
    <>
      <header class="row head">
        <a href={link("/webhooks")}>Webhooks</a>
        <h1>{plain(view.url)}</h1>
        <Id id={id} />
        {can("PATCH /v1/webhooks/{id}") ? (
          <div class="row actions">
            <button type="button" onClick={() => void act(view.disabled ? "Enabled" : "Disabled", () => call({ method: "PATCH", path, body: { disabled: !view.disabled } }))}>
              {view.disabled ? "Enable" : "Disable"}
            </button>
            <button type="button" onClick={() => void rotate()}>
              Rotate the secret…
            </button>
            <button type="button" onClick={() => void bulk("Redeliver", `${path}/deliveries`, `${path}/deliveries:redeliver`, { status: "dead", ...query })}>
              Redeliver…
            </button>
            <button type="button" class="danger" onClick={() => void remove()}>
              Delete…
            </button>
          </div>
        ) : null}
      </header>
      {view.disabled ? <p class="note">Disabled: {plain(view.disabled_reason ?? "")}</p> : null}
      <Filters of={FILTERS} />
      <Table
        label="Deliveries"
        list={list}
        id={(row) => row.id}
        columns={[
          { name: "event", cell: (row) => plain(row.type) },
          { name: "of", cell: (row) => <Id id={row.subject} /> },
          { name: "status", width: "8rem", cell: (row) => <Status of={row.status} /> },
          { name: "attempts", width: "6rem", isNumber: true, cell: (row) => row.attempts },
          { name: "answer", isExtra: true, cell: (row) => <span class={row.error ? "bad" : "soft"}>{plain(row.error ?? (row.answer == null ? "" : String(row.answer)))}</span> },
          { name: "when", width: "8rem", isNumber: true, cell: (row) => <Ago at={row.timestamp} /> },
          {
            name: "",
            width: "7rem",
            cell: (row) =>
              can("POST /v1/webhooks/{id}/deliveries/{delivery_id}/redeliver") ? (
                <button type="button" class="quiet" onClick={() => void act("Sent again", () => post(`${path}/deliveries/${row.id}/redeliver`))}>
                  redeliver
                </button>
              ) : null,
          },
        ]}
        empty={<Empty title="Nothing was delivered yet" />}
      />
      <CopyAs asked={{ method: "GET", path: `${path}/deliveries`, query }} />
    </>
  );
}
