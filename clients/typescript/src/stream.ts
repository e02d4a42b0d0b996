// Streams that outlive their connections: whatever ends one before the final event, they connect again, to
// whichever scheduler answers, with the id of the last event that they have.

import { answered, isFinal, type Answer } from "./answer.js";
import type { Context } from "./context.js";
import { MainspringError, NotFound, Unexpected, Unreachable } from "./errors.js";
import type { SendEvents } from "./generated/events.js";
import type { Schemas } from "./generated/schemas.js";
import { address } from "./operations.js";
import type { Shape } from "./schema.js";
import { Frames, type Frame } from "./sse.js";
import { backoff, Limit, sleep } from "./time.js";

/** An event of a send or a session: its `type`, the `cursor` after it if it is durable, and what it carries. */
export type SendEvent = {
  [Type in keyof SendEvents]: { type: Type; cursor?: string } & SendEvents[Type];
}[keyof SendEvents];

/** A node of a run as its events show it. */
export interface NodeEvent {
  path: string;
  kind: Schemas["NodeKind"];
  state: Schemas["NodeState"];
  id?: string;
  session_id?: string;
  send_id?: string;
}

/** A run as its events show it. */
export interface ProgressOfRun {
  run_id: string;
  status: Schemas["RunStatus"];
  counts: Schemas["RunCounts"];
  usage?: Schemas["Usage"];
  result?: unknown;
  error?: Schemas["Failure"] | null;
}

/** An event of a run. All of them are durable. */
export type RunEvent =
  | ({ type: `node.${Schemas["NodeState"]}`; cursor?: string } & NodeEvent)
  | ({ type: `run.${Schemas["RunStatus"]}` | "run.progress"; cursor?: string } & ProgressOfRun);

export interface StreamOptions {
  /** Only what comes after this cursor of an earlier stream, of this process or another. */
  after?: string;
  signal?: AbortSignal;
}

/** A server sends a comment every 15 s; a connection that is silent for so long is dead. */
const SILENCE = 45_000;

/** Iterate over it for its events. Leaving the loop detaches, and a later loop goes on from there. */
export abstract class EventStream<Event extends { type: string; cursor?: string }> implements AsyncIterable<Event> {
  /** The last durable event that was given out: where another stream continues, also in another process. */
  cursor: string | undefined;
  /** How often it has connected. */
  connections = 0;
  /** When the server last said anything, be it a comment. */
  #heard = 0;

  constructor(protected readonly context: Context, private readonly path: string, protected readonly options: StreamOptions) {
    this.cursor = options.after;
  }

  /** Whether the last event has come. */
  protected abstract readonly isDone: boolean;
  /** Takes note of an event, and gives it as readers are to see it, if they are. */
  protected abstract take(event: Event): Event | undefined;
  /** Asks whether everything that could be streamed has happened. */
  protected abstract isOver(): Promise<boolean>;
  /** There is a new connection. */
  protected connected(): void {}

  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined> {
    this.#heard = performance.now();
    let failures = 0;
    let isOver = false;
    while (!this.isDone) {
      let failure: unknown;
      let isSilent = true;
      try {
        for await (const frame of this.#frames()) {
          const event = this.#event(frame);
          if (!event) continue;
          isSilent = false;
          failures = 0;
          yield event;
          if (this.isDone) return;
        }
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        failure = error;
      }
      if (isSilent) {
        // An end without a word is also what somebody gets who has had the final event.
        if (!failure && isOver) return;
        if (!failure) isOver = await this.isOver();
        if (performance.now() - this.#heard > this.context.transport.patience) {
          throw failure ?? new Unreachable("the stream ends again and again before its final event");
        }
      }
      await sleep(backoff(failures++), this.options.signal);
    }
  }

