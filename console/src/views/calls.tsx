// A call that waits for somebody, and ways to answer it. Whatever its shape, it is shown, and can be answered.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { can, post, type Schemas } from "../api.js";
import { link } from "../router.js";
import { Ago, Id } from "../ui/basics.js";
import { act, ask, tell } from "../ui/dialog.js";
import { duration, plain } from "../ui/format.js";
import { Json } from "../ui/json.js";
import { Markdown } from "../ui/markdown.js";
import { now } from "../ui/live.js";

export type Waiting = Schemas["WaitingCall"];

/** Answers a call; tells what became of the answer, since somebody else may have been faster. */
export async function answer(call: Waiting, body: Record<string, unknown>): Promise<void> {
  const result: Record<string, unknown> = { call_id: call.call_id, ...body };
  if (call.asks) result["question"] = call.asks.question;
  const posted = await act("Answered", () => post<Schemas["PostedResults"]>(`/v1/sessions/${call.session_id}/tool-results`, { results: [result] }));
  const status = posted?.results[0]?.status;
  if (status === "locked") {
    tell("The session is held by something else at the moment, and nothing was stored: answer once more.", true);
  } else if (status !== undefined && status !== "accepted") {
    await ask("This call was not waiting for it any more", {
      body: (
        <p>
          The server says <code>{status}</code>: somebody else has answered, or the call has ended. Nothing was done twice.
        </p>
      ),
      action: "Close",
    });
  }
}

export async function deny(call: Waiting): Promise<void> {
  const given = await ask(`Deny ${call.name}?`, {
    fields: [{ name: "note", label: "Why? The model is told.", isLong: true }],
    action: "Deny",
    danger: true,
  });
  if (given === null) return;
  const note = given["note"] ?? "";
  await answer(call, { answers: "permission", output: note === "" ? { approved: false } : { approved: false, note } });
}

export function approve(call: Waiting): Promise<void> {
  return answer(call, { answers: "permission", output: { approved: true } });
}

/** What a question offers, if it is one of the built-in tool's shape. */
interface Question {
  question?: unknown;
  options?: unknown;
  choices?: unknown;
  kind?: unknown;
}

/** What one sees of a call in a line. */
export function inWords(call: Waiting): string {
  if (call.asks) return call.asks.message;
  const given = (call.arguments ?? {}) as Question;
  if (call.wants === "answer" && typeof given.question === "string") return given.question;
  return `${call.name}(${JSON.stringify(call.arguments ?? {})})`;
}

export function Deadline({ at }: { at: string | null | undefined }): JSX.Element | null {
  if (!at) return null;
  const left = Date.parse(at) - now.value;
  return <span class={left < 300_000 ? "bad" : "soft"}>expires in {duration(left)}</span>;
}

export function Call({ call, withSession = false }: { call: Waiting; withSession?: boolean }): JSX.Element {
  const mayAnswer = can("POST /v1/sessions/{id}/tool-results");
  return (
    <article class="call" aria-label={`${call.name} waits`}>
      <header class="row">
        <strong>{plain(call.name)}</strong>
        <span class="tag">{call.wants === "permission" ? "approval" : call.asks ? "question of a tool" : call.waiting_on === "tool" ? "external tool" : "question"}</span>
        {call.repeat === "once" ? <span class="tag warn">not repeatable</span> : null}
        <span class="soft">
          asked <Ago at={call.requested_at} />
        </span>
        <Deadline at={call.deadline_at} />
        {withSession ? <a href={link(`/sessions/${call.session_id}`)}>session ↗</a> : null}
        <Id id={call.call_id} />
      </header>
      <Body call={call} />
      {mayAnswer ? <Answer key={`${call.call_id} ${call.asks?.question ?? ""}`} call={call} /> : <p class="soft">This key may not answer.</p>}
    </article>
  );
}

function Body({ call }: { call: Waiting }): JSX.Element {
  if (call.asks) return <Markdown text={call.asks.message} />;
  const given = (call.arguments ?? {}) as Question;
  if (call.wants === "answer" && typeof given.question === "string") return <Markdown text={given.question} />;
  return <Json value={call.arguments} open={3} label="arguments" />;
}

function Answer({ call }: { call: Waiting }): JSX.Element {
  if (call.wants === "permission") {
    return (
      <div class="row">
        <button type="button" class="primary" onClick={() => void approve(call)}>
          Approve
        </button>
        <button type="button" onClick={() => void deny(call)}>
          Deny…
        </button>
      </div>
    );
  }
  if (call.asks) return <Reply call={call} />;
  const given = (call.arguments ?? {}) as Question;
  const options = [given.options, given.choices].find(Array.isArray) as unknown[] | undefined;
  return (
    <>
      {options === undefined ? null : (
        <div class="row" role="group" aria-label="Options">
          {options.map((option) => (
            <button key={String(option)} type="button" onClick={() => void answer(call, { answers: "answer", output: option })}>
              {plain(String(option))}
            </button>
          ))}
        </div>
      )}
      {given.kind === "confirm" || given.kind === "yes_no" ? (
        <div class="row" role="group" aria-label="Yes or no">
          <button type="button" onClick={() => void answer(call, { answers: "answer", output: true })}>
            Yes
          </button>
          <button type="button" onClick={() => void answer(call, { answers: "answer", output: false })}>
            No
          </button>
        </div>
      ) : null}
      <Free call={call} isJson={call.waiting_on === "tool"} />
    </>
  );
}

