// Timers: what is due when, as a list and as a calendar.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { call, can, post, type Page, type Schemas } from "../api.js";
import { go, link, place, refine } from "../router.js";
import { Ago, At, Command, Empty, Facts, Failed, Failure, Id, Loading, Status, Tabs } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask } from "../ui/dialog.js";
import { Filters, asked, isFiltered } from "../ui/filters.js";
import { line, plain, short, time } from "../ui/format.js";
import { Payload } from "../ui/json.js";
import { useGet, useList } from "../ui/live.js";
import { Plain, Table } from "../ui/table.js";

type View = Schemas["TimerView"];

const FILTERS = [
  { name: "status", label: "status", options: ["armed", "paused", "done", "cancelled", "dead"] satisfies View["status"][] },
  { name: "session_id", label: "session" },
] as const;

export function scheduleOf(timer: View): string {
  if (timer.cron) return `${timer.cron} ${timer.timezone ?? "UTC"}`;
  if (timer.every) return `every ${timer.every}`;
  return timer.at ? `at ${time(timer.at)}` : "once";
}

function says(timer: View): string {
  if (timer.run) return `run ${String((timer.run as { spec?: { name?: string } }).spec?.name ?? "")}`;
  const first = timer.input?.find((part) => part.type === "text") as { text?: string } | undefined;
  return line(first?.text ?? "", 80);
}

export function Timers(): JSX.Element {
  const query = asked(FILTERS);
  const list = useList<View>("/v1/timers", query, (row) => row.id);
  const tab = place.value.query.get("as") ?? "list";
  return (
    <>
      <h1>Timers</h1>
      <Tabs label="Timers as" names={["list", "calendar"]} at={tab} onPick={(name) => refine({ as: name })} />
      <Filters of={FILTERS} />
      {tab === "calendar" ? (
        list.rows === undefined ? (
          <Loading />
        ) : (
          <Calendar timers={list.rows} />
        )
      ) : (
        <Table
          label="Timers"
          list={list}
          id={(row) => row.id}
          href={(row) => link(`/timers/${row.id}`)}
          open={(row) => go(`/timers/${row.id}`)}
          columns={[
            { name: "id", width: "9rem", cell: (row) => <code>{short(row.id)}</code> },
            { name: "status", width: "8rem", cell: (row) => <Status of={row.status} /> },
            { name: "schedule", width: "14rem", cell: (row) => plain(scheduleOf(row)) },
            { name: "says", isExtra: true, cell: (row) => <span class={row.error ? "bad" : "soft"}>{plain(row.error ? row.error.message : says(row))}</span> },
            { name: "fired", width: "6rem", isNumber: true, isExtra: true, cell: (row) => row.occurrences },
            { name: "next", width: "9rem", isNumber: true, cell: (row) => <Ago at={row.next?.[0] as string | undefined} /> },
          ]}
          empty={
            <Empty title={isFiltered(FILTERS) ? "No timer matches all filters" : "There is no timer"}>
              <Command text={"mainspring timers create --help"} />
            </Empty>
          }
        />
      )}
    </>
  );
}

const DAY = 86_400_000;