  async *#frames(): AsyncGenerator<Frame, void, undefined> {
    const limit = new Limit(this.options.signal);
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.cursor) headers["last-event-id"] = this.cursor;
    const { patience } = this.context.transport;
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
    const call = { method: "GET", path: this.path, headers, repeatable: true, patience, signal: limit.signal };
    try {
      reader = (await this.context.transport.request(call, body)).getReader();
      this.connections++;
      this.connected();
      const frames = new Frames();
      for (;;) {
        limit.after(SILENCE, () => new Unreachable("the stream is silent"));
        const { done, value } = await reader.read();
        limit.pause();
        if (done) return;
        this.#heard = performance.now();
        yield* frames.push(value);
      }
    } catch (error) {
      if (this.options.signal?.aborted) throw this.options.signal.reason;
      if (limit.signal.aborted) throw limit.signal.reason;
      throw error instanceof MainspringError ? error : new Unreachable("the stream breaks off", { cause: error });
    } finally {
      limit.abort(new Unreachable("the stream was left"));
      reader?.cancel().catch(() => {});
      limit.end();
    }
  }

  /** The event in a frame, unless it came before. */
  #event({ id, event: type, data }: Frame): Event | undefined {
    if (id !== undefined && !isLater(id, this.cursor)) return undefined;
    const seen = this.take({ ...(JSON.parse(data) as object), type, cursor: id } as Event);
    if (id !== undefined) this.cursor = id;
    return seen;
  }
}

async function body(response: Response): Promise<ReadableStream<Uint8Array>> {
  if (!response.headers.get("content-type")?.startsWith("text/event-stream") || !response.body) {
    await response.body?.cancel();
    throw new Unexpected(`${response.status} without a stream: is this address a Mainspring server?`);
  }
  return response.body;
}

/** Whether an id, a step and a place in it, comes after another one. */
function isLater(id: string, cursor: string | undefined): boolean {
  if (cursor === undefined) return true;
  const [step = 0, place = 0] = id.split(".").map(Number);
  const [lastStep = 0, lastPlace = 0] = cursor.split(".").map(Number);
  return step > lastStep || (step === lastStep && place > lastPlace);
}

/** The text of a send while it is written: that of its newest round. */
class Writing {
  #round = -1;
  #attempt = -1;
  #text = "";
  /** Offsets count characters, of which JavaScript's strings have one or two units each. */
  #length = 0;
  /** The round's message is stored, so that nothing voids it. */
  #isStored = false;
  /** The attempt began after another one, which a resumption may be about that comes later: they are durable. */
  #isRenewed = false;
  #isVoid = false;

