// What needs a person, what fails, what is slow.

import type { JSX } from "preact";

import { caller, can, tenant, type Page, type Schemas } from "../api.js";
import { link } from "../router.js";
import { Ago, Command, Cost, Empty, Failed, Status, Tokens } from "../ui/basics.js";
import { since } from "../ui/filters.js";
import { count, duration, line, plain } from "../ui/format.js";
import { EVERY, useGet } from "../ui/live.js";
import { inWords, type Waiting } from "./calls.js";
import { begin } from "./sessions.js";

type Send = Schemas["SendView"];

export function Overview(): JSX.Element {
  const calls = useGet<Page<Waiting>>("/v1/calls", { waiting_on: "human", limit: 5 });
  const failed = useGet<Page<Send>>("/v1/sends", { status: "failed", created_from: since("1d"), limit: 50 }, 2 * EVERY);
  const running = useGet<Page<Send>>("/v1/sends", { status: "running", limit: 20 });
  const waiting = useGet<Page<Send>>("/v1/sends", { status: "waiting", limit: 20 });
  const newest = useGet<Page<Send>>("/v1/sends", { limit: 8 });
  const queue = useGet<Page<Schemas["QueueStats"]>>(can("GET /v1/queue") ? "/v1/queue" : undefined);
  const workers = useGet<Page<Schemas["WorkerView"]>>(can("GET /v1/workers") ? "/v1/workers" : undefined);
  const own = tenant.value || caller.value?.tenant_id || "ten_1";
  const usage = useGet<Schemas["TenantUsageView"]>(can("GET /v1/tenants/{id}/usage") ? `/v1/tenants/${own}/usage` : undefined, { days: 1 }, 10_000);
  if (newest.value?.data.length === 0) return <First />;
  const rows = failed.value?.data ?? [];
  const codes = new Map<string, number>();
  for (const send of rows) codes.set(send.error?.code ?? "?", (codes.get(send.error?.code ?? "?") ?? 0) + 1);
  const some = (page: Page<unknown> | undefined): string => (page === undefined ? "…" : `${page.data.length}${page.next_cursor === null ? "" : "+"}`);
  const pools = queue.value?.data ?? [];
  const oldest = Math.max(0, ...pools.map((pool) => pool.oldest_ready_ms ?? 0));
  const ready = pools.reduce((sum, pool) => sum + pool.ready, 0);
  return (
    <>
      <h1>Overview</h1>
      <Failed error={newest.error} />
      <div class="cards">
        <section class="card">
          <h2>
            <a href={link("/inbox")}>Needs you</a>
          </h2>
          <p class="large">{some(calls.value)}</p>
          <ul>
            {(calls.value?.data ?? []).slice(0, 3).map((call) => (
              <li key={`${call.call_id} ${call.asks?.question ?? ""}`}>
                <a href={link("/inbox", { call: `${call.session_id}/${call.call_id}/${call.asks?.question ?? ""}` })}>{plain(line(inWords(call), 60))}</a> <span class="soft small"><Ago at={call.requested_at} /></span>
              </li>
            ))}
          </ul>
        </section>
        <section class="card">
          <h2>
            <a href={link("/sends", { status: "failed", created_from: "1d" })}>Failed in a day</a>
          </h2>
          <p class={`large ${rows.length > 0 ? "bad" : ""}`}>{some(failed.value)}</p>
          <ul>
            {[...codes].slice(0, 4).map(([code, n]) => (
              <li key={code}>
                <code>{code}</code> <span class="soft">{n}</span>
              </li>
            ))}
          </ul>
        </section>
        <section class="card">
          <h2>
            <a href={link("/sends", { status: "running" })}>Running</a>
          </h2>
          <p class="large">{some(running.value)}</p>
          <p class="soft">
            <a href={link("/sends", { status: "waiting" })}>{some(waiting.value)} waiting</a>
          </p>
        </section>
        {can("GET /v1/workers") ? (
          <section class="card">
            <h2>
              <a href={link("/workers")}>Workers</a>
            </h2>
            <p class={`large ${workers.value?.data.length === 0 ? "bad" : ""}`}>{workers.value?.data.length ?? "…"}</p>
            <p class="soft">{ready === 0 ? "nothing waits for one" : `${count(ready)} wait, the oldest ${duration(oldest)}`}</p>
          </section>
        ) : null}
        {can("GET /v1/tenants/{id}/usage") ? (
          <section class="card">
            <h2>
              <a href={link("/usage")}>Today</a>
            </h2>
            <p class="large">
              <Cost of={usage.value?.total.usage} />
            </p>
            <p class="soft">
              <Tokens of={usage.value?.total.usage} />
            </p>
          </section>
        ) : null}
      </div>
      <h2>Newest sends</h2>
      <ul class="sends">
        {(newest.value?.data ?? []).map((send) => (
          <li key={send.id}>
            <a href={link(`/sessions/${send.session_id}`, { send: send.id })}>
              <Status of={send.status} on={send.waiting_on} /> <Ago at={send.created_at} />{" "}
              <span class={send.error ? "bad" : "soft"}>{plain(line(send.error ? `${send.error.code} ${send.error.message}` : (send.output_text ?? ""), 100))}</span>
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

function First(): JSX.Element {
  const server = location.origin;
  return (
    <Empty title="Nothing has run yet">
      <p>Send something, in whichever way suits you:</p>
      <Command text={'mainspring send --wait "hello"'} />
      <Command text={`curl '${server}/v1/sends?wait=30s' --json '{"input": "hello"}'`} />
      <Command text={`from mainspring import Client\n\nwith Client() as client:\n    print(client.session().send_and_wait("hello").text)`} />
      <button type="button" class="primary" onClick={() => void begin()}>
        Or here
      </button>
    </Empty>
  );
}
