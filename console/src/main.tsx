import { render, type JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { caller, info, can, lookAt, meet, offline, signIn, signOut, signedIn, signedOut, tenant, words, type Page, type Schemas } from "./api.js";
import { go, link, place } from "./router.js";
import { Failed } from "./ui/basics.js";
import { Dialogs, Toasts } from "./ui/dialog.js";
import { duration } from "./ui/format.js";
import { useKeys } from "./ui/keys.js";
import { now, useGet } from "./ui/live.js";
import { Help, Palette, VIEWS, isHelpOpen, isOpen, setTheme, toggleTheme } from "./ui/palette.js";
import { Admin } from "./views/admin.js";
import { Agent, Agents } from "./views/agents.js";
import { Inbox } from "./views/inbox.js";
import { Memory } from "./views/memory.js";
import { Overview } from "./views/overview.js";
import { Play } from "./views/play.js";
import { Run } from "./views/run.js";
import { Runs } from "./views/runs.js";
import { SendPlace, Sends } from "./views/sends.js";
import { Session } from "./views/session.js";
import { Sessions } from "./views/sessions.js";
import { Timer, Timers } from "./views/timers.js";
import { Tools } from "./views/tools.js";
import { Usage } from "./views/usage.js";
import { Hook, Webhooks } from "./views/webhooks.js";
import { Workers } from "./views/workers.js";

/** The view of a place. */
function View(): JSX.Element {
  const [first, second] = place.value.parts;
  const lists: Record<string, () => JSX.Element> = {
    sessions: Sessions,
    inbox: Inbox,
    sends: Sends,
    runs: Runs,
    timers: Timers,
    agents: Agents,
    workers: Workers,
    memory: Memory,
    webhooks: Webhooks,
    usage: Usage,
    tools: Tools,
    admin: Admin,
    play: Play,
  };
  const single: Record<string, (props: { id: string }) => JSX.Element> = {
    sessions: Session,
    sends: SendPlace,
    runs: Run,
    timers: Timer,
    agents: Agent,
    webhooks: Hook,
  };
  if (first === undefined) return <Overview />;
  const One = second === undefined ? undefined : single[first];
  if (One !== undefined && second !== undefined) return <One key={second} id={second} />;
  const List = lists[first];
  if (List !== undefined) return <List key={first} />;
  return (
    <>
      <h1>Nothing is here</h1>
      <p>
        <a href="#/">To the overview</a>
      </p>
    </>
  );
}

function Inboxed(): JSX.Element | null {
  const calls = useGet<Page<Schemas["WaitingCall"]>>("/v1/calls", { waiting_on: "human", limit: 100 }, 5_000);
  const open = calls.value?.data.length ?? 0;
  const some = calls.value?.next_cursor === null ? String(open) : `${open}+`;
  useEffect(() => {
    document.title = open > 0 ? `(${some}) Mainspring` : "Mainspring";
  }, [open]);
  return open === 0 ? null : (
    <span class="badge" aria-label={`${some} open`}>
      {some}
    </span>
  );
}

function Nav(): JSX.Element {
  const at = place.value.parts[0] ?? "";
  return (
    <nav aria-label="Views">
      <ul>
        {VIEWS.map(([path, title]) => (
          <li key={path}>
            <a href={link(path)} aria-current={path.slice(1) === at ? "page" : undefined}>
              {title}
              {path === "/inbox" ? <Inboxed /> : null}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Tenants(): JSX.Element | null {
  const tenants = useGet<Page<Schemas["Tenant"]>>(can("GET /v1/tenants") ? "/v1/tenants" : undefined, { limit: 200 }, 30_000);
  const all = tenants.value?.data ?? [];
  if (all.length < 2) return null;
  return (
    <label class="tenant">
      <span class="soft">tenant</span>
      <select value={tenant.value} onChange={(event) => lookAt(event.currentTarget.value)}>
        <option value="">own</option>
        {all.map((one) => (
          <option key={one.id} value={one.id}>
            {one.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Top(): JSX.Element {
  const away = offline.value;
  return (
    <header class="top">
      <a class="brand" href="#/">
        Mainspring
      </a>
      <button type="button" class="go" onClick={() => (isOpen.value = true)}>
        Go to… <kbd>Ctrl K</kbd>
      </button>
      <Tenants />
      {away === null ? (
        <span class="live good" title="What is shown is up to date">
          <span aria-hidden="true">●</span> live
        </span>
      ) : (
        <span class="live bad" role="alert" title={away.why}>
          <span aria-hidden="true">○</span> no answer for {duration(now.value - away.since)}
        </span>
      )}
      <button type="button" class="quiet" onClick={toggleTheme} aria-label="Dark or light">
        ◑
      </button>
      <button type="button" class="quiet" onClick={() => (isHelpOpen.value = true)} aria-label="Keys">
        ?
      </button>
      {!signedIn.value ? null : (
        <button type="button" class="quiet" onClick={() => void signOut()}>
          Sign out
        </button>
      )}
    </header>
  );
}

function SignIn(): JSX.Element {
  const [key, set] = useState("");
  const [error, setError] = useState<unknown>(undefined);
  const enter = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await signIn(key.trim());
    } catch (failed) {
      setError(failed);
    }
  };
  return (
    <main class="signin">
      <form onSubmit={(event) => void enter(event)}>
        <h1>Mainspring</h1>
        <label class="field">
          <span>API key</span>
          <input type="password" name="key" autoComplete="current-password" autoFocus value={key} onInput={(event) => set(event.currentTarget.value)} />
          <span class="soft small">
            The server seals it in a cookie that scripts cannot read, for twelve hours. <code>mainspring keys create me --scope read</code> makes one
            that only looks.
          </span>
        </label>
        {isSecureContext ? null : (
          <p class="note">This page was opened over plain HTTP. Browsers keep such a cookie over HTTPS or on this machine only, so signing in will not work here.</p>
        )}
        <Failed error={error} />
        <button type="submit" class="primary" disabled={key.trim() === ""}>
          Sign in
        </button>
      </form>
    </main>
  );
}

function App(): JSX.Element {
  const [state, set] = useState<"asking" | "in" | unknown>("asking");
  const [tries, again] = useState(0);
  useEffect(() => {
    meet().then(
      () => set("in"),
      (error: unknown) => {
        if (signedOut.value) set("in");
        else {
          set(error);
          setTimeout(() => again(tries + 1), 2_000);
        }
      },
    );
  }, [tries]);
  useKeys("Everywhere", [
    { keys: "ctrl+k", does: "go to a view, an id, an agent", run: () => (isOpen.value = true) },
    { keys: "?", does: "show the keys", run: () => (isHelpOpen.value = true) },
    { keys: "Escape", does: "back", run: () => history.length > 1 && history.back() },
    ...VIEWS.map(([path, title, key]) => ({ keys: `g ${key}`, does: title, run: () => go(path) })),
  ]);
  if (state === "asking") return <p class="soft loading">Loading…</p>;
  if (signedOut.value) return <SignIn />;
  if (state !== "in") {
    return (
      <main class="signin">
        <Failed error={state} what="The server cannot be reached" />
        <p class="soft">{words(state) === "" ? "" : "It is asked again every two seconds."}</p>
      </main>
    );
  }
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>
        To the content
      </a>
      <Top />
      <div class="frame">
        <Nav />
        <main id="main" tabIndex={-1}>
          {can("GET /v1/sessions") ? null : <p class="note">This key cannot read: most of what is here stays empty.</p>}
          <View />
        </main>
      </div>
      <footer class="soft small">
        {info.value?.version ? `Mainspring ${String(info.value.version)}` : "Mainspring"}
        {caller.value?.bound ? " · this key sees a part of its tenant" : ""}
      </footer>
      <Palette />
      <Help />
      <Dialogs />
      <Toasts />
    </>
  );
}

setTheme((localStorage.getItem("theme") ?? "") as "dark" | "light" | "");
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