  get text(): string { return this.#isVoid ? "" : this.#text; }

  /** Live events may have been lost. */
  reconnected(): void { this.#isRenewed = false; }

  /** Takes an event, and gives what readers have not had of it. */
  take(event: SendEvent): SendEvent | undefined {
    switch (event.type) {
      case "message.delta":
        return this.#isCurrent(event) ? this.#append(event) : undefined;
      case "message.reset":
        // One that comes again has text after it already.
        if (!this.#isCurrent(event) || this.#length > 0) return undefined;
        this.#isRenewed = true;
        return event;
      case "send.resumed":
        this.#isVoid ||= !this.#isStored && !this.#isRenewed;
        this.#isRenewed = false;
        return event;
      case "message.completed":
        if (event.role !== "assistant" || event.round < this.#round) return event;
        this.#begin(event.round, 0, event.content.map((part) => (part.type === "text" ? part.text : "")).join(""));
        this.#isStored = true;
        return event;
      case "send.completed":
        this.#begin(Infinity, 0, event.output_text ?? "");
        return event;
      default:
        return event;
    }
  }

  /** Adds what is new in a delta. */
  #append(event: Extract<SendEvent, { type: "message.delta" }>): SendEvent | undefined {
    // What goes on where the text ends was not what became void.
    if (this.#isVoid && event.offset !== this.#length) this.#begin(event.round, event.attempt);
    const offset = this.#length;
    // Something before it is missing, which the stored message will have.
    if (event.offset > offset) return event;
    this.#isVoid = false;
    const characters = [...event.text].slice(offset - event.offset);
    const text = characters.join("");
    this.#text += text;
    this.#length += characters.length;
    return text ? { ...event, offset, text } : undefined;
  }

  /** Whether what is said of this attempt counts; the first word of a new one voids what the old one said. */
  #isCurrent({ round, attempt }: { round: number; attempt: number }): boolean {
    const isSame = round === this.#round;
    if (round < this.#round || (isSame && (this.#isStored || attempt < this.#attempt))) return false;
    if (isSame && attempt === this.#attempt) return true;
    this.#begin(round, attempt);
    this.#isRenewed = isSame;
    return true;
  }

  #begin(round: number, attempt: number, text = ""): void {
    [this.#round, this.#attempt, this.#text, this.#length] = [round, attempt, text, 0];
    this.#isStored = this.#isRenewed = this.#isVoid = false;
  }
}

/** A piece of text to append; with `replace` it takes the place of all text before it, which has become void. */
export interface TextPiece {
  text: string;
  replace?: true;
}

/** What a stream needs of its send. */
interface Source<T> {
  readonly id: string;
  get(): Promise<Schemas["SendView"]>;
  wait(options?: { signal?: AbortSignal }): Promise<Answer<T>>;
}

/** The events of a send, up to its final one. */
export class Stream<T> extends EventStream<SendEvent> {
  readonly #writing = new Writing();
  #final: Schemas["SendView"] | undefined;

  constructor(
    context: Context, private readonly source: Source<T>, private readonly shape: Shape<T> | undefined, options: StreamOptions,
  ) {
    super(context, address("/v1/sends/{id}/events", { id: source.id }), options);
  }

  /** What has been said of the answer: the text of the newest round, without what is void. */
  get text(): string { return this.#writing.text; }

  protected get isDone(): boolean { return this.#final !== undefined; }

  protected take(event: SendEvent): SendEvent | undefined {
    const { type } = event;
    if (type === "send.completed" || type === "send.failed" || type === "send.cancelled") this.#final = event;
    if (type === "send.waiting") this.context.wake();
    return this.#writing.take(event);
  }

  protected async isOver(): Promise<boolean> {
    return isFinal((await this.source.get()).status);
  }

  protected override connected(): void { this.#writing.reconnected(); }

  /** The text as it is written. The pieces joined are the answer's text, where each `replace` begins anew. */
  async *textDeltas(): AsyncGenerator<TextPiece, void, undefined> {
    let shown = this.text;
    if (shown) yield { text: shown };
    for await (const _ of this) {
      const { text } = this;
      if (text === shown) continue;
      yield text.startsWith(shown) ? { text: text.slice(shown.length) } : { replace: true, text };
      shown = text;
    }
  }

  /** The answer: at once if the final event has come, else waited for. Fails as `wait` does. */
  async answer(): Promise<Answer<T>> {
    if (!this.#final) return this.source.wait({ signal: this.options.signal });
    return answered(this.#final, this.shape);
  }
}

/** The events of all sends of a session. Ends when the session is deleted. */
export class SessionStream extends EventStream<SendEvent> {
  protected readonly isDone = false;

  constructor(context: Context, id: string, options: StreamOptions) {
    super(context, address("/v1/sessions/{id}/events", { id }), options);
  }

  protected take(event: SendEvent): SendEvent { return event; }

  protected async isOver(): Promise<boolean> { return false; }

  override async *[Symbol.asyncIterator](): AsyncGenerator<SendEvent, void, undefined> {
    try {
      yield* super[Symbol.asyncIterator]();
    } catch (error) {
      if (!(error instanceof NotFound && this.connections > 0)) throw error;
    }
  }
}

/** The events of a run, up to its final one. */
export class RunStream extends EventStream<RunEvent> {
  protected isDone = false;

  constructor(context: Context, private readonly id: string, options: StreamOptions) {
    super(context, address("/v1/runs/{id}/events", { id }), options);
  }

  protected take(event: RunEvent): RunEvent {
    this.isDone = event.type.startsWith("run.") && isFinal(event.type.slice("run.".length));
    return event;
  }

  protected async isOver(): Promise<boolean> {
    return isFinal((await this.context.api.getRun({ id: this.id })).status);
  }
}
