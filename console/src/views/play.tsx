// Any request, and how to write it elsewhere.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { lastAct, send, words, type Asked } from "../api.js";
import { place, refine } from "../router.js";
import { Failed, Loading } from "../ui/basics.js";
import { CopyAs, learn, operationOf, operations, type Operation } from "../ui/copyas.js";
import { duration, plain } from "../ui/format.js";
import { Json } from "../ui/json.js";
import { changed } from "../ui/live.js";

interface Said {
  status: string;
  ms: number;
  type: string;
  body: unknown;
}

/** How much of an answer that is no JSON is shown. */
const SHOWN = 20_000;
/** How long a stream is listened to. */
const LISTENS_MS = 10_000;

export function Play(): JSX.Element {
  const [error, setError] = useState<unknown>(undefined);
  useEffect(() => {
    learn().catch(setError);
  }, []);
  if (error !== undefined) return <Failed error={error} />;
  if (operations.value === undefined) return <Loading />;
  return <Known all={operations.value} />;
}

function Known({ all }: { all: Operation[] }): JSX.Element {
  const last = lastAct.value === null ? undefined : operationOf(lastAct.value);
  const id = place.value.query.get("operation") ?? last?.operation.id ?? "createSend";
  const operation = all.find((one) => one.id === id) ?? all[0];
  const [filter, setFilter] = useState("");
  if (operation === undefined) return <Loading />;
  const wanted = filter.toLowerCase();
  const found = all.filter((one) => `${one.id} ${one.path} ${one.summary}`.toLowerCase().includes(wanted));
  return (
    <>
      <h1>Playground</h1>
      <div class="split">
        <div>
          <label class="field">
            <span>Operation</span>
            <input value={filter} placeholder="search" onInput={(event) => setFilter(event.currentTarget.value)} />
          </label>
          <ul class="calls tall">
            {found.map((one) => (
              <li key={one.id}>
                <button type="button" class={one.id === operation.id ? "at" : ""} aria-current={one.id === operation.id} onClick={() => refine({ operation: one.id })}>
                  <span class="strong">{one.id}</span>
                  <span class="soft small">
                    {one.method} {one.path}
                  </span>
                </button>
              </li>
            ))}
          </ul>
        </div>
        <Builder key={operation.id} operation={operation} given={last?.operation.id === operation.id ? lastAct.value : null} />
      </div>
    </>
  );
}

function text(value: unknown): string {
  return value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
}

function Builder({ operation, given }: { operation: Operation; given: Asked | null }): JSX.Element {
  const parameters = operation.parameters.filter((parameter) => parameter.in !== "header");
  const [values, setValues] = useState<Record<string, string>>(() => {
    const known = given === null ? {} : (operationOf(given)?.values ?? {});
    return Object.fromEntries(parameters.map((parameter) => [parameter.name, text(known[parameter.name] ?? (parameter.in === "path" ? "" : given?.query?.[parameter.name]))]));
  });
  const [body, setBody] = useState(() => (operation.hasBody ? JSON.stringify(given?.body ?? operation.example ?? {}, null, 2) : ""));
  const [said, setSaid] = useState<Said | undefined>(undefined);
  const [busy, setBusy] = useState(false);

  let fault = "";
  let parsed: unknown;
  if (operation.hasBody && body.trim() !== "") {
    try {
      parsed = JSON.parse(body);
    } catch (error) {
      fault = error instanceof Error ? error.message : String(error);
    }
  }
  const path = operation.path.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name] ?? "";
    return value === "" ? whole : encodeURIComponent(value);
  });
  const query = Object.fromEntries(parameters.filter((parameter) => parameter.in === "query" && values[parameter.name]).map((parameter) => [parameter.name, values[parameter.name]]));
  const asked: Asked = { method: operation.method, path, query, ...(parsed === undefined ? {} : { body: parsed }) };
  const isReady = fault === "" && !path.includes("{");

  const run = async (): Promise<void> => {
    setBusy(true);
    const started = performance.now();
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), LISTENS_MS);
    try {
      const response = await send(asked, { signal: stop.signal });
      const type = response.headers.get("content-type") ?? "";
      const status = `${response.status} ${response.statusText}`;
      let answer = "";
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      const show = (): void => {
        let value: unknown = answer;
        if (type.includes("json") && !type.includes("ndjson")) {
          try {
            value = JSON.parse(answer);
          } catch {
            // It is shown as it came.
          }
        }
        setSaid({ status, ms: performance.now() - started, type, body: value });
      };
      try {
        for (;;) {
          const piece = await reader?.read();
          if (piece === undefined || piece.done) break;
          answer += piece.value;
          if (type.includes("event-stream")) show();
        }
      } catch {
        answer += `\n(${duration(LISTENS_MS)} were listened to)`;
      }
      show();
    } catch (error) {
      setSaid({ status: words(error), ms: performance.now() - started, type: "", body: "" });
    }
    clearTimeout(timer);
    setBusy(false);
    if (operation.method !== "GET") changed();
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (isReady) void run();
      }}
    >
      <h2>
        <code>
          {operation.method} {operation.path}
        </code>
      </h2>
      <p class="soft">{operation.summary}</p>
      {parameters.map((parameter) => (
        <label key={parameter.name} class="field">
          <span>
            {parameter.name} {parameter.in === "path" ? "" : <span class="soft small">{parameter.description ?? ""}</span>}
          </span>
          <input
            value={values[parameter.name] ?? ""}
            placeholder={text(parameter.example)}
            onInput={(event) => setValues({ ...values, [parameter.name]: event.currentTarget.value })}
          />
        </label>
      ))}
      {operation.hasBody ? (
        <label class="field">
          <span>body</span>
          <textarea rows={Math.min(18, body.split("\n").length + 1)} value={body} spellcheck={false} onInput={(event) => setBody(event.currentTarget.value)} />
          {fault === "" ? null : <span class="bad small">{fault}</span>}
        </label>
      ) : null}
      <div class="row">
        <button type="submit" class="primary" disabled={!isReady || busy}>
          {busy ? "…" : operation.method === "GET" ? "Ask" : "Do it"}
        </button>
        {path.includes("{") ? <span class="soft">fill in what the path names</span> : null}
      </div>
      <CopyAs asked={asked} />
      {said === undefined ? null : (
        <section class="payload" aria-live="polite">
          <p class="title">
            {plain(said.status)} <span class="soft">{duration(said.ms)}</span>
          </p>
          {typeof said.body === "string" ? <pre class="wrap">{plain(said.body.slice(0, SHOWN))}</pre> : <Json value={said.body} open={3} />}
        </section>
      )}
    </form>
  );
}
