// Errors. `ApiError` and its kinds say what the server answered; the others, what became of the work.

import type { ErrorCode } from "./generated/events.js";
import type { Schemas } from "./generated/schemas.js";
import type { Question } from "./question.js";

/** Every error of this package. */
export class MainspringError extends Error {}

/** No answer at all, or only a part of one, after all retries. */
export class Unreachable extends MainspringError {}

/** An answer that no Mainspring gives, such as a page of something in between. */
export class Unexpected extends MainspringError {}

/** The caller's own time is over; what it waited for goes on. */
export class TimeoutError extends MainspringError {}

/** A webhook's message that the server did not sign. */
export class InvalidWebhook extends MainspringError {}

/** A value that does not fit the type that was given for it. */
export class InvalidValue extends MainspringError {
  constructor(readonly issues: readonly { readonly message: string }[], readonly value: unknown) {
    super(`the value does not fit its type: ${issues.map((issue) => issue.message).join("; ")}`);
  }
}

/** The server refused the request. */
export class ApiError extends MainspringError {
  /** The stable code, such as `session.not_found`; empty if something in between answered. */
  readonly code: ErrorCode;
  readonly status: number;
  readonly detail: string;
  /** What is wrong with which member of the request. */
  readonly errors: readonly Schemas["FieldError"][];
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** In how many milliseconds, if the server said so. */
  readonly retryAfter: number | undefined;
  /** Names the request in the server's logs. */
  readonly requestId: string | undefined;

  constructor(problem: Partial<Schemas["Problem"]> & { status: number }, headers?: Headers) {
    const detail = problem.detail ?? problem.title ?? "no problem document";
    super(`${problem.status}${problem.code ? ` ${problem.code}` : ""}: ${detail}`);
    this.code = problem.code ?? "";
    this.status = problem.status;
    this.detail = detail;
    this.errors = problem.errors ?? [];
    this.retryable = problem.retryable ?? [408, 429, 502, 503, 504].includes(problem.status);
    this.retryAfter = retryAfter(headers?.get("retry-after"));
    this.requestId = headers?.get("x-request-id") ?? undefined;
  }

  /** The error of this status. */
  static of(problem: Partial<Schemas["Problem"]> & { status: number }, headers?: Headers): ApiError {
    return new (KINDS[problem.status] ?? (problem.status >= 500 ? Unavailable : Invalid))(problem, headers);
  }
}

/** 400, 413, 415, 422: the request can never work. */
export class Invalid extends ApiError {}
/** 401, 403: the key does not allow it. */
export class Denied extends ApiError {}
/** 404, 410. */
export class NotFound extends ApiError {}
/** 409: not in the current state. */
export class Conflict extends ApiError {}
/** 402 (a limit of money), 408, 429, after all retries. */
export class Limited extends ApiError {}
/** 5xx, after all retries. */
export class Unavailable extends ApiError {}

const KINDS: Record<number, typeof ApiError> = {
  401: Denied, 402: Limited, 403: Denied, 404: NotFound, 408: Limited, 409: Conflict, 410: NotFound, 429: Limited,
};

/** The send needs a person: answer its questions, and wait again. */
export class Waiting extends MainspringError {
  constructor(readonly send: Schemas["SendView"], readonly questions: readonly Question[]) {
    super(`the send waits for ${send.waiting_on}: ${questions.map((one) => one.name).join(", ")}`);
  }
}

/** The send has failed; `code` says why. */
export class SendFailed extends MainspringError {
  constructor(readonly send: Schemas["SendView"]) {
    super(`the send failed: ${send.error?.code}: ${send.error?.message}`);
  }
  get code(): ErrorCode { return this.send.error?.code ?? ""; }
}

/** The send was cancelled. */
export class SendCancelled extends MainspringError {
  constructor(readonly send: Schemas["SendView"]) { super("the send was cancelled"); }
}

/** The run has failed; `code` says why. */
export class RunFailed extends MainspringError {
  constructor(readonly run: Schemas["RunView"]) { super(`the run failed: ${run.error?.code}: ${run.error?.message}`); }
  get code(): ErrorCode { return this.run.error?.code ?? ""; }
}

/** The run was cancelled. */
export class RunCancelled extends MainspringError {
  constructor(readonly run: Schemas["RunView"]) { super("the run was cancelled"); }
}

// Names that stay when a bundler renames the classes.
for (const [name, { prototype }] of Object.entries({
  MainspringError, Unreachable, Unexpected, TimeoutError, InvalidWebhook, InvalidValue, ApiError, Invalid, Denied,
  NotFound, Conflict, Limited, Unavailable, Waiting, SendFailed, SendCancelled, RunFailed, RunCancelled,
})) {
  prototype.name = name;
}

/** Seconds or a date, as milliseconds from now. */
function retryAfter(header: string | null | undefined): number | undefined {
  if (!header) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}