/** A month of days with the next due times of each timer; the server says at most five of one. */
function Calendar({ timers }: { timers: View[] }): JSX.Element {
  const [month, setMonth] = useState(() => {
    const today = new Date();
    return new Date(today.getFullYear(), today.getMonth(), 1).getTime();
  });
  const first = new Date(month);
  const start = new Date(month - ((first.getDay() + 6) % 7) * DAY);
  start.setHours(0, 0, 0, 0);
  const days = Array.from({ length: 42 }, (_, n) => new Date(start.getFullYear(), start.getMonth(), start.getDate() + n));
  const due = new Map<string, { at: Date; timer: View }[]>();
  for (const timer of timers) {
    for (const text of (timer.next ?? []) as string[]) {
      const at = new Date(text);
      const key = at.toDateString();
      due.set(key, [...(due.get(key) ?? []), { at, timer }]);
    }
  }
  const turn = (by: number): void => setMonth(new Date(first.getFullYear(), first.getMonth() + by, 1).getTime());
  const today = new Date().toDateString();
  return (
    <div class="calendar">
      <div class="row">
        <button type="button" onClick={() => turn(-1)} aria-label="The month before">
          ‹
        </button>
        <strong aria-live="polite">{first.toLocaleDateString("en", { month: "long", year: "numeric" })}</strong>
        <button type="button" onClick={() => turn(1)} aria-label="The next month">
          ›
        </button>
        <span class="soft small">Times of this machine; at most the next five of each timer.</span>
      </div>
      <table>
        <thead>
          <tr>
            {["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: 6 }, (_, week) => (
            <tr key={week}>
              {days.slice(week * 7, week * 7 + 7).map((day) => {
                const all = (due.get(day.toDateString()) ?? []).sort((a, b) => a.at.getTime() - b.at.getTime());
                return (
                  <td key={day.toISOString()} class={`${day.getMonth() === first.getMonth() ? "" : "other"} ${day.toDateString() === today ? "today" : ""}`}>
                    <span class="soft small">{day.getDate()}</span>
                    {all.slice(0, 6).map(({ at, timer }) => (
                      <a key={`${timer.id} ${at.getTime()}`} href={link(`/timers/${timer.id}`)} title={says(timer)}>
                        {at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })} {plain(line(says(timer), 16))}
                      </a>
                    ))}
                    {all.length > 6 ? <span class="soft small">{all.length - 6} more</span> : null}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Timer({ id }: { id: string }): JSX.Element {
  const timer = useGet<View>(`/v1/timers/${id}`);
  const occurrences = useGet<Page<Schemas["OccurrenceView"]>>(`/v1/timers/${id}/occurrences`, { limit: 100 });
  if (timer.value === undefined) return timer.error === undefined ? <Loading /> : <Failed error={timer.error} />;
  const view = timer.value;
  const path = `/v1/timers/${id}`;
  const isOver = view.status === "done" || view.status === "cancelled" || view.status === "dead";
  const change = async (): Promise<void> => {
    const kind = view.cron ? "cron" : view.every ? "every" : "at";
    const given = await ask("Change the schedule", {
      fields: [
        { name: "kind", label: "Kind", value: kind, options: ["cron", "every", "at", "after"] },
        { name: "value", label: "Value", value: String(view.cron ?? view.every ?? view.at ?? ""), isRequired: true, hint: "cron: 0 9 * * 1-5 · every and after: 30m · at: 2030-01-31T08:00:00Z" },
        ...(view.cron ? [{ name: "timezone", label: "Time zone", value: view.timezone ?? "UTC" }] : []),
      ],
      action: "Change",
    });
    if (given === null) return;
    const body: Record<string, unknown> = { [given["kind"] ?? kind]: given["value"] };
    if (given["kind"] === "cron" && given["timezone"]) body["timezone"] = given["timezone"];
    await act("Changed", () => call({ method: "PATCH", path, body }));
  };
  const cancel = async (): Promise<void> => {
    const sure = await ask("Cancel this timer?", { body: <p>Sends that it created go on. It cannot be armed again.</p>, action: "Cancel the timer", danger: true });
    if (sure !== null) await act("Cancelled", () => call({ method: "DELETE", path }));
  };
  return (
    <>
      <header class="row head">
        <a href={link("/timers")}>Timers</a>
        <h1>{plain(scheduleOf(view))}</h1>
        <Status of={view.status} />
        <Id id={id} />
        {view.session_id ? <Id id={view.session_id} /> : null}
        {can("POST /v1/timers/{id}/fire") && !isOver ? (
          <div class="row actions">
            <button type="button" onClick={() => void act("Fired", () => post(`${path}/fire`, { n: view.occurrences + 1 }))}>
              Fire now
            </button>
            <button type="button" onClick={() => void act(view.status === "paused" ? "Goes on" : "Paused", () => post(`${path}/${view.status === "paused" ? "resume" : "pause"}`))}>
              {view.status === "paused" ? "Resume" : "Pause"}
            </button>
            <button type="button" onClick={() => void change()}>
              Change…
            </button>
            <button type="button" class="danger" onClick={() => void cancel()}>
              Cancel…
            </button>
          </div>
        ) : null}
      </header>
      {view.error ? (
        <p class="bad">
          <Failure of={view.error} />
        </p>
      ) : null}
      <Facts
        of={[
          ["fired", view.occurrences],
          ["failures in a row", view.failures],
          ["last", <Ago at={view.last_fired_at} />],
          ["what is missed", view.catch_up],
          ["while busy", view.on_busy],
        ]}
      />
      <h2>Due next</h2>
      {(view.next ?? []).length === 0 ? <p class="soft">never</p> : null}
      <ol>
        {((view.next ?? []) as string[]).map((at) => (
          <li key={at}>
            <At at={at} /> <span class="soft"><Ago at={at} /></span>
          </li>
        ))}
      </ol>
      <h2>Occurrences</h2>
      <Failed error={occurrences.error} />
      <Plain
        label="Occurrences"
        rows={occurrences.value?.data}
        id={(row) => String(row.n)}
        columns={[
          { name: "n", isNumber: true, cell: (row) => row.n },
          { name: "due", cell: (row) => <At at={row.due_at} /> },
          { name: "fired", cell: (row) => <At at={row.fired_at} /> },
          { name: "outcome", cell: (row) => <>{String(row.fate)}{row.manual ? " (asked for)" : ""}</> },
          { name: "made", cell: (row) => (row.send_id ? <Id id={row.send_id} /> : row.run_id ? <Id id={row.run_id} /> : null) },
        ]}
        empty={<p class="soft">It has not fired yet.</p>}
      />
      <Payload title="timer" value={view} open={1} />
      <CopyAs asked={{ method: "GET", path }} />
    </>
  );
}
