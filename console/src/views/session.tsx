// A session: what was said beside what happened when.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { call as request, get, may, post, send as raw, words, type Page, type Schemas } from "../api.js";
import { go, link, place, refine } from "../router.js";
import { Ago, Bar, Cost, Empty, Facts, Failed, Failure, Id, Loading, Status, Tabs, Tokens, Took } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { act, ask, tell } from "../ui/dialog.js";
import { bytes, count, line, money, plain } from "../ui/format.js";
import { Json, Payload } from "../ui/json.js";
import { useKeys } from "../ui/keys.js";
import { useGet } from "../ui/live.js";
import { Markdown } from "../ui/markdown.js";
import { Call, type Waiting } from "./calls.js";
import { agentOf, titleOf } from "./sessions.js";
import { spansOf } from "./timeline.js";
import { useSend, useTranscript, type Entry, type Live, type Message, type SendView } from "./transcript.js";
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
      {recovering !== undefined && may("manage", "send", "use") ? (
        <>
          <button type="button" class="primary" onClick={() => void act("Goes on", () => post(`${path}/resume`))}>
            Resume
          </button>
          <button type="button" onClick={() => void act("Ended", () => post(`${path}/abort`))}>
            Abort
          </button>
        </>
      ) : null}
      {failed === undefined ? null : (
        <button type="button" class="primary" onClick={() => void act("Sent again", () => post(`/v1/sends/${failed.id}/retry`))}>
          Retry
        </button>
      )}
      <button type="button" onClick={() => void fork()}>
        Fork
      </button>
      <button type="button" onClick={() => void save()}>
        Export
      </button>
      <button
        type="button"
        onClick={() => void act(view.status === "closed" ? "Open again" : "Closed", () => request({ method: "PATCH", path, body: { closed: view.status !== "closed" } }))}
      >
        {view.status === "closed" ? "Reopen" : "Close"}
      </button>
      {may("manage", "send", "use") ? (
        <button type="button" class="danger" onClick={() => void remove()}>
          Delete…
        </button>
      ) : null}
    </div>
  );
}

