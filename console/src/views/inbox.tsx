// Everything that waits for a person.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import type { Page } from "../api.js";
import { link, place, refine } from "../router.js";
import { Ago, Command, Empty, Failed, Loading } from "../ui/basics.js";
import { Filters, asked } from "../ui/filters.js";
import { line, plain } from "../ui/format.js";
import { useKeys } from "../ui/keys.js";
import { useGet } from "../ui/live.js";
import { Call, Deadline, approve, deny, inWords, type Waiting } from "./calls.js";

const FILTERS = [
  { name: "waiting_on", label: "waits for", options: ["human", "tool"] },
  { name: "name", label: "tool" },
  { name: "agent", label: "agent" },
] as const;

export function Inbox(): JSX.Element {
  const page = useGet<Page<Waiting>>("/v1/calls", { limit: 200, ...asked(FILTERS) });
  const [left, setLeft] = useState<Waiting[]>([]);
  const rows = page.value?.data ?? [];
  const wanted = place.value.query.get("call");
  const at = Math.max(
    0,
    rows.findIndex((call) => key(call) === wanted),
  );
  const current = rows[at];
  // What was looked at and is gone has been answered, here or elsewhere.
  const gone = wanted !== null && page.value !== undefined && rows.every((call) => key(call) !== wanted) ? left.find((call) => key(call) === wanted) : undefined;
  const pick = (n: number): void => {
    const call = rows[Math.max(0, Math.min(rows.length - 1, n))];
    if (call === undefined) return;
    setLeft([...left.slice(-20), call]);
    refine({ call: key(call) });
  };
  useKeys(
    "Inbox",
    [
      { keys: "j", does: "next", run: () => pick(at + 1) },
      { keys: "k", does: "before", run: () => pick(at - 1) },
      { keys: "a", does: "approve", run: () => current?.wants === "permission" && void approve(current) },
      { keys: "d", does: "deny, with a note", run: () => current?.wants === "permission" && void deny(current) },
      { keys: "Enter", does: "write an answer", run: () => document.querySelector<HTMLElement>(".call textarea, .call input, .call button")?.focus() },
    ],
  );
  return (
    <>
      <h1>Inbox</h1>
      <Filters of={FILTERS} />
      <Failed error={page.error} />
      {gone === undefined ? null : (
        <p class="note" role="status">
          “{plain(line(inWords(gone), 80))}” has been answered, or has ended. <a href={link(`/sessions/${gone.session_id}`)}>Its session</a>
        </p>
      )}
      {page.value === undefined ? (
        page.error === undefined ? <Loading /> : null
      ) : rows.length === 0 ? (
        <Empty title="Nobody waits for you">
          <p>Questions and approvals of all agents come together here. Try it:</p>
          <Command text={`mainspring send --tool ask_person '!tool ask_person {"question": "In which colour?"}'`} />
        </Empty>
      ) : (
        <div class="split">
          <ul class="calls" aria-label="Open calls">
            {rows.map((call, n) => (
              <li key={key(call)}>
                <button type="button" class={n === at ? "at" : ""} aria-current={n === at} onClick={() => pick(n)}>
                  <span class="strong">{plain(line(inWords(call), 90))}</span>
                  <span class="soft small">
                    {call.wants === "permission" ? "approval" : call.waiting_on === "tool" ? "external tool" : "question"} · <Ago at={call.requested_at} /> <Deadline at={call.deadline_at} />
                  </span>
                </button>
              </li>
            ))}
          </ul>
          {current === undefined ? null : <Call call={current} withSession />}
        </div>
      )}
    </>
  );
}

function key(call: Waiting): string {
  return `${call.session_id}/${call.call_id}/${call.asks?.question ?? ""}`;
}
