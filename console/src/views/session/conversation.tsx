// What was said in a session, with the calls and what they gave.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { can, post, send as raw, words, type Schemas } from "../../api.js";
import { go } from "../../router.js";
import { Ago, Empty, Failed, Failure, Id, Loading, Status } from "../../ui/basics.js";
import { act, ask, tell } from "../../ui/dialog.js";
import { bytes, line, plain } from "../../ui/format.js";
import { Json, Payload } from "../../ui/json.js";
import { useKeys } from "../../ui/keys.js";
import { Markdown } from "../../ui/markdown.js";
import { Call, type Waiting } from "../calls.js";
import type { useTranscript, Entry, Live, Message, SendView } from "../transcript.js";
import type { Picked } from "../waterfall.js";
import { download, pictureOf } from "./files.js";

interface ConversationProps {
  view: Schemas["SessionView"];
  transcript: ReturnType<typeof useTranscript>;
  sends: SendView[];
  live: Live | undefined;
  waiting: Waiting[];
  picked: Picked;
  onPick: (picked: Picked) => void;
}

export function Conversation({ view, transcript, sends, live, waiting, picked, onPick }: ConversationProps): JSX.Element {
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
          {can("POST /v1/sends/{id}/cancel") ? (
            <button type="button" onClick={() => void act("Cancelled", () => post(`/v1/sends/${send.id}/cancel`))}>
              Cancel
            </button>
          ) : null}
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

export function textOf(content: Message["content"]): string {
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
  if (!can("POST /v1/sessions/{id}/fork")) return null;
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