export function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
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
        {FINAL.includes(send.status) ? null : (
          <button type="button" onClick={() => void act("Cancelled", () => post(`/v1/sends/${send.id}/cancel`))}>
            Cancel
          </button>
        )}
        {send.status === "failed" ? (
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

interface ConversationProps {
  view: Schemas["SessionView"];
  transcript: ReturnType<typeof useTranscript>;
  sends: SendView[];
  live: Live | undefined;
  waiting: Waiting[];
  picked: Picked;
  onPick: (picked: Picked) => void;
}

function Conversation({ view, transcript, sends, live, waiting, picked, onPick }: ConversationProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [follows, setFollows] = useState(true);
  const entries = transcript.entries ?? [];
  const results = new Map<string, Message>();
  for (const entry of entries) {
    if (entry.role === "tool" && entry.tool_call_id) results.set(entry.tool_call_id, entry);
  }
  const open = new Map(waiting.map((call) => [call.call_id, call]));
  const queued = [...sends].reverse().filter((send) => send.status === "queued");
  const size = `${entries.length} ${live?.text.length ?? 0} ${live?.reasoning.length ?? 0} ${waiting.length} ${queued.length}`;
  useLayoutEffect(() => {
    if (follows && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [size, follows]);
  useKeys("Conversation", [{ keys: "f", does: "follow what is new", run: () => setFollows(!follows) }]);
  return (
    <div
      class="messages"
      ref={box}
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label="Messages"
      onScroll={(event) => {
        const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
        const isAtEnd = scrollHeight - scrollTop - clientHeight < 40;
        if (isAtEnd !== follows) setFollows(isAtEnd);
      }}
    >
      {transcript.error === "" ? null : <Failed error={new Error(transcript.error)} what="Not all could be read" />}
      {transcript.earlier === undefined ? null : (
        <button type="button" class="quiet" onClick={transcript.earlier}>
          Earlier messages
        </button>
      )}
      {transcript.entries === undefined ? <Loading /> : null}
      {entries.length === 0 && transcript.entries !== undefined && live === undefined ? <Empty title="Nothing was said yet" /> : null}
      {entries.map((entry) =>
        entry.role === "fold" ? (
          <Folded key={`fold ${(entry as unknown as { to_seq: number }).to_seq}`} of={entry} />
        ) : entry.role === "tool" ? null : (
          <Said key={entry.seq} of={entry} view={view} results={results} open={open} live={live} picked={picked} onPick={onPick} failed={failureOf(entry, entries, sends)} />
        ),
      )}
      {live !== undefined && (live.text !== "" || live.reasoning !== "") ? (
        <div class="message assistant live" aria-busy="true">
          {live.reasoning === "" ? null : (
            <details open={live.text === ""}>
              <summary>thinks…</summary>
              <p class="soft">{plain(live.reasoning)}</p>
            </details>
          )}
          <Markdown text={live.text} />
        </div>
      ) : null}
      {/* Calls whose message is not loaded, or of a shape that nobody knows, are shown all the same. */}
      {waiting
        .filter((call) => !entries.some((entry) => entry.role === "assistant" && (entry as Message).tool_calls?.some((one) => one.id === call.call_id)))
        .map((call) => (
          <Call key={call.call_id} call={call} />
        ))}
      {queued.map((send) => (
        <div key={send.id} class="message user queued">
          <Status of="queued" /> <Id id={send.id} />
          <button type="button" onClick={() => void act("Cancelled", () => post(`/v1/sends/${send.id}/cancel`))}>
            Cancel
          </button>
        </div>
      ))}
      {follows ? null : (
        <button type="button" class="fresh" onClick={() => setFollows(true)}>
          to the end ↓
        </button>
      )}
    </div>
  );
}

/** How a send failed, below the last message of it. */
function failureOf(entry: Message, entries: Entry[], sends: SendView[]): SendView["error"] {
  const send = sends.find((one) => one.id === entry.send_id);
  if (send?.error == null) return null;
  const last = entries.findLast((one) => one.role !== "fold" && one.role !== "tool" && (one as Message).send_id === send.id) as Message | undefined;
  return last?.seq === entry.seq ? send.error : null;
}

function Folded({ of }: { of: Entry }): JSX.Element {
  const fold = of as unknown as { from_seq: number; to_seq: number; text?: string };
  return (
    <details class="fold">
      <summary>
        ▲ messages {fold.from_seq}–{fold.to_seq} are folded: the model sees a summary instead
      </summary>
      {fold.text === undefined ? <Json value={of} /> : <Markdown text={fold.text} />}
    </details>
  );
}

interface SaidProps {
  of: Message;
  view: Schemas["SessionView"];
  results: Map<string, Message>;
  open: Map<string, Waiting>;
  live: Live | undefined;
  picked: Picked;
  onPick: (picked: Picked) => void;
  failed: SendView["error"];
}

function Said({ of, view, results, open, live, picked, onPick, failed }: SaidProps): JSX.Element {
  const calls = of.tool_calls ?? [];
  const isAt = picked.call === undefined && of.role === "assistant" && picked.send === of.send_id && picked.round === of.round;
  return (
    <div class={`message ${of.role} ${isAt ? "at" : ""} ${of.failed ? "failed" : ""}`} data-seq={of.seq} data-round={of.role === "assistant" ? `${of.send_id} ${of.round}` : undefined}>
      <div class="who soft small row">
        <span>{of.role === "user" ? "you" : of.role}</span>
        <Ago at={of.created_at} />
        <span class="tools">
          <Again of={of} view={view} />
        </span>
      </div>
      <Parts of={of.content} />
      {calls.map((made) => (
        <details key={made.id} data-call={made.id} class={`made ${picked.call === made.id ? "at" : ""}`} open={picked.call === made.id || open.has(made.id)} onToggle={() => undefined}>
          <summary onClick={() => onPick({ call: made.id })}>
            <strong>{plain(made.name)}</strong> <span class="soft">{plain(line(JSON.stringify(made.arguments ?? {}), 70))}</span>{" "}
            <Outcome result={results.get(made.id)} waiting={open.has(made.id)} progress={live?.progress.get(made.id)} />
          </summary>
          <Payload title="arguments" value={made.arguments} />
          <Result id={made.id} session={view.id} result={results.get(made.id)} />
        </details>
      ))}
      {calls.map((made) => {
        const waits = open.get(made.id);
        return waits === undefined ? null : <Call key={made.id} call={waits} />;
      })}
      {failed ? (
        <p class="bad">
          ✕ <Failure of={failed} />
        </p>
      ) : null}
    </div>
  );
}

function Outcome({ result, waiting, progress }: { result: Message | undefined; waiting: boolean; progress: string | undefined }): JSX.Element {
  if (result !== undefined) return <span class={result.failed ? "bad" : "soft"}>→ {plain(line(textOf(result.content), 80))}</span>;
  if (waiting) return <Status of="waiting" />;
  return <span class="soft">{progress === undefined ? "…" : plain(progress)}</span>;
}

function textOf(content: Message["content"]): string {
  const digest = content.find((part) => (part as { type: string }).type === "digest") as { text?: string } | undefined;
  if (digest?.text !== undefined) return digest.text;
  return content.map((part) => ("text" in part ? String(part.text) : `[${part.type}]`)).join(" ");
}

function Result({ id, session, result }: { id: string; session: string; result: Message | undefined }): JSX.Element | null {
  const [whole, set] = useState<string | undefined>(undefined);
  if (result === undefined) return null;
  const load = async (): Promise<void> => {
    try {
      const response = await raw({ method: "GET", path: `/v1/sessions/${session}/calls/${encodeURIComponent(id)}/output` });
      if (response.ok) set(await response.text());
      else tell(response.status === 404 ? "The server has no more than what is shown." : `${response.status}`, true);
    } catch (error) {
      tell(words(error), true);
    }
  };
  return (
    <section class="payload">
      <p class="title">result {result.failed ? <span class="bad">failed</span> : null}</p>
      {whole === undefined ? <Parts of={result.content} isPlain /> : <pre class="wrap">{plain(whole)}</pre>}
      {whole === undefined ? (
        <button type="button" class="quiet small" onClick={() => void load()}>
          the whole output
        </button>
      ) : null}
    </section>
  );
}

interface Part {
  type: string;
  text?: string;
  name?: string | null;
  source?: { type: string; sha256?: string; url?: string; media_type?: string; data?: string; text?: string; size?: number };
}

/** The types that may be shown as pictures. */
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

function Parts({ of, isPlain = false }: { of: Message["content"]; isPlain?: boolean }): JSX.Element {
  return (
    <>
      {(of as unknown as Part[]).map((part, n): ComponentChildren => {
        if (part.type === "text") return isPlain ? <pre key={n} class="wrap">{plain(part.text ?? "")}</pre> : <Markdown key={n} text={part.text ?? ""} />;
        if (part.type === "digest") return null;
        if (part.type === "reasoning") {
          return part.text ? (
            <details key={n}>
              <summary class="soft">thought</summary>
              <p class="soft wrap">{plain(part.text)}</p>
            </details>
          ) : null;
        }
        const source = part.source;
        if (part.type === "image" && source !== undefined) return <Picture key={n} source={source} />;
        if (part.type === "file") {
          return (
            <p key={n} class="tag">
              file {plain(part.name ?? "")} {source?.size === undefined ? "" : bytes(source.size)} {source?.sha256 ? <Fetch sha={source.sha256} name={part.name ?? source.sha256} /> : null}
            </p>
          );
        }
        return <Json key={n} value={part} />;
      })}
    </>
  );
}

/** A picture of a type that is one; those elsewhere on the network are never fetched. */
function Picture({ source }: { source: NonNullable<Part["source"]> }): JSX.Element {
  const [url, set] = useState<string | undefined>(undefined);
  const kind = source.media_type ?? "";
  useEffect(() => {
    if (source.data !== undefined && PICTURES.includes(kind)) set(`data:${kind};base64,${source.data}`);
    return () => {
      if (url?.startsWith("blob:")) URL.revokeObjectURL(url);
    };
  }, [source.data]);
  const load = async (): Promise<void> => {
    try {
      const response = await raw({ method: "GET", path: `/v1/blobs/${source.sha256 ?? ""}` });
      const blob = await response.blob();
      const head = new Uint8Array(await blob.slice(0, 12).arrayBuffer());
      const found = pictureOf(head);
      if (!response.ok || found === undefined) tell("This is no picture that can be shown.", true);
      else set(URL.createObjectURL(new Blob([blob], { type: found })));
    } catch (error) {
      tell(words(error), true);
    }
  };
  if (url !== undefined) return <img class="picture" src={url} alt="A picture of the conversation" />;
  if (source.sha256) {
    return (
      <button type="button" class="tag" onClick={() => void load()}>
        picture {kind} {source.size === undefined ? "" : bytes(source.size)}: show
      </button>
    );
  }
  return <p class="tag">picture {plain(source.url ?? kind)}</p>;
}

/** What a picture is, by its first bytes: its name may say anything. */
export function pictureOf(head: Uint8Array): string | undefined {
  const text = String.fromCharCode(...head);
  if (text.startsWith("\u0089PNG")) return "image/png";
  if (head[0] === 0xff && head[1] === 0xd8) return "image/jpeg";
  if (text.startsWith("GIF8")) return "image/gif";
  if (text.startsWith("RIFF") && text.slice(8, 12) === "WEBP") return "image/webp";
  return undefined;
}

function Fetch({ sha, name }: { sha: string; name: string }): JSX.Element {
  const load = async (): Promise<void> => {
    const response = await raw({ method: "GET", path: `/v1/blobs/${sha}` });
    if (response.ok) download(await response.blob(), name);
    else tell(`${response.status} ${response.statusText}`, true);
  };
  return (
    <button type="button" class="quiet" onClick={() => void load().catch((error: unknown) => tell(words(error), true))}>
      download
    </button>
  );
}

/** Fork here, or say it differently and run again. */
function Again({ of, view }: { of: Message; view: Schemas["SessionView"] }): JSX.Element | null {
  const fork = async (): Promise<void> => {
    const made = await act("Forked", () => post<{ id: string }>(`/v1/sessions/${view.id}/fork`, { seq: of.seq }));
    if (made !== undefined) go(`/sessions/${made.id}`);
  };
  const edit = async (): Promise<void> => {
    const given = await ask("Edit and run again", {
      body: <p>A new session with everything before this message. This one stays as it is; what its tools have done is not undone.</p>,
      fields: [{ name: "input", label: "Message", value: textOf(of.content), isLong: true, isRequired: true }],
      action: "Run",
    });
    if (given === null) return;
    const made = await act("Runs in a copy", async () => {
      const copy = await post<{ id: string }>(`/v1/sessions/${view.id}/fork`, { seq: of.seq - 1 });
      await post(`/v1/sessions/${copy.id}/sends`, { input: given["input"] });
      return copy;
    });
    if (made !== undefined) go(`/sessions/${made.id}`);
  };
  if (!may("use", "send")) return null;
  return (
    <>
      {of.role === "user" ? (
        <button type="button" class="quiet small" onClick={() => void edit()}>
          edit and run again
        </button>
      ) : null}
      <button type="button" class="quiet small" onClick={() => void fork()}>
        fork here
      </button>
    </>
  );
}

/** What becomes of a message while something runs. */
const MODES = [
  ["enqueue", "after this one"],
  ["steer", "before the next round"],
  ["interrupt", "at once, instead of the answer"],
] as const;

/** What was begun to be written and not sent. */
const drafts = new Map<string, string>();

const ATTACHED_MAX = 8;

interface AttachedFile {
  name: string;
  part: Record<string, unknown>;
}

async function partOf(file: File): Promise<AttachedFile> {
  const data = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < data.length; at += 0x8000) binary += String.fromCharCode(...data.subarray(at, at + 0x8000));
  const kind = pictureOf(data.subarray(0, 12));
  const source = { type: "base64", media_type: kind ?? (file.type === "" ? "application/octet-stream" : file.type), data: btoa(binary) };
  const part = kind === undefined ? { type: "file", name: file.name, source } : { type: "image", source };
  return { name: file.name, part };
}

function Composer({ view, active, onPreview }: { view: Schemas["SessionView"]; active: SendView | undefined; onPreview: () => void }): JSX.Element {
  const [text, setText] = useState(drafts.get(view.id) ?? "");
  const [mode, setMode] = useState<string>("enqueue");
  const [files, setFiles] = useState<AttachedFile[]>([]);
  const [busy, setBusy] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  const write = (value: string): void => {
    setText(value);
    drafts.set(view.id, value);
  };
  if (view.status === "closed") return <p class="note">This session is closed.</p>;
  if (!may("use", "send")) return <p class="note">This key may not send.</p>;
  const send = async (): Promise<void> => {
    if ((text.trim() === "" && files.length === 0) || busy) return;
    setBusy(true);
    const input = files.length === 0 ? text : [...(text.trim() === "" ? [] : [{ type: "text", text }]), ...files.map((file) => file.part)];
    const options = active === undefined || mode === "enqueue" ? {} : { options: { on_busy: mode } };
    const sent = await act("Sent", () => post<{ id: string }>(`/v1/sessions/${view.id}/sends`, { input, ...options }));
    setBusy(false);
    if (sent === undefined) return;
    write("");
    setFiles([]);
    refine({ send: undefined });
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <label class="field">
        <span class="hidden">Message</span>
        <textarea
          rows={2}
          placeholder="Message… Ctrl+Enter sends"
          value={text}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
              event.preventDefault();
              void send();
            } else if (event.key === "Escape") event.currentTarget.blur();
          }}
        />
      </label>
      <div class="row">
        {active === undefined ? null : (
          <fieldset class="modes">
            <legend class="hidden">While something runs</legend>
            {MODES.map(([name, words]) => (
              <label key={name} title={words}>
                <input type="radio" name="mode" value={name} checked={mode === name} onChange={() => setMode(name)} /> {name === "enqueue" ? "queue" : name}
              </label>
            ))}
          </fieldset>
        )}
        {files.map((file, n) => (
          <button key={n} type="button" class="chip" aria-label={`Remove ${file.name}`} onClick={() => setFiles(files.filter((_, k) => k !== n))}>
            {plain(file.name)} ×
          </button>
        ))}
        <input
          ref={picker}
          type="file"
          multiple
          class="hidden"
          tabIndex={-1}
          aria-label="Files to attach"
          onChange={async (event) => {
            const chosen = [...(event.currentTarget.files ?? [])];
            setFiles([...files, ...(await Promise.all(chosen.map(partOf)))].slice(0, ATTACHED_MAX));
          }}
        />
        <button type="button" onClick={() => picker.current?.click()}>
          Attach
        </button>
        <button type="button" onClick={onPreview}>
          What the model sees
        </button>
        <button type="submit" class="primary" disabled={busy || (text.trim() === "" && files.length === 0)}>
          Send
        </button>
      </div>
    </form>
  );
}

