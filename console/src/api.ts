// The server's API as the page uses it.

import { signal } from "@preact/signals";

import { ACCESS } from "./access.js";
import type { Schemas } from "../../clients/typescript/src/generated/schemas.js";

export type { Schemas };

/** A page of a list. */
export interface Page<T> {
  data: T[];
  next_cursor: string | null;
}

export type Query = Record<string, string | number | boolean | undefined>;

/** A request, as it is sent and as it is shown to be copied. */
export interface Asked {
  method: string;
  path: string;
  query?: Query;
  body?: unknown;
}

/** What the server says about a request that it refuses. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly fields: { pointer?: string; detail?: string }[],
    readonly requestId: string,
  ) {
    super(message);
  }
}

/** Who asks, as the server sees it. */
export interface Caller {
  tenant_id: string;
  key_id?: string;
  operates: boolean;
  scopes: string[];
  bound: boolean;
}

/** What the server is. */
export interface Info {
  version?: string;
  store?: string;
  caller?: Caller;
  [name: string]: unknown;
}

export const caller = signal<Caller | null>(null);
export const info = signal<Info | null>(null);
/** Whether the server wants to know who this is. */
export const signedOut = signal(false);
/** Whether somebody has signed in with this browser: the cookie itself cannot be seen from here. */
export const signedIn = signal(localStorage.getItem("signed-in") === "1");
/** When the server last failed to answer, and since when. */
export const offline = signal<{ since: number; why: string } | null>(null);
/** The tenant that an operator looks at; their own if empty. */
export const tenant = signal(sessionStorage.getItem("tenant") ?? "");
/** The last request that changed something. */
export const lastAct = signal<Asked | null>(null);

/** The clock of the server less that of this machine, in milliseconds: ages are shown by the server's. */
export const skew = signal(0);

export function lookAt(id: string): void {
  tenant.value = id;
  sessionStorage.setItem("tenant", id);
}

/** An operation of the API, by its method and path. */
export type Operation = keyof typeof ACCESS;

/** Whether the caller's key may do this; what is not known of it the server decides. */
export function can(operation: Operation): boolean {
  const who = caller.value;
  if (who === null) return true;
  const has = (scope: string): boolean => who.scopes.includes(scope) || who.scopes.includes("admin");
  return ACCESS[operation].split("&").every((part) => {
    if (part === "operator") return who.operates;
    if (part === "unbound") return !who.bound;
    return part.split("|").some(has);
  });
}

/** The address of a path of the server, which may lie below a path of a proxy. */
export function address(path: string, query: Query = {}): string {
  const url = new URL(`.${path}`, document.baseURI);
  url.hash = "";
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

export function headers(more: Record<string, string> = {}): Headers {
  const made = new Headers({ "mainspring-console": "1", ...more });
  if (tenant.value !== "") made.set("mainspring-tenant", tenant.value);
  return made;
}

/** The difference of two whole seconds is no skew. */
const SKEW_MIN = 2_000;

function note(response: Response): void {
  offline.value = null;
  const date = Date.parse(response.headers.get("date") ?? "");
  if (Number.isNaN(date)) return;
  const off = date - Date.now();
  skew.value = Math.abs(off) > SKEW_MIN ? off : 0;
}

export async function failure(response: Response): Promise<ApiError> {
  const requestId = response.headers.get("x-request-id") ?? "";
  const text = await response.text();
  try {
    const said = JSON.parse(text) as { code?: string; detail?: string; title?: string; errors?: { pointer?: string; detail?: string }[] };
    const message = said.detail ?? said.title ?? text;
    return new ApiError(response.status, said.code ?? "", message, said.errors ?? [], requestId);
  } catch {
    // A proxy answered.
    return new ApiError(response.status, "", `${response.status} ${response.statusText}`, [], requestId);
  }
}

/** Sends a request, whatever it answers. */
export async function send(asked: Asked, init: { signal?: AbortSignal; accept?: string } = {}): Promise<Response> {
  const isRead = asked.method === "GET";
  const made = headers(init.accept === undefined ? {} : { accept: init.accept });
  if (asked.body !== undefined) made.set("content-type", "application/json");
  if (!isRead) {
    made.set("idempotency-key", crypto.randomUUID());
    lastAct.value = asked;
  }
  const body = asked.body === undefined ? undefined : JSON.stringify(asked.body);
  let response: Response;
  try {
    response = await fetch(address(asked.path, asked.query), {
      method: asked.method,
      headers: made,
      signal: init.signal,
      body,
      cache: "no-store",
    } as RequestInit);
  } catch (error) {
    if (!(error instanceof DOMException)) {
      offline.value = { since: offline.value?.since ?? Date.now(), why: String(error) };
    }
    throw error;
  }
  note(response);
  if (response.status === 401) signedOut.value = true;
  return response;
}

/** Sends a request that has to succeed. */
export async function call<T>(asked: Asked, signal?: AbortSignal): Promise<T> {
  const response = await send(asked, { signal });
  if (!response.ok) throw await failure(response);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return call<T>({ method: "GET", path, query }, signal);
}

export function post<T>(path: string, body?: unknown, query: Query = {}): Promise<T> {
  return call<T>({ method: "POST", path, query, body });
}

/** Who this is; asked at the start, and after signing in. */
export async function meet(): Promise<void> {
  const said = await get<Info>("/v1/info");
  info.value = said;
  caller.value = said.caller ?? null;
  signedOut.value = false;
}

/** Signs in with a key, which the server seals in a cookie that no script can read. */
export async function signIn(key: string): Promise<void> {
  const response = await fetch(address("/console/session"), {
    method: "POST",
    headers: headers({ "content-type": "application/json" }),
    body: JSON.stringify({ key }),
  });
  if (!response.ok) throw await failure(response);
  localStorage.setItem("signed-in", "1");
  signedIn.value = true;
  await meet();
}

export async function signOut(): Promise<void> {
  await fetch(address("/console/session"), { method: "DELETE", headers: headers() });
  lookAt("");
  localStorage.removeItem("signed-in");
  signedIn.value = false;
  caller.value = null;
  signedOut.value = true;
}

/** A message for a person. */
export function words(error: unknown): string {
  if (error instanceof ApiError) {
    const fields = error.fields.map((field) => `${field.pointer ?? ""} ${field.detail ?? ""}`.trim());
    const shown = fields.filter((field) => !error.message.includes(field)).join("; ");
    return shown === "" ? error.message : `${error.message} (${shown})`;
  }
  if (error instanceof TypeError) return "The server does not answer.";
  return error instanceof Error ? error.message : String(error);
}
