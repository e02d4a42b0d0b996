// Where a message is written.

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";

import { can, post, type Schemas } from "../../api.js";
import { refine } from "../../router.js";
import { act } from "../../ui/dialog.js";
import { plain } from "../../ui/format.js";
import type { SendView } from "../transcript.js";
import { partOf, type AttachedFile } from "./files.js";

/** What becomes of a message while something runs. */
const MODES = [
  ["enqueue", "after this one"],
  ["steer", "before the next round"],
  ["interrupt", "at once, instead of the answer"],
] as const;

/** What was begun to be written and not sent. */
export const drafts = new Map<string, string>();

const ATTACHED_MAX = 8;

export function Composer({ view, active, onPreview }: { view: Schemas["SessionView"]; active: SendView | undefined; onPreview: () => void }): JSX.Element {
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
  if (!can("POST /v1/sessions/{id}/sends")) return <p class="note">This key may not send.</p>;
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
        {can("POST /v1/sessions/{id}/context") ? (
          <button type="button" onClick={onPreview}>
            What the model sees
          </button>
        ) : null}
        <button type="submit" class="primary" disabled={busy || (text.trim() === "" && files.length === 0)}>
          Send
        </button>
      </div>
    </form>
  );
}