function SendList({ sends, more, id }: { sends: SendView[]; more: boolean; id: string }): JSX.Element {
  if (sends.length === 0) return <Empty title="No send yet" />;
  return (
    <>
      <ul class="sends">
        {sends.map((send) => (
          <li key={send.id}>
            <button type="button" onClick={() => refine({ send: send.id, tab: "Timeline" })}>
              <Status of={send.status} on={send.waiting_on} /> <Ago at={send.created_at} /> <Tokens of={send.usage} /> <Cost of={send.usage} />
              <span class="soft">{plain(line(send.error ? `${send.error.code} ${send.error.message}` : (send.output_text ?? ""), 80))}</span>
            </button>
          </li>
        ))}
      </ul>
      {more ? <a href={link("/sends", { session_id: id })}>All sends</a> : null}
    </>
  );
}

function Context({ id }: { id: string }): JSX.Element {
  const draft = (drafts.get(id) ?? "").trim();
  const [preview, set] = useState<Schemas["Preview"] | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  const load = async (): Promise<void> => {
    try {
      set(draft === "" ? await get<Schemas["Preview"]>(`/v1/sessions/${id}/context`) : await post<Schemas["Preview"]>(`/v1/sessions/${id}/context`, { input: draft, request: true }));
      setError(undefined);
    } catch (failed) {
      setError(failed);
    }
  };
  useEffect(() => void load(), [id]);
  return (
    <>
      <div class="row">
        <span class="soft">{draft === "" ? "The next model call" : "The model call for what is written below"}</span>
        <button type="button" onClick={() => void load()}>
          Ask again
        </button>
      </div>
      <Failed error={error} />
      {preview === undefined ? null : (
        <>
          <Facts
            of={[
              ["model", `${preview.provider}/${preview.model}`],
              ["tokens", `${count(preview.tokens)} of ${count(preview.budget)}`],
              ["likely cached", count(preview.cached)],
              ["cost", money((preview.cost as { usd?: number } | null)?.usd)],
            ]}
          />
          <Bar value={preview.tokens} max={preview.budget} label={`${preview.tokens} of ${preview.budget} tokens`} />
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">part</th>
                <th scope="col" class="number">
                  count
                </th>
                <th scope="col" class="number">
                  tokens
                </th>
                <th scope="col" class="number">
                  cached
                </th>
              </tr>
            </thead>
            <tbody>
              {preview.parts.map((part, n) => (
                <tr key={n}>
                  <td>{part.kind}</td>
                  <td class="number">{part.count}</td>
                  <td class="number">{count(part.tokens)}</td>
                  <td class="number">{count(part.cached)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {preview.next_fold ? (
            <p class="note">
              Messages {preview.next_fold.from_seq}–{preview.next_fold.to_seq} would be folded ({preview.next_fold.strategy}, {preview.next_fold.when}).
            </p>
          ) : null}
          {(preview.limits ?? []).map((limit) => (
            <p key={limit.code} class="note">
              <code>{limit.code}</code> {plain(limit.detail)}
            </p>
          ))}
          {preview.request ? <Payload title="request" value={preview.request} open={1} /> : null}
        </>
      )}
    </>
  );
}

function Lists({ id }: { id: string }): JSX.Element {
  const lists = useGet<Schemas["SessionLists"]>(`/v1/sessions/${id}/lists`);
  if (lists.value === undefined) return lists.error === undefined ? <Loading /> : <Failed error={lists.error} />;
  const all = [
    ["To do", lists.value.todo],
    ["Notes", lists.value.notes],
    ["Board", lists.value.board],
  ] as const;
  return (
    <>
      {all.map(([title, entries]) => (
        <section key={title}>
          <h2>{title}</h2>
          {entries.length === 0 ? (
            <p class="soft">empty</p>
          ) : (
            <ul>
              {entries.map((entry) => (
                <li key={entry.id}>
                  {entry.status ? <span class="tag">{plain(entry.status)}</span> : null} {plain(entry.text)} {entry.author ? <span class="soft small">{plain(entry.author)}</span> : null}
                </li>
              ))}
            </ul>
          )}
        </section>
      ))}
    </>
  );
}

function Children({ id }: { id: string }): JSX.Element {
  const children = useGet<Page<Schemas["SessionView"]>>(`/v1/sessions/${id}/children`, { limit: 100 });
  const runs = useGet<Page<Schemas["RunView"]>>("/v1/runs", { session_id: id, limit: 50 });
  if (children.value === undefined) return children.error === undefined ? <Loading /> : <Failed error={children.error} />;
  const rows = children.value.data;
  return (
    <>
      <h2>Sub-agents</h2>
      {rows.length === 0 ? <p class="soft">none</p> : <Tree rows={rows} />}
      <h2>Runs</h2>
      {(runs.value?.data ?? []).length === 0 ? <p class="soft">none</p> : null}
      <ul>
        {(runs.value?.data ?? []).map((run) => (
          <li key={run.id}>
            <a href={link(`/runs/${run.id}`)}>{plain(run.name || "workflow")}</a> <Status of={run.status} /> <Ago at={run.created_at} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Tree({ rows }: { rows: Schemas["SessionView"][] }): JSX.Element {
  return (
    <ul class="tree">
      {rows.map((row) => (
        <Branch key={row.id} row={row} />
      ))}
    </ul>
  );
}

/** A sub-agent; those below it are asked for when it is opened. */
function Branch({ row }: { row: Schemas["SessionView"] }): JSX.Element {
  const [open, set] = useState(false);
  const below = useGet<Page<Schemas["SessionView"]>>(open ? `/v1/sessions/${row.id}/children` : undefined, { limit: 100 });
  return (
    <li>
      <button type="button" class="quiet" aria-expanded={open} aria-label={open ? "Close" : "Open"} onClick={() => set(!open)}>
        {open ? "▾" : "▸"}
      </button>
      <a href={link(`/sessions/${row.id}`)}>{plain(titleOf(row.metadata) || agentOf(row))}</a> <Status of={row.status} /> <Ago at={row.created_at} />
      {open && below.value !== undefined ? below.value.data.length === 0 ? <p class="soft">nothing below</p> : <Tree rows={below.value.data} /> : null}
    </li>
  );
}

function Items({ id }: { id: string }): JSX.Element {
  const items = useGet<Page<Schemas["InboxItem"]>>(`/v1/sessions/${id}/inbox`, { limit: 100 });
  if (items.value === undefined) return items.error === undefined ? <Loading /> : <Failed error={items.error} />;
  if (items.value.data.length === 0) return <Empty title="Nothing was delivered to this session while it was busy" />;
  return (
    <ul>
      {items.value.data.map((item) => (
        <li key={item.id}>
          <span class="tag">{item.mode}</span> <span class="tag">{item.fate}</span> <Ago at={item.created_at} /> {plain(line(textOf(item.content), 120))}
        </li>
      ))}
    </ul>
  );
}

function SessionUsage({ id }: { id: string }): JSX.Element {
  const usage = useGet<{ own: Schemas["UsageView"]; below?: Schemas["UsageView"] } & Record<string, unknown>>(`/v1/sessions/${id}/usage`);
  if (usage.value === undefined) return usage.error === undefined ? <Loading /> : <Failed error={usage.error} />;
  return (
    <>
      {Object.entries(usage.value)
        .filter((entry): entry is [string, Schemas["UsageView"]] => typeof entry[1] === "object" && entry[1] !== null && "usage" in (entry[1] as object))
        .map(([name, view]) => (
          <section key={name}>
            <h2>{name}</h2>
            <Facts
              of={[
                ["model calls", count(view.calls)],
                ["tokens", <Tokens of={view.usage} />],
                ["cost", <Cost of={view.usage} />],
              ]}
            />
          </section>
        ))}
      <Payload title="usage" value={usage.value} open={2} />
    </>
  );
}

