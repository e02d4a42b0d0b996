// Questions to the user, and what became of what they did.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { words } from "../api.js";
import { plain } from "./format.js";
import { changed } from "./live.js";

interface Asked {
  title: string;
  body: ComponentChildren;
  action: string;
  danger: boolean;
  /** What has to be typed before it can be done. */
  typed: string;
  fields: Field[];
  done: (values: Record<string, string> | null) => void;
}

export interface Field {
  name: string;
  label: string;
  value?: string;
  isLong?: boolean;
  isRequired?: boolean;
  options?: readonly string[];
  hint?: string;
}

const open = signal<Asked | null>(null);

/** Asks before something is done; the values of the fields, or none if it is not to be done. */
export function ask(
  title: string,
  more: { body?: ComponentChildren; action?: string; danger?: boolean; typed?: string; fields?: Field[] } = {},
): Promise<Record<string, string> | null> {
  return new Promise((done) => {
    open.value = {
      title,
      body: more.body ?? null,
      action: more.action ?? "OK",
      danger: more.danger ?? false,
      typed: more.typed ?? "",
      fields: more.fields ?? [],
      done,
    };
  });
}

export function isAsking(): boolean {
  return open.value !== null;
}

export function Dialogs(): JSX.Element | null {
  const asked = open.value;
  return asked === null ? null : <Question key={asked.title} asked={asked} />;
}

function Question({ asked }: { asked: Asked }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [values, set] = useState<Record<string, string>>(() => Object.fromEntries(asked.fields.map((field) => [field.name, field.value ?? field.options?.[0] ?? ""])));
  const [typed, setTyped] = useState("");
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const end = (result: Record<string, string> | null): void => {
    open.value = null;
    asked.done(result);
  };
  const isReady = (asked.typed === "" || typed === asked.typed) && asked.fields.every((field) => field.isRequired !== true || (values[field.name] ?? "") !== "");
  const change = (name: string) => (event: Event) => set({ ...values, [name]: (event.target as HTMLInputElement).value });
  return (
    <dialog ref={dialog} aria-labelledby="asked" onCancel={() => end(null)}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) end(values);
        }}
      >
        <h2 id="asked">{asked.title}</h2>
        {asked.body}
        {asked.fields.map((field) => (
          <label key={field.name} class="field">
            <span>{field.label}</span>
            {field.options ? (
              <select name={field.name} value={values[field.name]} onChange={change(field.name)}>
                {field.options.map((option) => (
                  <option key={option} value={option}>
                    {option}
                  </option>
                ))}
              </select>
            ) : field.isLong ? (
              <textarea
                name={field.name}
                rows={6}
                value={values[field.name]}
                onInput={change(field.name)}
                onKeyDown={(event) => {
                  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && isReady) end(values);
                }}
              />
            ) : (
              <input name={field.name} value={values[field.name]} onInput={change(field.name)} autoComplete="off" />
            )}
            {field.hint ? <span class="soft small">{field.hint}</span> : null}
          </label>
        ))}
        {asked.typed === "" ? null : (
          <label class="field">
            <span>
              Type <code>{asked.typed}</code> to go on
            </span>
            <input value={typed} onInput={(event) => setTyped((event.target as HTMLInputElement).value)} autoComplete="off" />
          </label>
        )}
        <div class="row end">
          <button type="button" onClick={() => end(null)}>
            Cancel
          </button>
          <button type="submit" class={asked.danger ? "danger" : "primary"} disabled={!isReady}>
            {asked.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

interface Toast {
  n: number;
  text: string;
  isBad: boolean;
}

const toasts = signal<Toast[]>([]);
let number = 0;

/** What went wrong stays longer, since it has to be read. */
const STAYS = { good: 4_000, bad: 12_000 };

export function tell(text: string, isBad = false): void {
  number += 1;
  const n = number;
  toasts.value = [...toasts.value.slice(-3), { n, text: plain(text), isBad }];
  setTimeout(() => dismiss(n), isBad ? STAYS.bad : STAYS.good);
}

function dismiss(n: number): void {
  toasts.value = toasts.value.filter((toast) => toast.n !== n);
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.n} class={`toast ${toast.isBad ? "bad" : ""}`}>
          {toast.text}
          <button type="button" class="quiet" aria-label="Dismiss" onClick={() => dismiss(toast.n)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}

/** Does something that changes the server, tells what became of it, and has everything asked for again. */
export async function act<T>(what: string, how: () => Promise<T>): Promise<T | undefined> {
  try {
    const made = await how();
    tell(what);
    changed();
    return made;
  } catch (error) {
    tell(words(error), true);
    changed();
    return undefined;
  }
}
