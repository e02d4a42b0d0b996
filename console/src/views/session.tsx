// A session: what was said beside what happened when.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { call as request, can, post, send as raw, words, type Page, type Schemas } from "../api.js";
import { go, link, place, refine } from "../router.js";
import { Cost, Empty, Facts, Failed, Failure, Id, Loading, Status, Tabs, Tokens, Took } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask, tell } from "../ui/dialog.js";
import { plain } from "../ui/format.js";
import { Payload } from "../ui/json.js";
import { useKeys } from "../ui/keys.js";
import { useGet } from "../ui/live.js";
import type { Waiting } from "./calls.js";
import { Composer } from "./session/composer.js";
import { Conversation } from "./session/conversation.js";
import { download } from "./session/files.js";
import { Children, Context, Items, Lists, SendList, SessionUsage } from "./session/side.js";
import { agentOf, titleOf } from "./sessions.js";
import { spansOf } from "./timeline.js";
import { useSend, useTranscript, type SendView } from "./transcript.js";
import { Waterfall, type Picked } from "./waterfall.js";

const FINAL = ["completed", "failed", "cancelled"];
const TABS = ["Timeline", "Sends", "Context", "Lists", "Children", "Inbox", "Usage", "JSON"] as const;

export function Session({ id }: { id: string }): JSX.Element {
  const session = useGet<Schemas["SessionView"]>(`/v1/sessions/${id}`);
  const sends = useGet<Page<SendView>>("/v1/sends", { session_id: id, limit: 50 });
  const waiting = useGet<Page<Waiting>>(`/v1/sessions/${id}/calls`);
  const transcript = useTranscript(id, session.value);
  const all = sends.value?.data ?? [];
  const active = [...all].reverse().find((send) => !FINAL.includes(send.status));
  const wanted = place.value.query.get("send");
  const shown = all.find((send) => send.id === wanted) ?? active ?? all[0];
  const followed = useSend(shown?.id, transcript.take);
  const isLive = shown !== undefined && shown.id === active?.id;
  const [picked, setPicked] = useState<Picked>({});
  const tab = place.value.query.get("tab") ?? "Timeline";

  // The newest send is looked at unless another one was chosen.
  useKeys(
    "Session",
    [
      { keys: "[", does: "the send before", run: () => step(all, shown, 1) },
      { keys: "]", does: "the next send", run: () => step(all, shown, -1) },
      { keys: "e", does: "the next failure", run: () => nextFailure(all, shown) },
      { keys: "c", does: "write a message", run: () => document.querySelector<HTMLElement>(".composer textarea")?.focus() },
      { keys: "y", does: "copy the link", run: () => void navigator.clipboard?.writeText(location.href).then(() => tell("Link copied")) },
    ],
  );
  useEffect(() => {
    if (picked.call === undefined && picked.round === undefined) return;
    const found = document.querySelector(picked.call === undefined ? `[data-round="${picked.send} ${picked.round}"]` : `[data-call="${CSS.escape(picked.call)}"]`);
    found?.scrollIntoView({ block: "nearest" });
  }, [picked]);

  if (session.value === undefined) return session.error === undefined ? <Loading /> : <Failed error={session.error} />;
  const view = session.value;
  return (
    <div class="session">
      <header class="row head">
        <a href={link("/sessions")}>Sessions</a>
        <h1>{plain(titleOf(view.metadata) || agentOf(view))}</h1>
        <Status of={view.status} on={active?.waiting_on} />
        <AgentLink view={view} />
        {view.parent_id ? (
          <span>
            below <Id id={view.parent_id} />
          </span>
        ) : null}
        <Id id={id} />
        <Actions view={view} sends={all} />
      </header>
      {(view.warnings ?? []).map((warning) => (
        <p key={JSON.stringify(warning)} class="note">
          {plain(typeof warning === "string" ? warning : JSON.stringify(warning))}
        </p>
      ))}
      <div class="halves">
        <section class="conversation" aria-label="Conversation">
          <Conversation
            view={view}
            transcript={transcript}
            sends={all}
            live={isLive ? followed.live : undefined}
            waiting={waiting.value?.data ?? []}
            picked={picked}
            onPick={setPicked}
          />
          <Composer view={view} active={active} onPreview={() => refine({ tab: "Context" })} />
        </section>
        <section class="side" aria-label="Details">
          <Tabs label="Details" names={TABS} at={tab} onPick={(name) => refine({ tab: name })} />
          {tab === "Timeline" ? (
            <>
              {shown === undefined ? (
                <Empty title="No send yet" />
              ) : (
                <>
                  <SendHead send={shown} all={all} />
                  <Failed error={followed.error === "" ? undefined : new Error(followed.error)} what="The events could not be read" />
                  <Waterfall spans={spansOf(shown.id, followed.events, shown.started_at)} picked={picked} onPick={setPicked} />
                </>
              )}
            </>
          ) : null}
          {tab === "Sends" ? <SendList sends={all} more={sends.value?.next_cursor != null} id={id} /> : null}
          {tab === "Context" ? <Context id={id} /> : null}
          {tab === "Lists" ? <Lists id={id} /> : null}
          {tab === "Children" ? <Children id={id} /> : null}
          {tab === "Inbox" ? <Items id={id} /> : null}
          {tab === "Usage" ? <SessionUsage id={id} /> : null}
          {tab === "JSON" ? (
            <>
              <Payload title="Session" value={view} />
              {shown === undefined ? null : <Payload title="Send" value={shown} />}
              <CopyAs asked={{ method: "GET", path: `/v1/sessions/${id}` }} />
            </>
          ) : null}
        </section>
      </div>
    </div>
  );
}

