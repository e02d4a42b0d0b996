// One field that goes everywhere: a view, an id, an agent.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { get, type Page, type Schemas } from "../api.js";
import { go, placeOf } from "../router.js";
import { known } from "./keys.js";

export const VIEWS: readonly (readonly [path: string, title: string, key: string])[] = [
  ["/", "Overview", "o"],
  ["/sessions", "Sessions", "s"],
  ["/inbox", "Inbox", "i"],
  ["/sends", "Sends", "n"],
  ["/runs", "Runs", "r"],
  ["/timers", "Timers", "t"],
  ["/agents", "Agents", "a"],
  ["/workers", "Workers", "w"],
  ["/memory", "Memory", "m"],
  ["/webhooks", "Webhooks", "h"],
  ["/usage", "Usage", "u"],
  ["/tools", "Tools", "k"],
  ["/admin", "Admin", "d"],
  ["/play", "Playground", "p"],
];

export const isOpen = signal(false);
export const isHelpOpen = signal(false);

interface Choice {
  title: string;
  hint: string;
  run: () => void;
}

/** The theme that was chosen; none follows the system. */
export function setTheme(theme: "dark" | "light" | ""): void {
  localStorage.setItem("theme", theme);
  document.documentElement.dataset["theme"] = theme;
}

export function toggleTheme(): void {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const at = document.documentElement.dataset["theme"] || (isDark ? "dark" : "light");
  setTheme(at === "dark" ? "light" : "dark");
}

const ACTIONS: Choice[] = [
  { title: "New session", hint: "action", run: () => go("/sessions", { new: "1" }) },
  { title: "Dark or light", hint: "action", run: toggleTheme },
  { title: "Keys", hint: "help", run: () => (isHelpOpen.value = true) },
];

export function Palette(): JSX.Element | null {
  return isOpen.value ? <Open /> : null;
}

function Open(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, set] = useState("");
  const [at, setAt] = useState(0);
  const [agents, setAgents] = useState<string[]>([]);
  // At once: the next key is meant for it.
  useLayoutEffect(() => dialog.current?.showModal(), []);
  useEffect(() => {
    get<Page<Schemas["NamedAgent"]>>("/v1/agents", { limit: 200 }).then(
      (page) => setAgents(page.data.map((agent) => agent.name)),
      () => undefined,
    );
  }, []);
  const close = (): void => {
    isOpen.value = false;
  };
  const choices = choose(text.trim(), agents);
  const current = choices[Math.min(at, choices.length - 1)];
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, choices.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter" && current !== undefined) {
      close();
      current.run();
    } else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Go to" onClose={close} onClick={(event) => event.target === dialog.current && close()}>
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="choices"
        aria-activedescendant={current === undefined ? undefined : `choice-${choices.indexOf(current)}`}
        aria-label="A view, an id, an agent, an action"
        placeholder="A view, an id, an agent, an action…"
        value={text}
        onInput={(event) => {
          set(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={keys}
      />
      <ul id="choices" role="listbox" aria-label="Choices">
        {choices.map((choice, n) => (
          <li
            key={`${choice.hint} ${choice.title}`}
            id={`choice-${n}`}
            role="option"
            aria-selected={choice === current}
            onClick={() => {
              close();
              choice.run();
            }}
          >
            {choice.title} <span class="soft">{choice.hint}</span>
          </li>
        ))}
      </ul>
    </dialog>
  );
}

/** The choices that a text leaves. */
function choose(text: string, agents: string[]): Choice[] {
  const direct: Choice[] = [];
  const path = /^[a-z]{3}_[0-9a-f]+$/.test(text) ? placeOf(text) : undefined;
  if (path !== undefined) direct.push({ title: text, hint: "open", run: () => go(path) });
  const all: Choice[] = [
    ...VIEWS.map(([to, title, key]) => ({ title, hint: `g ${key}`, run: () => go(to) })),
    ...agents.map((name) => ({ title: name, hint: "agent", run: () => go(`/agents/${encodeURIComponent(name)}`) })),
    ...ACTIONS,
  ];
  const wanted = text.toLowerCase();
  const found = all.filter((choice) => choice.title.toLowerCase().includes(wanted));
  if (text !== "" && path === undefined) {
    found.push({ title: `Sends with “${text}”`, hint: "search", run: () => go("/sends", { text }) });
  }
  return [...direct, ...found].slice(0, 14);
}

export function Help(): JSX.Element | null {
  return isHelpOpen.value ? <Keys /> : null;
}

function Keys(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="keys" onClose={() => (isHelpOpen.value = false)}>
      <form method="dialog">
        <h2 id="keys">Keys</h2>
        {known()
          .filter((layer) => layer.keys.length > 0)
          .map((layer) => (
            <section key={layer.title}>
              <h3>{layer.title}</h3>
              <dl class="keys">
                {layer.keys.map((key) => (
                  <div key={key.keys}>
                    <dt>
                      <kbd>{key.keys}</kbd>
                    </dt>
                    <dd>{key.does}</dd>
                  </div>
                ))}
              </dl>
            </section>
          ))}
        <div class="row end">
          <button type="submit" class="primary">
            Close
          </button>
        </div>
      </form>
    </dialog>
  );
}