/** A text, or any JSON. */
function Free({ call, isJson }: { call: Waiting; isJson: boolean }): JSX.Element {
  const [text, set] = useState("");
  const [asJson, setAsJson] = useState(isJson);
  let value: unknown = text;
  let fault = "";
  if (asJson && text.trim() !== "") {
    try {
      value = JSON.parse(text);
    } catch (error) {
      fault = String(error instanceof Error ? error.message : error);
    }
  }
  const isReady = text.trim() !== "" && fault === "";
  const send = (): void => {
    if (isReady) void answer(call, { answers: "answer", output: value });
  };
  return (
    <form
      class="answer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <label class="field">
        <span>Answer</span>
        <textarea
          rows={asJson ? 4 : 2}
          value={text}
          onInput={(event) => set(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
          }}
        />
      </label>
      {fault === "" ? null : <p class="bad small">{fault}</p>}
      <div class="row">
        <button type="submit" class="primary" disabled={!isReady}>
          Answer
        </button>
        <label>
          <input type="checkbox" checked={asJson} onChange={(event) => setAsJson(event.currentTarget.checked)} /> JSON
        </label>
        {call.waiting_on === "tool" ? (
          <button
            type="button"
            onClick={async () => {
              const given = await ask("What went wrong?", { fields: [{ name: "error", label: "The model is told", isLong: true, isRequired: true }], action: "Fail the call", danger: true });
              if (given !== null) await answer(call, { answers: "answer", error: given["error"] });
            }}
          >
            Fail…
          </button>
        ) : null}
      </div>
    </form>
  );
}

interface Schema {
  type?: string;
  title?: string;
  description?: string;
  enum?: unknown[];
  enumNames?: string[];
  default?: unknown;
}

/** What a tool asks of a person: a form of plain members, or an address to open. */
function Reply({ call }: { call: Waiting }): JSX.Element {
  const asks = call.asks;
  const schema = asks?.requested_schema as { properties?: Record<string, Schema>; required?: string[] } | null | undefined;
  const members = Object.entries(schema?.properties ?? {});
  const [values, set] = useState<Record<string, unknown>>(() => Object.fromEntries(members.filter(([, member]) => member.default !== undefined).map(([name, member]) => [name, member.default])));
  const send = (output: Record<string, unknown>): void => void answer(call, { output });
  const missing = (schema?.required ?? []).filter((name) => values[name] === undefined || values[name] === "");
  const change = (name: string, value: unknown): void => set({ ...values, [name]: value });
  return (
    <form
      class="answer"
      onSubmit={(event) => {
        event.preventDefault();
        if (missing.length === 0) send(members.length === 0 ? { action: "accept" } : { action: "accept", content: values });
      }}
    >
      {asks?.url ? (
        <p>
          The tool asks to open <code>{plain(asks.url)}</code>.{" "}
          {/^https?:\/\//i.test(asks.url) ? (
            <a href={asks.url} target="_blank" rel="noopener noreferrer">
              Open it
            </a>
          ) : null}
        </p>
      ) : null}
      {members.map(([name, member]) => (
        <label key={name} class="field">
          <span>{plain(member.title ?? name)}</span>
          {member.enum ? (
            <select value={String(values[name] ?? "")} onChange={(event) => change(name, member.enum?.find((option) => String(option) === event.currentTarget.value))}>
              <option value="" />
              {member.enum.map((option, n) => (
                <option key={String(option)} value={String(option)}>
                  {plain(member.enumNames?.[n] ?? String(option))}
                </option>
              ))}
            </select>
          ) : member.type === "boolean" ? (
            <input type="checkbox" checked={values[name] === true} onChange={(event) => change(name, event.currentTarget.checked)} />
          ) : member.type === "number" || member.type === "integer" ? (
            <input
              inputMode="decimal"
              value={String(values[name] ?? "")}
              onInput={(event) => {
                const text = event.currentTarget.value;
                change(name, text === "" || Number.isNaN(Number(text)) ? undefined : Number(text));
              }}
            />
          ) : (
            <input value={String(values[name] ?? "")} onInput={(event) => change(name, event.currentTarget.value)} />
          )}
          {member.description ? <span class="soft small">{plain(member.description)}</span> : null}
        </label>
      ))}
      <div class="row">
        <button type="submit" class="primary" disabled={missing.length > 0}>
          Accept
        </button>
        <button type="button" onClick={() => send({ action: "decline" })}>
          Decline
        </button>
        <button type="button" onClick={() => send({ action: "cancel" })}>
          Cancel
        </button>
      </div>
    </form>
  );
}