function AgentLink({ view }: { view: Schemas["SessionView"] }): JSX.Element {
  const ref = view.agent_ref;
  return ref ? <a href={link(`/agents/${encodeURIComponent(ref.name)}`)}>{plain(agentOf(view))}</a> : <span class="soft">{plain(agentOf(view))}</span>;
}

function step(all: SendView[], at: SendView | undefined, by: number): void {
  const n = all.findIndex((send) => send.id === at?.id);
  const next = all[n + by];
  if (next !== undefined) refine({ send: next.id, tab: "Timeline" });
}

function nextFailure(all: SendView[], at: SendView | undefined): void {
  const n = all.findIndex((send) => send.id === at?.id);
  const failed = [...all.slice(n + 1), ...all.slice(0, n)].find((send) => send.status === "failed");
  if (failed === undefined) tell("No other send failed");
  else refine({ send: failed.id, tab: "Timeline" });
}

function Actions({ view, sends }: { view: Schemas["SessionView"]; sends: SendView[] }): JSX.Element {
  const path = `/v1/sessions/${view.id}`;
  const recovering = sends.find((send) => send.waiting_on === "recovery");
  const failed = sends[0]?.status === "failed" ? sends[0] : undefined;
  const fork = async (): Promise<void> => {
    const made = await act("Forked", () => post<{ id: string }>(`${path}/fork`, {}));
    if (made !== undefined) go(`/sessions/${made.id}`);
  };
  const remove = async (): Promise<void> => {
    const sure = await ask("Delete this session?", { body: <p>With its transcript, timers and what runs in it. This cannot be undone.</p>, action: "Delete", danger: true });
    if (sure === null) return;
    const done = await act("Deleted", async () => {
      await request({ method: "DELETE", path });
      return true;
    });
    if (done === true) go("/sessions");
  };
  const save = async (): Promise<void> => {
    try {
      const response = await raw({ method: "GET", path: `${path}/export` });
      if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
      download(await response.blob(), `${view.id}.jsonl`);
    } catch (error) {
      tell(words(error), true);
    }
  };
  return (
    <div class="row actions">
      {recovering !== undefined && can("POST /v1/sessions/{id}/resume") ? (
        <>
          <button type="button" class="primary" onClick={() => void act("Goes on", () => post(`${path}/resume`))}>
            Resume
          </button>
          <button type="button" onClick={() => void act("Ended", () => post(`${path}/abort`))}>
            Abort
          </button>
        </>
      ) : null}
      {failed === undefined || !can("POST /v1/sends/{id}/retry") ? null : (
        <button type="button" class="primary" onClick={() => void act("Sent again", () => post(`/v1/sends/${failed.id}/retry`))}>
          Retry
        </button>
      )}
      {can("POST /v1/sessions/{id}/fork") ? (
        <button type="button" onClick={() => void fork()}>
          Fork
        </button>
      ) : null}
      <button type="button" onClick={() => void save()}>
        Export
      </button>
      {can("PATCH /v1/sessions/{id}") ? (
        <button
          type="button"
          onClick={() => void act(view.status === "closed" ? "Open again" : "Closed", () => request({ method: "PATCH", path, body: { closed: view.status !== "closed" } }))}
        >
          {view.status === "closed" ? "Reopen" : "Close"}
        </button>
      ) : null}
      {can("DELETE /v1/sessions/{id}") ? (
        <button type="button" class="danger" onClick={() => void remove()}>
          Delete…
        </button>
      ) : null}
    </div>
  );
}

function SendHead({ send, all }: { send: SendView; all: SendView[] }): JSX.Element {
  const n = all.length - all.findIndex((one) => one.id === send.id);
  return (
    <div class="sendhead">
      <div class="row">
        <strong>
          send {n} of {all.length}
        </strong>
        <Status of={send.status} on={send.waiting_on} />
        {FINAL.includes(send.status) || !can("POST /v1/sends/{id}/cancel") ? null : (
          <button type="button" onClick={() => void act("Cancelled", () => post(`/v1/sends/${send.id}/cancel`))}>
            Cancel
          </button>
        )}
        {send.status === "failed" && can("POST /v1/sends/{id}/retry") ? (
          <button type="button" onClick={() => void act("Sent again", () => post(`/v1/sends/${send.id}/retry`))}>
            Retry
          </button>
        ) : null}
        <Id id={send.id} />
      </div>
      {send.error ? (
        <p class="bad">
          <Failure of={send.error} />
        </p>
      ) : null}
      {(send.warnings ?? []).map((warning) => (
        <p key={JSON.stringify(warning)} class="note">
          {plain(typeof warning === "string" ? warning : JSON.stringify(warning))}
        </p>
      ))}
      <Facts
        of={[
          ["rounds", send.rounds],
          ["took", <Took from={send.created_at} to={send.finished_at} />],
          ["tokens", <Tokens of={send.usage} />],
          ["cost", <Cost of={send.usage} />],
          ["attempts", send.attempts],
        ]}
      />
      {send.metadata && Object.keys(send.metadata).length > 0 ? <p class="soft small">{plain(titleOf(send.metadata))}</p> : null}
    </div>
  );
}
