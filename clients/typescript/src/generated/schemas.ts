// Made by scripts/generate.mjs from docs/openapi.json. Do not edit.

/** The schemas of the API, by their names in the description. */
export interface Schemas {
  /** What is said. */
  A2aBody: {
    /** How it is answered. */
    configuration?: {
      [key: string]: unknown;
    } | null;
    /** A message of the protocol. */
    message: {
      [key: string]: unknown;
    };
  };
  /** The accepted send, or the open send to which the message was delivered. */
  AcceptedSend: Schemas["SendView"] & {
    /**
     * The item in the session's inbox, if the message was delivered to an open send (`on_busy`). Absent if
     * an earlier request with the same key delivered it.
     */
    inbox_item?: Schemas["InboxItem"];
  };
  /** What became of one of them. */
  ActedResult: {
    /** Whether it was done. */
    done: boolean;
    id: string;
    problem?: Schemas["Problem"] | null;
  };
  /** What became of those that a request acted on. */
  ActedResults: {
    /** The `cursor` of the request that goes on; null if there are no more. */
    next_cursor?: string | null;
    /** One for each, newest first. */
    results: Schemas["ActedResult"][];
  };
  /** A member that differs. */
  AgentChange: {
    /** The new value; absent if it was removed. */
    after?: unknown;
    /** The old value; absent if it was added. */
    before?: unknown;
    /** A JSON pointer into the spec, or into `/limits`, the agent's limits. */
    pointer: string;
  };
  /** The differences between two versions of an agent. */
  AgentDiff: {
    /** The differences, ordered by pointer. */
    changes: Schemas["AgentChange"][];
    /** The number of the first version; 0 if the agent would be new. */
    from: number;
    /** The agent. */
    name: string;
    /** The number of the other. */
    to: number;
  };
  /** Limits of a published agent, in any version, in addition to those of its tenant. */
  AgentLimits: {
    /** Maximum unfinished sends of this agent created by requests; unlimited when absent. */
    sends_open?: number | null;
    /** Maximum sends of this agent in flight on all workers together; others wait. Unlimited when absent. */
    sends_running?: number | null;
    /** Tokens, input and output, that its model calls may use per day (UTC); unlimited when absent. */
    tokens_per_day?: number | null;
    /** The same of a calendar month. */
    tokens_per_month?: number | null;
    /** US dollars that its model calls of a day, in UTC, may cost; unlimited when absent. */
    usd_per_day?: number | null;
    /** US dollars that the model calls that it begins in a minute may cost; others wait. Unlimited when absent. */
    usd_per_minute?: number | null;
    /** The same of a calendar month. */
    usd_per_month?: number | null;
  };
  /** A version of an agent that something took. */
  AgentRef: {
    /** The agent. */
    name: string;
    /** The number of its version. */
    version: number;
  };
  /**
   * How a session's model is called. Versioned: a send keeps the version that was
   * current when it started.
   */
  AgentSpec: {
    /** Narrows the tools to those with these names: a child gets no more than its parent has. */
    allow?: string[] | null;
    /**
     * The published agents that it may start as children and leaves: `NAME` for all versions, or
     * `NAME@VERSION` or `NAME@ALIAS` for just what is written so.
     */
    allow_agents?: string[];
    /**
     * The board that it shares with all agents that name the same; by default that of its
     * tree of sessions.
     */
    board?: string | null;
    budget?: Schemas["Budget"] | null;
    /** What the model sees of the transcript. */
    context?: Schemas["ContextSpec"];
    /**
     * Models to call instead, in this order, when `model` is not available: its provider is down, rejects the key or
     * limits the rate for longer than a worker waits in memory. At most four.
     */
    fallback?: string[];
    /** Where those of its tools run that reach beyond the database. */
    isolation?: Schemas["Isolation"];
    /** Maximum number of rounds of one send. */
    max_rounds?: number | null;
    /** Maximum number of tokens of one answer. */
    max_tokens?: number | null;
    memory?: Schemas["MemorySpec"] | null;
    /** `MODEL` of the default provider, or `PROVIDER/MODEL`. */
    model?: string | null;
    /**
     * Further members of model requests, for what only some providers offer: an object of at most 16 KiB of JSON.
     * Members that have a setting of their own are refused.
     */
    model_options?: {
      [key: string]: unknown;
    } | null;
    /** A label to filter by. */
    name?: string | null;
    notes?: Schemas["NotesSpec"] | null;
    /**
     * The schema of final answers: a JSON Schema, or `{name, schema, strict}`; `{"type": "json_object"}` for any
     * JSON object.
     */
    output_schema?: {
      [key: string]: unknown;
    } | null;
    /** Whether one answer may have several calls; the provider's default when absent. */
    parallel_tool_calls?: boolean | null;
    /** The workers that may run it; `default` when absent. */
    pool?: string | null;
    prompt?: Schemas["PromptSpec"] | null;
    reasoning_effort?: Schemas["ReasoningEffort"] | null;
    /** What to do with an interrupted round. */
    recovery?: Schemas["Recovery"];
    /**
     * Skills that its model may read, `NAME` or `NAME@HASH`. A bare name means its current version when
     * the agent is stored, and that version from then on.
     */
    skills?: string[];
    /** Texts that end an answer before them, at most four. The answer counts as complete. */
    stop?: string[];
    /** Instructions for the model, before the transcript. */
    system_prompt?: string | null;
    /** Passed to the provider as it is. */
    temperature?: number | null;
    thinking?: Schemas["ThinkingSpec"] | null;
    tool_choice?: Schemas["ToolChoice"] | null;
    /** Tools on offer: presets and names of tools that the workers have, and tools declared here. */
    tools?: Schemas["ToolEntry"][];
    /** Passed to the provider as it is. */
    top_p?: number | null;
  };
  /** A version of an agent, as it is shown. */
  AgentVersion: {
    /** When it was published. */
    created_at: string;
    /** SHA-256 of its spec's canonical JSON, as 64 hex digits. */
    hash: string;
    /** The agent. */
    name: string;
    /** What it is. */
    spec: Schemas["AgentSpec"];
    /** Its number, from 1. */
    version: number;
  };
  /** Where an alias is to point. */
  AliasBody: {
    /** The number of the version. */
    version: number;
  };
  /** A result that replaces a node's. */
  AmendBody: {
    /** The value that replaces the node's. */
    output?: unknown;
    /** The text that replaces the node's. */
    text?: string;
  };
  /** An API key. */
  ApiKey: {
    binding?: Schemas["Binding"] | null;
    /** When it was created. */
    created_at: string;
    /** From when on it is refused; never if null. */
    expires_at?: string | null;
    /** Its id. */
    id: string;
    /**
     * The token. Only in the response that creates or rotates it, and not in a repeated one
     * (`Idempotency-Replayed`): it is stored nowhere.
     */
    key?: string | null;
    /** When it was last used, to the minute. */
    last_used_at?: string | null;
    /** Its limits, in addition to those of its tenant. */
    limits: Schemas["KeyLimits"];
    /** A label for people. */
    name: string;
    /** The prefix of its token. */
    prefix: string;
    /** Until when the secret before the last rotation is accepted. */
    previous_until?: string | null;
    /** When it was revoked. */
    revoked_at?: string | null;
    /** What it allows; `admin` includes the others, except `operate`. */
    scopes: Schemas["Scope"][];
    /** The tenant that it acts for. */
    tenant: string;
  };
  /** What a call asks for. */
  Asked: "permission" | "answer";
  /** What a tool asks while its call is made. */
  Asks: {
    /** What a person reads. */
    message: string;
    /**
     * `form`, answered with `{"action": "accept", "content": {…}}`, or `url`, answered with `{"action": "accept"}`
     * when the person has opened the address; both also with the actions `decline` and `cancel`.
     */
    mode: string;
    /** Its number among the questions of the call, which the answer names. */
    question: number;
    /** The schema of the content, with text, number, boolean and choice members. */
    requested_schema?: {
      [key: string]: unknown;
    } | null;
    /** The address to open. The tool chose it, so show it before it is opened. */
    url?: string | null;
  };
  /**
   * Something that a provider attached to an answer and wants back. It goes back unchanged to whoever attached
   * it, and to nobody else.
   */
  Attached: {
    /** The JSON text, as it came; U+0000 occurs in it only escaped. */
    json: string;
    /** Who attached it. */
    origin: Schemas["Origin"];
  };
  /** An earlier attempt of a leaf. */
  Attempt: {
    /** Its number, counted from 1. */
    attempt: number;
    error?: Schemas["Failure"] | null;
    /** Its send. */
    send_id?: string | null;
    /** Its session. */
    session_id?: string | null;
  };
  /** Sends to accept in one request. */
  BatchBody: {
    /** At most 1000. */
    sends: Schemas["BatchSend"][];
  };
  /** The outcome of one item: it has either `send` or `problem`. */
  BatchResult: {
    problem?: Schemas["Problem"] | null;
    send?: Schemas["AcceptedSend"] | null;
    /** The status that the item alone would have been answered with. */
    status: number;
  };
  /** The schema of an answer. */
  BatchResults: {
    /** One per item, in order. */
    results: Schemas["BatchResult"][];
  };
  /** A send to a session that exists or is created with it. */
  BatchSend: {
    /** Idempotency key of this item. Only in a batch; otherwise it is a header. */
    idempotency_key?: string | null;
    input: string | Schemas["InputPart"][];
    options?: Schemas["SendOptions"] | null;
    session?: Schemas["SendSession"] | null;
    /** A session that exists. */
    session_id?: string | null;
  };
  /** A timer to create. */
  BatchTimer: {
    /** How long from now: once, or with `every` the first time. */
    after?: string | null;
    /** When it is due: once, or with `every` the first time. */
    at?: string | null;
    catch_up?: Schemas["CatchUp"] | null;
    /** A cron expression: five fields starting with minutes, or six with seconds first. */
    cron?: string | null;
    /** A fixed rate, at least `1s`. */
    every?: string | null;
    /** Idempotency key of this item. Only in a batch; otherwise it is a header. */
    idempotency_key?: string | null;
    input?: string | Schemas["InputPart"][];
    /** Each occurrence is delayed by less than this; at most `1d`. */
    jitter?: string | null;
    /** Maximum number of occurrences. */
    max_occurrences?: number | null;
    on_busy?: Schemas["Merge"] | null;
    options?: Schemas["SendOptions"] | null;
    run?: Schemas["RunBody"] | null;
    /** The session that it sends to, under that session's own agent. */
    session_id?: string | null;
    /** The calendar's time zone, such as `Europe/Berlin`; `UTC` when absent. */
    timezone?: string | null;
    /** Nothing is due after this. */
    until?: string | null;
  };
  /**
   * What a key is bound to. Anything outside does not exist for the key, and cannot be created with it. An absent member
   * does not restrict the key.
   */
  Binding: {
    /** Published agents: sessions have one of these, and no others can be named. */
    agents?: string[];
    /** Metadata that sessions must have, each member with exactly this text. Sessions that the key creates get it. */
    metadata?: {
      [key: string]: string;
    };
    /** The memory namespace, with all below it; sessions whose agents use another namespace are outside. */
    namespace?: string | null;
    /**
     * Sessions: no others exist, none can be created, and no agent can be named for them. Memories are out of reach unless
     * there is a namespace.
     */
    sessions?: string[];
  };
  /** A blob as rows and messages name it. */
  BlobRef: {
    /** Its length. */
    bytes: number;
    /** Like `image/png`. */
    media_type: string;
    /** The SHA-256 of its bytes. */
    sha256: string;
  };
  /** What the body of a request is. */
  BodyForm: "json" | "form" | "none";
  /** Spending limits, as users write them. Absent members are unlimited. */
  Budget: {
    /** Model calls, including those of children. */
    rounds?: number | null;
    /** Tokens, read and written. */
    tokens?: number | null;
    /** US dollars, by the price table of the workers. */
    usd?: number | null;
    /** From the start of a send, including waits. */
    wall?: string | null;
  };
  /** What a provider attached to a call, besides its name and arguments. */
  CallAttached: {
    /** The call's id as the provider gave it. */
    id?: string | null;
    /** Further members of the call, as the text of a JSON object. */
    json?: string | null;
    /** Who made the call. */
    origin: Schemas["Origin"];
  };
  /** A tool call. */
  CallEvent: {
    /** Any JSON. */
    arguments?: unknown;
    /** When its outcome was stored; only in events with an id. */
    at?: string;
    /** The call. */
    id: string;
    /** The tool. */
    name: string;
    /** The part that the model sees. */
    result?: Schemas["ContentPart"][];
    /** Its send. */
    send_id: string;
  };
  /** A call that the caller is to make, whose result it reports with `claim`. */
  CallToMake: {
    /** The arguments. */
    arguments: {
      [key: string]: unknown;
    };
    /** Which claim of the call this is, from 1: from 2 on, a program that had it may have made it. */
    attempt: number;
    /** The id with which its result is posted. */
    call_id: string;
    /** What the result is reported with. */
    claim: string;
    /** Until when nobody else gets it. */
    claimed_until: string;
    /** When a result is too late. */
    deadline_at?: string | null;
    /** The tool's name. */
    name: string;
    /** Whether the call may be made again after the caller died. */
    repeat: Schemas["Repeat"];
    /** When it was asked for. */
    requested_at: string;
    /** The send that asks. */
    send_id: string;
    /** The session to whose `tool-results` it is posted. */
    session_id: string;
  };
  /** Options of a cancellation. */
  CancelRunBody: {
    /** For people. */
    reason?: string | null;
  };
  /** What to do with occurrences that did not fire when they were due. */
  CatchUp: "skip" | "once" | "all";
  /** Calls that a program takes on. */
  ClaimBody: {
    /** How long nobody else gets them, from 1 s to 1 h; 60 s when absent. */
    lease?: string | null;
    /** At most this many calls, 1 to 100; 1 when absent. */
    limit?: number | null;
    /** The tools that it has, 1 to 64. */
    names: string[];
  };
  /** The calls that the caller has now. */
  ClaimedCalls: {
    /** The longest waiting first; none if nothing waits. */
    calls: Schemas["CallToMake"][];
  };
  /** A typed part of a message. */
  ContentPart: Schemas["TextPart"] | Schemas["ReasoningPart"] | Schemas["ImagePart"] | Schemas["FilePart"];
  /** A hypothetical send. */
  ContextBody: {
    input: string | Schemas["InputPart"][];
    options?: Schemas["SendOptions"] | null;
    /** Adds the request as its provider would get it. */
    request?: boolean;
  };
  /** What the model sees of the transcript. */
  ContextSpec: {
    /** How what the model's window has no room for is folded. */
    fold?: Schemas["FoldSpec"];
    /** Which pictures and files are shown again with later rounds. */
    images?: Schemas["ImagesSpec"];
    /**
     * Maximum number of the last messages when a send starts, its input included; all of them when absent. To preserve
     * providers' prompt caches, the window moves in blocks: once the limit is exceeded, by half of it. The send's own
     * messages come on top.
     */
    last_messages?: number | null;
    /** What to do with an answer that was truncated at its token limit. */
    on_truncation?: Schemas["OnTruncation"];
    /** How sends that have ended are shown. */
    representation?: Schemas["Representation"];
    /** How older results of these tools are shown; unchanged by default. */
    tools?: {
      [key: string]: Schemas["ToolContext"];
    };
  };
  /** A tool that an agent declares by itself. */
  DeclaredTool: Schemas["HttpTool"] | Schemas["ExternalTool"] | Schemas["McpTools"] | Schemas["WorkerTool"];
  /** The status of a delivery. */
  DeliveryStatus: "pending" | "delivered" | "dead";
  /** A part of an answer. Parts of an older attempt are void. */
  DeltaEvent: {
    /** The attempt within it. */
    attempt: number;
    /** Number of characters of this attempt before this delta. */
    offset: number;
    /** The round. */
    round: number;
    /** Its send. */
    send_id: string;
    /** The piece. */
    text: string;
  };
  /** What a page shows. */
  Entry: Schemas["Message"] | Schemas["FoldEntry"];
  /** The wish to erase a tenant. */
  EraseTenantBody: {
    /** The tenant's name: what is erased cannot be brought back, so that a wrong number must not be enough. */
    name: string;
  };
  /** What an erasure did. */
  ErasedView: {
    /** Entries that were deleted. */
    deleted: number;
  };
  /** An erasure that happened. */
  Erasure: {
    /** Who requested it: the id of an API key, or `operator`. Absent for erasures by older releases. */
    by?: string | null;
    /** Entries that were deleted. */
    deleted: number;
    /** When it ended, or got as far as it did. */
    erased_at: string;
    /** Its identity. */
    id: string;
    /** SHA-256 of the namespace's name, as hexadecimal digits: those who know the name can find it. */
    namespace_sha256: string;
  };
  /** A tool that the caller runs. */
  ExternalTool: {
    /** Whether a person has to approve each call. */
    approval?: boolean;
    /**
     * How long to wait for a result, from when it is asked for: after the approval, if there is one. Forever if not
     * set.
     */
    deadline?: string | null;
    /** The description for the model. */
    description?: string;
    /** The name that the model calls it by. */
    name: string;
    /** The JSON Schema of its arguments; any object when absent. */
    parameters?: {
      [key: string]: unknown;
    };
    /** The workers that sends of an agent with it run on. */
    pool?: string | null;
    repeat?: Schemas["Repeat"] | null;
    type: "external";
  };
  /** What an agent remembers automatically. */
  ExtractMode: "off" | "after_send";
  /** A failure as stored with a send: without secrets or texts of drivers. */
  Failure: {
    /** The stable code. */
    code: string;
    /** One sentence for people. */
    message: string;
  };
  /** The outcome of an occurrence. */
  Fate: "fired" | "merged" | "skipped" | "failed";
  /** What is wrong with one member of a request. */
  FieldError: {
    /** A message for people. */
    detail: string;
    /**
     * A JSON pointer into the body, preceded by `LINE:` in a body of JSON lines; for a query parameter or a
     * header, its name preceded by `?` or `#`.
     */
    pointer: string;
  };
  /** A stored blob, read when the model is called. */
  FileBlob: {
    /** Its bytes, at most 10 MiB. */
    bytes?: number;
    /** Like `application/pdf`; content of a type `text/…` is shown as text. */
    media_type?: string;
    /** The SHA-256 of its bytes. */
    sha256: string;
    type: "blob";
  };
  /** Bytes, which not every provider accepts: both accept `application/pdf`. */
  FileBytes: {
    /** Its bytes in base64, at most 10 MiB before encoding. */
    data: string;
    /** Like `application/pdf`. */
    media_type: string;
    type: "base64";
  };
  /** A file with its name. */
  FilePart: {
    /** What it is called. */
    name: string;
    /** What is in it. */
    source: Schemas["FileSource"];
    type: "file";
  };
  /** What is in a file. */
  FileSource: Schemas["FileText"] | Schemas["FileBytes"] | Schemas["FileBlob"];
  /** Words. */
  FileText: {
    /** The text, at most 10 MiB. */
    text: string;
    type: "text";
  };
  /** Which occurrence to fire. */
  FireTimerBody: {
    /**
     * Its number: one more than the timer's `occurrences`. If the timer has had it, nothing is fired, so that a request may
     * be repeated.
     */
    n: number;
  };
  /** A text that replaces a range of messages. */
  Fold: {
    /** The fold that covers it: it is not shown any more. */
    covered_by?: number | null;
    /** When, by the database's clock. */
    created_at: string;
    /**
     * The first message that it covers. In a copy of a session, zero or less for messages that had been removed
     * before.
     */
    from_seq: number;
    /** How it was made. */
    kind: Schemas["FoldKind"];
    /** 0, or one more than the highest of the folds that it covers. */
    level: number;
    /** The model that wrote it, if one did. */
    model?: string | null;
    /** Its number in the session: the session's `context_version` from its attachment on. */
    n: number;
    /** The send that it was attached in. */
    send_id: string;
    /** The text. */
    text: string;
    /** The last one. */
    to_seq: number;
    /** About how many tokens it takes. */
    tokens_after: number;
    /** Estimated tokens of the messages and folds that it covers. */
    tokens_before: number;
  };
  /** The text that the model sees instead of the earlier messages. */
  FoldEntry: Schemas["Fold"] & {
    /** Tells it from messages. */
    role: Schemas["FoldRole"];
  } & {
    role: "fold";
  };
  /** How a fold was made. */
  FoldKind: "summary" | "agentic" | "projection" | "http" | "custom";
  /** The role of a fold, which no message has. */
  FoldRole: "fold";
  /** When and how parts of the transcript are folded. */
  FoldSpec: {
    /** Share of the budget above which a fold is made before the model is called; 0.85 when absent. */
    hard?: number | null;
    /** The newest sends, which are not folded; 4 when absent. */
    keep_sends?: number | null;
    /** The model that writes it, if it is not the agent's. */
    model?: string | null;
    /**
     * Share of the context's budget above which a fold is made in the background; 0.6 when absent. The budget is the
     * model's window without its answer and a reserve.
     */
    soft?: number | null;
    /** How. */
    strategy?: Schemas["FoldStrategy"];
    /** The service of strategy `http`. */
    url?: string | null;
  };
  /** How what the model's window has no room for is folded. */
  FoldStrategy: "none" | "summary" | "agentic" | "projection" | "http";
  /** When something is folded. */
  FoldWhen: "before" | "beside" | "after";
  /** Options of a fork; all of them have defaults. */
  ForkBody: {
    agent?: null | string | Schemas["AgentSpec"];
    /** Replaces the metadata. `forked_from` is set in either case. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** The last message to copy; by default the last one up to which every call has its result. */
    seq?: number | null;
    /** Replaces the values of the agent's variables. */
    variables?: {
      [key: string]: unknown;
    } | null;
  };
  /** A secret as the value of a header. */
  HeaderSecret: {
    /** Put before it, like `token `. */
    prefix?: string;
    /** Its name. */
    secret: string;
  };
  /** The value of a header. */
  HeaderSource: string | Schemas["HeaderSecret"];
  /** A claim of the caller. */
  HeldClaim: {
    /** The call. */
    call_id: string;
    /** What it was claimed with. */
    claim: string;
  };
  /** What lets a tool into an API. `secret` always names a secret of the tenant. */
  HttpAuth: {
    /** The token. */
    secret: string;
    /** @enum {string} */
    type: "bearer";
  } | {
    /** The password. */
    secret: string;
    /** @enum {string} */
    type: "basic";
    /** The name. When absent, the secret is `name:password`. */
    user?: string | null;
  } | {
    /** Where it stands. */
    in?: Schemas["KeyPlace"];
    /** The name of the header or parameter. */
    name: string;
    /** The key. */
    secret: string;
    /** @enum {string} */
    type: "api_key";
  } | {
    /** The audience to ask for, where the server wants one. */
    audience?: string | null;
    /** The client's id. When absent, the secret is `id:secret`. */
    client_id?: string | null;
    /** The scopes to ask for. */
    scopes?: string[];
    /** The client's secret. */
    secret: string;
    /** Where tokens are given. */
    token_url: string;
    /** @enum {string} */
    type: "oauth";
  };
  /** How a tool asks an API, in place of the `POST` that describes the call. */
  HttpRequest: {
    auth?: Schemas["HttpAuth"] | null;
    body?: Schemas["BodyForm"] | null;
    /**
     * The argument that is the whole body. When absent, the body is an object of the arguments that stand nowhere else;
     * without a body, they are parameters of the query.
     */
    body_argument?: string | null;
    /** Headers: by name, a text with `{argument}` in it, or a secret. */
    headers?: {
      [key: string]: Schemas["HeaderSource"];
    };
    /** The method; `GET` when absent. */
    method?: Schemas["Method"];
    /** A JSON pointer to the part of the answer that the model gets. */
    pointer?: string | null;
    /**
     * Parameters of the query: by name, a text with `{argument}` in it. One whose argument is missing or null is left
     * out; an array is a parameter for each of its items.
     */
    query?: {
      [key: string]: string;
    };
  };
  /** An HTTP tool. */
  HttpTool: {
    /** Whether a person has to approve each call. */
    approval?: boolean;
    /** The description for the model. */
    description?: string;
    /** A template of `arguments` and `output` that says in one line what is left of a call once it is old. */
    digest?: string | null;
    /** The name that the model calls it by. */
    name: string;
    /** Whether it may run in parallel with other calls of its round. */
    parallel?: boolean;
    /** The JSON Schema of its arguments; any object when absent. */
    parameters?: {
      [key: string]: unknown;
    };
    /** The workers that can call it; sends of an agent with it run there. */
    pool?: string | null;
    /**
     * Whether a call that may have been made is made again, after a crash of its worker or a failed attempt. `keyed`
     * when absent: up to three attempts under one `Idempotency-Key`, which your service has to remember. `once` for
     * whatever must not happen twice in a service that does not. With `request`, by its method when absent: `safe` for
     * `GET`, `keyed` for `PUT` and `DELETE`, `once` for `POST` and `PATCH`.
     */
    repeat?: Schemas["Repeat"];
    request?: Schemas["HttpRequest"] | null;
    /** How long one attempt may take; 60 seconds when absent. */
    timeout?: string | null;
    type: "http";
    /** Where it is called. With `request`, its path may have `{argument}` in it. */
    url: string;
  };
  /** Where the provider fetches it. */
  ImageAddress: {
    type: "url";
    /** An `https` address. */
    url: string;
  };
  /** A stored blob, read when the model is called. */
  ImageBlob: {
    /** Its bytes, at most 5 MiB. */
    bytes?: number;
    /** `image/png`, `image/jpeg`, `image/gif` or `image/webp`. */
    media_type?: string;
    /** The SHA-256 of its bytes. */
    sha256: string;
    type: "blob";
  };
  /** Here. */
  ImageBytes: {
    /** Its bytes in base64, at most 5 MiB before encoding. */
    data: string;
    /** `image/png`, `image/jpeg`, `image/gif` or `image/webp`. */
    media_type: string;
    type: "base64";
  };
  /** An image. */
  ImagePart: {
    /** Where it is. */
    source: Schemas["ImageSource"];
    type: "image";
  };
  /** Where a picture is. */
  ImageSource: Schemas["ImageBytes"] | Schemas["ImageBlob"] | Schemas["ImageAddress"];
  /**
   * Which pictures and files of the window a model call contains, and how large. Others are replaced by a
   * line that says what they were.
   */
  ImagesSpec: {
    /**
     * The newest ones that are always shown; all are shown when null, and each only until the model has
     * answered when 0. To keep providers' prompt caches of use, older ones go in blocks: once there are twice
     * as many, as many of them.
     */
    keep?: number | null;
    /**
     * The maximum edge of pictures in pixels, from 64 to 8192: larger ones are scaled down, except those that the
     * provider fetches. Unchanged when absent.
     */
    max_edge?: number | null;
  };
  /** The outcome of an item. */
  InboxFate: "pending" | "delivered" | "void";
  /** An item as stored and as the API shows it. */
  InboxItem: {
    /** What it says. */
    content: Schemas["ContentPart"][];
    /** When it was accepted. */
    created_at: string;
    /** Its outcome. */
    fate: Schemas["InboxFate"];
    /** Unique within the session. */
    id: string;
    /** Where it comes from. */
    kind: Schemas["ItemKind"];
    /** How it was sent. */
    mode: Schemas["OnBusy"];
    /** Its position among the session's items, which are delivered in this order. */
    n: number;
    /** The send that it was accepted into. */
    send_id?: string | null;
    /** The message that it became. */
    seq?: number | null;
    /** When its fate was sealed. */
    settled_at?: string | null;
  };
  /** A part of a message's content. */
  InputPart: Schemas["TextPart"] | Schemas["ImagePart"] | Schemas["FilePart"];
  /** Where those of an agent's tools run that reach beyond the database: files, the shell, HTTP and MCP. */
  Isolation: "none" | "process";
  /** Where an item comes from. */
  ItemKind: "message" | "child" | "late_result";
  /** Limits of an API key, in addition to those of its tenant. */
  KeyLimits: {
    /** Maximum requests per second with this key, over all schedulers, which divide them evenly; unlimited when absent. */
    requests_per_second?: number | null;
    /** Maximum open sends created with this key; unlimited when absent. */
    sends_open?: number | null;
  };
  /** Where a key stands. */
  KeyPlace: "header" | "query";
  /** What a tenant may use. */
  Limits: {
    /** Bytes of its blobs; unlimited when absent. */
    bytes?: number | null;
    /** Maximum leaves of runs in flight; others wait. Unlimited when absent. */
    leaves_running?: number | null;
    /** Maximum requests per second, over all schedulers, which divide them evenly; unlimited when absent. */
    requests_per_second?: number | null;
    /** Maximum unfinished sends created by its requests; unlimited when absent. */
    sends_open?: number | null;
    /** Maximum sends in flight on all workers together, leaves of runs included; others wait. Unlimited when absent. */
    sends_running?: number | null;
    /** Tokens, input and output, that its model calls may use per day (UTC); unlimited when absent. */
    tokens_per_day?: number | null;
    /** Tokens that its model calls may take in a minute before its sends are refused; unlimited when absent. */
    tokens_per_minute?: number | null;
    /** The same of a calendar month. */
    tokens_per_month?: number | null;
    /** US dollars that its model calls of a day, in UTC, may cost; unlimited when absent. */
    usd_per_day?: number | null;
    /** US dollars that the model calls that it begins in a minute may cost; others wait. Unlimited when absent. */
    usd_per_minute?: number | null;
    /** The same of a calendar month. */
    usd_per_month?: number | null;
  };
  /** An entry of a list. */
  ListEntry: {
    /** Who wrote it. */
    author?: string | null;
    /** When it was written. */
    created_at: string;
    /** Its number in the list. */
    id: number;
    /** Its kind. */
    kind?: string | null;
    /** Whether it is never evicted. */
    pinned: boolean;
    /** Its status. */
    status?: string | null;
    /** Its text. */
    text: string;
    /** When it was last changed. */
    updated_at: string;
    /** Counts its changes, from 1. */
    version: number;
  };
  /** A worker has claimed the send. */
  LiveEvent: {
    /** Its send. */
    send_id: string;
  };
  /** Tools of an MCP server. */
  McpTools: {
    /** Whether a person has to approve each call. */
    approval?: boolean;
    /** The workers that are configured with it; sends of an agent with it run there. */
    pool?: string | null;
    /** Put before each tool's name. */
    prefix?: string;
    /** Whether the model can list and read the server's prompts. */
    prompts?: boolean;
    /** Whether the model can list and read the server's resources. */
    resources?: boolean;
    /** The server's name under `[mcp.NAME]` in the workers' configuration. */
    server: string;
    /** The server's tools on offer; all when absent. */
    tools?: string[] | null;
    type: "mcp";
  };
  /** Changes of an entry; absent members stay as they are. */
  MemoryChangeBody: {
    /** Replaces the time at which it is forgotten by itself; null keeps it for good. */
    expires_at?: string | null;
    /** Replaces the metadata. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** Replaces the text. */
    text?: string | null;
  };
  /** Something remembered. */
  MemoryEntry: {
    /** When it was written. */
    created_at: string;
    /** Conversations that it came from before, the latest ones last. */
    earlier_sources?: Schemas["MemorySource"][];
    /** When it is forgotten by itself. */
    expires_at?: string | null;
    /** Its identity. */
    id: string;
    /** The writer's data. */
    metadata?: {
      [key: string]: unknown;
    };
    /** Where it belongs. */
    namespace: string;
    source?: Schemas["MemorySource"] | null;
    /** What is remembered. */
    text: string;
    /** When it last changed. */
    updated_at: string;
  };
  /** The messages that an entry was made of. */
  MemorySource: {
    /** The first message; absent if a tool wrote the entry. */
    from_seq?: number | null;
    /** The send during or after which it was written. */
    send_id: string;
    /** The session. */
    session_id: string;
    /** The last message. */
    to_seq?: number | null;
  };
  /** What an agent remembers beyond its session, and how. */
  MemorySpec: {
    /** Tokens of memory that a send is shown at most. */
    budget_tokens?: number;
    /** What is remembered automatically. */
    extract?: Schemas["ExtractMode"];
    /**
     * The model that extracts; by default the one that the workers' configuration names, else the
     * send's own.
     */
    extract_model?: string | null;
    /**
     * The memory of agents that it starts: `.` for the same namespace, or a path below it. Without it
     * they have none.
     */
    grants?: string | null;
    /**
     * The namespace: a path like `user/{{metadata.user_id}}`, rendered from the session's `metadata` and `session_id`
     * when a send starts. A value never extends beyond its segment of the path.
     */
    namespace: string;
    /** Who keeps it: `builtin`, or a name under `[memory]` in the workers' configuration. */
    provider?: string;
    /** How it is found again. */
    recall?: Schemas["RecallMode"];
  };
  /** The memory that a send uses, as the API shows it. */
  MemoryView: {
    /** The entries that the model was shown, the best first. */
    entries: string[];
    /** The namespace; null if it could not be rendered, and the send had no memory. */
    namespace?: string | null;
    /** Why there are no entries, if something failed. */
    note?: string | null;
    /** Who keeps it. */
    provider: string;
    /** Tokens of them, estimated. */
    tokens: number;
  };
  /** What to do with an occurrence while the previous one's send is still queued. */
  Merge: "coalesce" | "enqueue";
  /** A message as stored and as the API shows it. */
  Message: {
    /** The text. */
    content: Schemas["ContentPart"][];
    /** When its transaction ran, by the database's clock. */
    created_at: string;
    /** Whether the tool failed; only on a tool's message. */
    failed?: boolean;
    /** The tool's name; only on a tool's message. */
    name?: string | null;
    /** Who speaks. (enum property replaced by openapi-typescript) */
    role: "assistant" | "tool" | "user";
    /** The round within its send, from 0. */
    round: number;
    /** The send that wrote it. */
    send_id: string;
    /** The place in the session, from 1, without gaps. */
    seq: number;
    /** The call that this answers; only on a tool's message. */
    tool_call_id?: string | null;
    /** The requested tool calls; only on an assistant's message. */
    tool_calls?: Schemas["ToolCall"][];
  };
  /** The method of a request. */
  Method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The cost of one model's calls. */
  ModelUsage: {
    /** Its responses, including incomplete ones. */
    calls: number;
    /** The requested model. */
    model: string;
    /** Their total cost. */
    usage: Schemas["Usage"];
  };
  /** An agent, as it is shown. */
  NamedAgent: {
    /** The versions that its aliases point at. */
    aliases: {
      [key: string]: number;
    };
    /** When it was archived; null while it can be used. */
    archived_at?: string | null;
    /** When it was published first. */
    created_at: string;
    /** Its limits. */
    limits?: Schemas["AgentLimits"];
    /** Its name. */
    name: string;
    /** When a version was added, an alias or a limit changed, or it was archived or restored. */
    updated_at: string;
    /** The number of its newest version. */
    version: number;
  };
  /** An agent to publish. */
  NewAgentBody: {
    limits?: Schemas["AgentLimits"] | null;
    /** Its name: 1 to 64 of the characters `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`. */
    name: string;
    /** What it is to be. Its `name` may be left out. */
    spec: Schemas["AgentSpec"];
  };
  /** A key to create, for the caller's tenant. */
  NewKeyBody: {
    binding?: Schemas["Binding"] | null;
    /** From when on it is refused; never if absent. */
    expires_at?: string | null;
    /** Its limits, in addition to those of its tenant; none when absent. */
    limits?: Schemas["KeyLimits"];
    /** A label for people, at most 100 characters; if absent, the scopes joined with `+`, like `read+send`. */
    name?: string | null;
    /** What it allows, at least one. */
    scopes: Schemas["Scope"][];
    /** The tenant, for operators; the caller's if absent. */
    tenant?: string | null;
  };
  /** An entry to enter. */
  NewMemoryBody: {
    /** When it is forgotten by itself. */
    expires_at?: string | null;
    /** The writer's data: an object, at most 8 KiB of JSON. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** Its namespace: a path like `user/42`. */
    namespace: string;
    /** What is remembered. */
    text: string;
  };
  /** A run to start. */
  NewRunBody: {
    /** The value of `input`; the spec's own where absent. */
    input?: unknown;
    options?: Schemas["RunOptions"] | null;
    /** The session it belongs to: its leaves' sessions are children of that one. */
    session_id?: string | null;
    /** A workflow: an object, or a text that holds one as JSON. */
    spec: {
      [key: string]: unknown;
    } | string;
  };
  /** A session to create. */
  NewSessionBody: {
    agent?: null | string | Schemas["AgentSpec"];
    /**
     * The caller's own name for the session, 1 to 255 visible ASCII characters. The tenant has one session with it,
     * which is returned as it is if it exists; the name is free again once that is deleted.
     */
    key?: string | null;
    /** The creator's data: an object, at most 16 KiB of JSON. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** Values of the variables that the agent's prompt declares. */
    variables?: {
      [key: string]: unknown;
    } | null;
  };
  /** A tenant to create. */
  NewTenantBody: {
    /** What it may use; everything when absent. */
    limits?: Schemas["Limits"];
    /** At most 100 characters, unique among tenants. */
    name: string;
    /** Worker pools that it may name; any but other tenants' own when absent. */
    pools?: Schemas["Pools"];
    /** For how long what it has is kept; as the installation says when absent. */
    retention?: Schemas["Retention"];
    /**
     * Scheduling weight relative to other tenants, from 1 to 1000.
     * @default 1
     */
    weight: number;
  };
  /** A token to make. */
  NewTokenBody: {
    /** What it allows, of `read`, `use` and `answer`, and no more than the key that makes it; `read` if absent. */
    scopes?: Schemas["Scope"][] | null;
    /** The only session that it reaches. */
    session_id: string;
    /** How long it is accepted; `1h` if absent, at most `24h`. */
    ttl?: string | null;
  };
  /** A webhook to create. */
  NewWebhookBody: {
    /** Event filters: types like `send.completed`, prefixes like `send.*`, or `*`. */
    events: string[];
    /** The signing secret: `whsec_` and the base64 of 24 to 64 bytes; generated if absent. */
    secret?: string | null;
    /** URL that events are posted to, `http` or `https`; a public address unless the operator allows others. */
    url: string;
  };
  /** A fold that the next call would cause. */
  NextFold: {
    /** The first message that it would cover, including those of the folds that it replaces. */
    from_seq: number;
    /** How. */
    strategy: Schemas["FoldStrategy"];
    /** The last one. */
    to_seq: number;
    /** About how many tokens they take. */
    tokens: number;
    /** When it would be made. */
    when: Schemas["FoldWhen"];
  };
  /** What a node does. */
  NodeKind: "agent" | "sequence" | "parallel" | "foreach" | "branch" | "loop" | "wait" | "approval" | "tool" | "workflow";
  /** Where a node stands. */
  NodeState: "blocked" | "ready" | "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "skipped";
  /** A node as the API shows it. */
  NodeView: {
    /** Its result was replaced by an operator. */
    amended: boolean;
    /** The current or last attempt, counted from 1. */
    attempt: number;
    /** When a pause or the wait before its next attempt is over, or its time is up. */
    due_at?: string | null;
    /** The attempts before this one. */
    earlier: Schemas["Attempt"][];
    error?: Schemas["Failure"] | null;
    /** The spec's name for it. */
    id?: string | null;
    /** What it does. */
    kind: Schemas["NodeKind"];
    /** Counts the run's nodes in the order in which they were reached, from 1. */
    n: number;
    /** The value it returned. */
    output?: unknown;
    /** Its position in the tree. */
    path: string;
    /** The send of that attempt. */
    send_id?: string | null;
    /** The session of that attempt. */
    session_id?: string | null;
    /** When it settled. */
    settled_at?: string | null;
    /** When it was reached. */
    started_at: string;
    /** Its state; that of the send for a leaf in flight. */
    state: Schemas["NodeState"];
    /** Messages from people while it was running, oldest first. */
    steered: Schemas["Steered"][];
    /** What it said. */
    text?: string | null;
    /** Its failure does not fail the enclosing node. */
    tolerated: boolean;
    /** The sum over its attempts. */
    usage: Schemas["Usage"];
    waiting_on?: Schemas["WaitingOn"] | null;
  };
  /** How an agent keeps notes. */
  NotesSpec: {
    /** Maximum number of notes, at most 50. */
    max?: number;
    /** What becomes of one more. */
    when_full?: Schemas["WhenFull"];
  };
  /** An occurrence as the API shows it. */
  OccurrenceView: {
    /** When it was due, or when someone asked for it before. */
    due_at: string;
    /** Its outcome. */
    fate: Schemas["Fate"];
    /** When, by the database's clock. */
    fired_at: string;
    /** Whether someone asked for it before it was due. */
    manual: boolean;
    /** Its number, counted from 1. */
    n: number;
    /** The run that it started. */
    run_id?: string | null;
    /** The send that it is in. */
    send_id?: string | null;
  };
  /** What a send does on a busy session. */
  OnBusy: "enqueue" | "coalesce" | "steer" | "interrupt" | "reject";
  /**
   * What to do with an answer that was truncated at its token limit. Its calls are never executed: the last of them may
   * be truncated as well.
   */
  OnTruncation: "continue" | "accept" | "fail";
  /** A conversation to continue, in the form of OpenAI's Chat Completions API. */
  OpenAiChatBody: {
    /** Not supported. */
    audio?: unknown;
    /** Passed to the provider. */
    frequency_penalty?: number | null;
    /** Not supported: see `tool_choice`. */
    function_call?: unknown;
    /** Not supported: functions are in `tools`. */
    functions?: unknown;
    /** Not supported. */
    logit_bias?: unknown;
    /** Not supported. */
    logprobs?: unknown;
    /** The most tokens of the answer. */
    max_completion_tokens?: number | null;
    /** The same. */
    max_tokens?: number | null;
    /** All that was said so far. */
    messages: {
      [key: string]: unknown;
    }[];
    /** The sender's data: at most 16 texts. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** Only text is answered. */
    modalities?: unknown;
    /** `agent/NAME`, `agent/NAME@VERSION` or `agent/NAME@ALIAS` for a published agent, otherwise a provider's model. */
    model?: string | null;
    /** Must be 1 if given. */
    n?: unknown;
    /** Whether one answer may have several calls. */
    parallel_tool_calls?: boolean | null;
    /** Not supported. */
    prediction?: unknown;
    /** Passed to the provider. */
    presence_penalty?: number | null;
    /** Ignored. */
    prompt_cache_key?: string | null;
    /** Ignored. */
    prompt_cache_retention?: unknown;
    /** How much to think. */
    reasoning_effort?: string | null;
    /** `{type: "text"}`, `{type: "json_object"}` or `{type: "json_schema", json_schema: {name, schema, strict}}`. */
    response_format?: {
      [key: string]: unknown;
    } | null;
    /** Ignored. */
    safety_identifier?: string | null;
    /** Passed to the provider. */
    seed?: number | null;
    /** Ignored. */
    service_tier?: string | null;
    /** A text, or at most four, before which the answer ends. */
    stop?: unknown;
    /** Ignored: what is said is stored in either case. */
    store?: boolean | null;
    /** Whether to answer with a stream of chunks. */
    stream?: boolean | null;
    /** `{include_usage}`. */
    stream_options?: {
      [key: string]: unknown;
    } | null;
    /** From 0 to 2. */
    temperature?: number | null;
    /** `auto`, `none`, `required` or `{type: "function", function: {name}}`. */
    tool_choice?: unknown;
    /** Functions that the client runs. */
    tools?: {
      [key: string]: unknown;
    }[] | null;
    /** Not supported. */
    top_logprobs?: unknown;
    /** From 0 to 1. */
    top_p?: number | null;
    /** Ignored. */
    user?: string | null;
    /** Not supported. */
    verbosity?: unknown;
    /** Not supported. */
    web_search_options?: unknown;
  };
  /** A conversation to create. */
  OpenAiConversationBody: {
    /** What was said in it. */
    items?: {
      [key: string]: unknown;
    }[] | null;
    /** The creator's data: at most 16 texts. */
    metadata?: {
      [key: string]: unknown;
    } | null;
  };
  /** Changes of a conversation. */
  OpenAiConversationChangeBody: {
    /** Replaces the texts among its metadata. */
    metadata: {
      [key: string]: unknown;
    };
  };
  /** Texts to compute the vectors of, in the form of OpenAI's API. */
  OpenAiEmbeddingBody: {
    /** The size of a vector: must be the one that is configured, if given. */
    dimensions?: number | null;
    /** `float`, or `base64` for the bytes of numbers of 32 bits, the lowest first. */
    encoding_format?: string | null;
    /** A text, or at most 2048. */
    input: unknown;
    /** The workers' model for vectors, as `MODEL` or `PROVIDER/MODEL`. */
    model: string;
    /** Ignored. */
    user?: string | null;
  };
  /** Items to add to a conversation. */
  OpenAiItemsBody: {
    /** What was said, at most 100 items. */
    items: {
      [key: string]: unknown;
    }[];
  };
  /** What a model is to answer, in the form of OpenAI's Responses API. */
  OpenAiResponseBody: {
    /** Whether to answer at once, with a response that is read later. */
    background?: boolean | null;
    /** Ignored. */
    background_options?: unknown;
    /** Not supported. */
    context_management?: unknown;
    /** A conversation to continue: its id, or `{id}`. */
    conversation?: unknown;
    /** Ignored, but for log probabilities, which are refused. */
    include?: string[] | null;
    /** A text, or a list of items. */
    input?: unknown;
    /** The system prompt of this response. */
    instructions?: string | null;
    /** The most tokens of one answer. */
    max_output_tokens?: number | null;
    /** Not supported. */
    max_tool_calls?: unknown;
    /** The sender's data: at most 16 texts. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** `agent/NAME`, `agent/NAME@VERSION` or `agent/NAME@ALIAS` for a published agent, otherwise a provider's model. */
    model?: string | null;
    /** Whether one answer may have several calls. */
    parallel_tool_calls?: boolean | null;
    /** A response to continue. If others follow it already, its conversation is copied up to it. */
    previous_response_id?: string | null;
    /** Not supported. */
    prompt?: unknown;
    /** Ignored. */
    prompt_cache_key?: string | null;
    /** Ignored. */
    prompt_cache_options?: unknown;
    /** Ignored. */
    prompt_cache_retention?: unknown;
    /** `{effort}`. */
    reasoning?: {
      [key: string]: unknown;
    } | null;
    /** Ignored. */
    safety_identifier?: string | null;
    /** Ignored. */
    service_tier?: string | null;
    /** Must be true if given: what is said is stored. */
    store?: boolean | null;
    /** Whether to answer with a stream of events. */
    stream?: boolean | null;
    /** Ignored. */
    stream_options?: unknown;
    /** From 0 to 2. */
    temperature?: number | null;
    /** `{format}`: `{type: "text"}`, `{type: "json_object"}` or `{type: "json_schema", name, schema, strict}`. */
    text?: {
      [key: string]: unknown;
    } | null;
    /** `auto`, `none`, `required` or `{type: "function", name}`. */
    tool_choice?: unknown;
    /** Functions that the client runs. */
    tools?: {
      [key: string]: unknown;
    }[] | null;
    /** Not supported. */
    top_logprobs?: unknown;
    /** From 0 to 1. */
    top_p?: number | null;
    /** Ignored: what a model has no room for is folded. */
    truncation?: string | null;
    /** Ignored. */
    user?: string | null;
  };
  /**
   * Who gave a part of an answer. What a provider attaches is of use to itself alone, often to one model of it;
   * others refuse it.
   */
  Origin: {
    /** The host that answered, with its port and its path where those tell endpoints apart. */
    host: string;
    /** The member of the answer that it stood in, where the protocol has several for the same. */
    member?: string | null;
    /** The model that was asked. */
    model: string;
    /** The protocol, by its name in the configuration, such as `openai`. */
    protocol: string;
  };
  /** The parts of a request, in the order in which the model reads them. */
  PartKind: "tools" | "system" | "folds" | "history" | "new" | "tail";
  /** Something that is paused. */
  Pause: {
    /** Since when. */
    created_at: string;
    /** What it is. */
    kind: Schemas["PauseKind"];
    /** Its name; the id of a tenant. */
    name: string;
    /** The reason given when it was paused. */
    reason?: string | null;
    /** Whose agent or tool it is, or the tenant; absent for providers and pools, which are everybody's. */
    tenant?: string | null;
  };
  /** Why something is paused. */
  PauseBody: {
    /** At most 1000 bytes, for people. */
    reason?: string | null;
  };
  /** What can be paused, in the order of the names: lists are in the same order in every store. */
  PauseKind: "agent" | "pool" | "provider" | "tenant" | "tool";
  /** One pool's work: in the database, and as jobs in the queue. */
  PoolView: Schemas["QueueStats"] & {
    /** Jobs in the queue; null while it is unavailable. */
    depth?: number | null;
  };
  /** Worker pools that a tenant may name, and its own ones. */
  Pools: {
    /** Pools that its agents, tools and runs may name besides its own; any when absent. */
    allowed?: string[] | null;
    /** Its own pools: tenants that do not list them here may not name them. */
    own?: string[];
  };
  /** The outcome of one. */
  PostedResult: {
    answers?: Schemas["Asked"] | null;
    /** The call. */
    call_id: string;
    /**
     * How it was taken. `claim_lost`: someone else has the call. `locked`: another transaction has held its session for long;
     * nothing was stored, post it again later.
     */
    status: "accepted" | "already_settled" | "not_waiting" | "claim_lost" | "unknown" | "locked";
  };
  /** The outcomes of the posted results, in order. */
  PostedResults: {
    results: Schemas["PostedResult"][];
  };
  /** The request of a session's next model call. */
  Preview: {
    /** The last message of the running send whose results are aged, if the window has no room for all of them. */
    aged_to?: number | null;
    /** Tokens that the answer may have. */
    answer_max: number;
    /** Tokens that the request may have. */
    budget: number;
    /** Tokens likely to be read from the provider's prompt cache. */
    cached: number;
    cost?: Schemas["PreviewCost"] | null;
    /**
     * Identifies the request: `round.completed` has the same one, unless a hook changes the request, or
     * the session, the agent or its notes change before.
     */
    digest: string;
    /** The folds before the window. */
    folds: Schemas["PreviewFold"][];
    /** The first message that is shown. */
    from_seq: number;
    /** What would delay or prevent the call. */
    limits: Schemas["PreviewLimit"][];
    /** The model. */
    model: string;
    next_fold?: Schemas["NextFold"] | null;
    /** The request's parts in the order in which the model reads them. */
    parts: Schemas["PreviewPart"][];
    /** The provider's configured name. */
    provider: string;
    /** The request as its provider would get it. */
    request?: {
      [key: string]: unknown;
    } | null;
    /** The round within that send, from 0. */
    round: number;
    /** The send of this round; null for a hypothetical one. */
    send_id?: string | null;
    /** What is shown after the messages, at the end of the user's turn. */
    tail?: string | null;
    /** Tokens of all parts: estimated, and corrected by what the provider counted lately. */
    tokens: number;
    /** The model's window: tokens of a request and its answer together. */
    window: number;
  };
  /** The cost of a call, in US dollars. */
  PreviewCost: {
    /** The longest answer. */
    answer_max_usd: number;
    /** The part for tokens read from the provider's cache. */
    cache_read_usd?: number;
    /** The part for tokens written to the provider's cache. */
    cache_write_usd?: number;
    /** The request, all of it: what is cached at that price, and the rest at its full one. */
    input_usd: number;
  };
  /** What stands for messages. */
  PreviewFold: {
    /** The first message that it stands for. */
    from_seq: number;
    /** The last one. */
    to_seq: number;
    /** Its tokens. */
    tokens: number;
  };
  /** What would delay or prevent a call. */
  PreviewLimit: {
    /** What it is, as a code. */
    code: string;
    /** In words. */
    detail: string;
  };
  /** A part of a request. */
  PreviewPart: {
    /** Tokens likely to be read from the provider's prompt cache. */
    cached: number;
    /** Its cost in US dollars, if the model's prices are known. */
    cost_usd?: number | null;
    /** How many there are: tools, folds or messages. */
    count: number;
    /** What it is. */
    kind: Schemas["PartKind"];
    /** Its tokens. */
    tokens: number;
    /** Tokens that would be written to the provider's cache, if that is priced separately. */
    written?: number;
  };
  /** Which of two queues a session's activations go through. */
  Priority: "high" | "low";
  /** A problem document. */
  Problem: {
    /** The stable code. */
    code: string;
    /** What happened here. */
    detail: string;
    /** The invalid members, if the code is about members. */
    errors?: Schemas["FieldError"][];
    /** Whether the same request may work later. */
    retryable: boolean;
    /** The HTTP status. */
    status: number;
    /** What the code means. */
    title: string;
    /** The address of a page with advice. */
    type: string;
  };
  /** How far a tool call is. */
  ProgressEvent: {
    /** The call. */
    id: string;
    /** What the tool says of it. */
    message?: string;
    /** What is done, in a unit of the tool's own. */
    progress: number;
    /** Its send. */
    send_id: string;
    /** All that is to be done, if that is known. */
    total?: number;
  };
  /** A section of a prompt: a text, or the list of tools. */
  PromptSection: {
    /** What it is called in previews; unique in its prompt. */
    name: string;
    /** A template over `metadata` and the variables. */
    text?: string | null;
    /** The available tools with their descriptions, instead of a text. */
    tool_catalog?: boolean;
    /** An expression of the template language: the section is left out if it is false. */
    when?: string | null;
  };
  /** The sections of a prompt, after the system prompt. */
  PromptSpec: {
    /** In their order, with a blank line between them; at most 50. */
    sections?: Schemas["PromptSection"][];
    /** Variables that sessions may set, by name; at most 100. */
    variables?: {
      [key: string]: Schemas["PromptVariable"];
    };
  };
  /** A variable that a session may set when it takes the agent. */
  PromptVariable: {
    /** Its value if the session sets none; an empty text when absent. */
    default?: unknown;
    /** What it is for. */
    description?: string | null;
    /** Whether each session has to set it. */
    required?: boolean;
  };
  /** A key for a provider. The key itself is never shown. */
  ProviderKey: {
    /** The key's last characters; empty for a short key. */
    hint: string;
    /** The provider's name in the configuration of workers. */
    provider: string;
    /** When it was set. */
    set_at: string;
  };
  /** A key to set. It is stored sealed, and never shown again. */
  ProviderKeyBody: {
    /** The key as the provider gave it: visible ASCII characters. */
    key: string;
  };
  /** What to remove: either `before_seq` or `keep_last`. */
  PruneBody: {
    /** Messages with a lower `seq`. */
    before_seq?: number | null;
    /** Only counts what would be removed. */
    dry_run?: boolean;
    /** Keeps this many of the last messages, at least 1. */
    keep_last?: number | null;
  };
  /** What was removed, or would be. */
  Pruned: {
    /** Whether this was a dry run: nothing was removed. */
    dry_run: boolean;
    /** The `seq` of the first one that is left. */
    first_seq: number;
    /** Messages. */
    removed: number;
  };
  /** What a model was asked for. */
  Purpose: "round" | "fold" | "extract" | "embed";
  /** The cost of model calls of one kind. */
  PurposeUsage: {
    /** Their responses, including incomplete ones. */
    calls: number;
    /** What models were asked for. */
    purpose: Schemas["Purpose"];
    /** Their total cost. */
    usage: Schemas["Usage"];
  };
  /** How much waits and runs in one pool. */
  QueueStats: {
    /** Milliseconds that the oldest ready session has waited. */
    oldest_ready_ms: number;
    /** The pool. */
    pool: string;
    /** Sessions with work and no live owner. */
    ready: number;
    /** Sessions that a worker holds. */
    running: number;
  };
  /** How much a model is to think before it answers. */
  ReasoningEffort: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
  /** The model's visible reasoning, kept so that providers which want it back get it. */
  ReasoningPart: {
    origin?: Schemas["Origin"] | null;
    /** The provider's signature over it, if any. */
    signature?: string | null;
    /** The text, without U+0000. */
    text: string;
    type: "reasoning";
  };
  /** How an agent finds again what it remembers. */
  RecallMode: "auto" | "tool" | "off";
  /** What was recalled from the memory for a send. */
  RecalledEvent: {
    /** Entries that the model is shown. */
    count: number;
    /** Why there are none, if something went wrong. */
    note?: string;
    /** Its send. */
    send_id: string;
    /** Tokens of them, estimated. */
    tokens: number;
  };
  /** What to do with a round that was open when its worker died. */
  Recovery: "auto" | "manual";
  /** Claims that are given up. */
  ReleaseBody: {
    /** 1 to 100. */
    claims: Schemas["HeldClaim"][];
  };
  /** Claims that go on. */
  RenewBody: {
    /** 1 to 100. */
    claims: Schemas["HeldClaim"][];
    /** How long nobody else gets the calls, from now, from 1 s to 1 h; 60 s when absent. */
    lease?: string | null;
  };
  /**
   * The effect of executing the same call twice. This alone decides whether a call that may have been made is made again:
   * after a worker crash, and after an attempt that failed. `keyed` when absent.
   */
  Repeat: "safe" | "keyed" | "once";
  /** How sends that have ended are shown. */
  Representation: "verbatim" | "projection";
  /** A new attempt starts. */
  ResetEvent: {
    /** The new attempt. */
    attempt: number;
    /** Why. */
    reason?: string;
    /** The round. */
    round: number;
    /** Its send. */
    send_id: string;
  };
  /** The result of one call: an output, content or an error. */
  ResultBody: {
    answers?: Schemas["Asked"] | null;
    /** The call. */
    call_id: string;
    /** What the caller claimed the call with. When absent, the result counts whoever has claimed the call. */
    claim?: string | null;
    /** A text, or parts of text, pictures and files, which the model is shown. */
    content?: string | Schemas["InputPart"][];
    /**
     * One line that says what is left of the call once it is old, for agents that show digests of older
     * sends or summaries of older results; at most 256 bytes are kept.
     */
    digest?: string | null;
    /** What went wrong, for the model. */
    error?: string;
    /**
     * Any JSON; a text is shown to the model as it is. For a question a text, one of its options, or
     * `true` and `false`, by its kind. For permission: `{"approved": true | false, "note"?}`. For what a tool asks:
     * `{"action": "accept", "content"?}`, `{"action": "decline"}` or `{"action": "cancel"}`.
     */
    output?: unknown;
    /** Which question of the tool is answered, as listed; the first one when absent. */
    question?: number | null;
  };
  /** Results of calls. */
  ResultsBody: {
    /** At most 1000. */
    results: Schemas["ResultBody"][];
  };
  /** How long a tenant's data is kept; the installation's settings apply to absent members. */
  Retention: {
    /** Legal hold: whether all deletion is blocked, by retention and on request. */
    hold?: boolean;
    /** The same of runs, with the sessions of their leaves. */
    runs?: string | null;
    /** How long sends are kept after their end, like `30d`, with their steps, calls and usage. */
    sends?: string | null;
    /** How long idle sessions are kept, with their messages; forever when absent. */
    sessions?: string | null;
  };
  /** Options of a retry. */
  RetryRunBody: {
    /** A new limit of tokens. */
    max_tokens?: number | null;
  };
  /** Who speaks. */
  Role: "user" | "assistant" | "tool";
  /** How a key is rotated. */
  RotateBody: {
    /** How long the secret before is still accepted; `24h` if absent, at most `30d`. */
    overlap?: string | null;
  };
  /** How a webhook's secret is rotated. */
  RotateWebhookBody: {
    /** How long the previous secret remains valid for signing; `24h` if absent, at most `30d`. */
    overlap?: string | null;
    /** The new secret; made up if absent. */
    secret?: string | null;
  };
  /** A model call. */
  RoundEvent: {
    /** When its outcome was stored; only in events with an id. */
    at?: string;
    /** Identifies the content of the model request: sha256: and 64 hexadecimal digits. */
    digest?: string;
    /** The model. */
    model: string;
    /** Its number within the send, from 0. */
    round: number;
    /** Its send. */
    send_id: string;
    usage?: Schemas["Usage"];
  };
  /** A message of JSON-RPC. */
  RpcMessage: {
    /** A text or a number; absent from notifications. */
    id?: {
      [key: string]: unknown;
    } | null;
    /** `2.0`. */
    jsonrpc: string;
    /** What is asked for; absent from answers. */
    method?: string | null;
    /** What the method takes. */
    params?: {
      [key: string]: unknown;
    } | null;
  };
  /** What a run is asked for with. */
  RunAgentInput: {
    /** The conversation so far. What is new of it is at its end. */
    messages: {
      [key: string]: unknown;
    }[];
    /** What the client calls the run. The same name is the same run. */
    runId: string;
    /** The conversation: the id of a session, or what the client calls it. */
    threadId: string;
  };
  /** The parameters of a run that belongs to no session. */
  RunBody: {
    /** The value of `input`; the spec's own where absent. */
    input?: unknown;
    options?: Schemas["RunOptions"] | null;
    /** A workflow: an object, or a text that holds one as JSON. */
    spec: {
      [key: string]: unknown;
    } | string;
  };
  /** Leaves of a run, by state. */
  RunCounts: {
    /** Cancelled by someone, or because a sibling failed. */
    cancelled: number;
    /** Succeeded. */
    completed: number;
    /** Failed, including tolerated ones. */
    failed: number;
    /** Known so far: a fan-out counts once it is expanded. */
    leaves: number;
    /** In flight. */
    live: number;
    /** Skipped. */
    skipped: number;
  };
  /** Options of a run in addition to its spec, fixed when it is created. */
  RunOptions: {
    /** Restricts every leaf's tools to those with these names: a run never has more tools than its caller. */
    allow?: string[] | null;
    /** At least how every leaf is isolated. */
    isolation?: Schemas["Isolation"];
    /** Maximum number of leaves in flight. */
    max_concurrency?: number | null;
    /** Tokens that all its sends together may use; the smaller of this and the spec's counts. */
    max_tokens?: number | null;
    /** The workers that every leaf runs on: a run stays in the pool of the agent that started it. */
    pool?: string | null;
    /** The limit set by a retry; it replaces all others. */
    raised_tokens?: number | null;
  };
  /** Where a run stands. */
  RunStatus: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled";
  /** A run as the API shows it. */
  RunView: {
    /** The published agents that its spec names, with the versions that it has. */
    agents?: {
      [key: string]: Schemas["AgentRef"];
    };
    /** Counts retries, from 1. */
    attempt: number;
    /** The number of leaves, by state. */
    counts: Schemas["RunCounts"];
    /** When it was created. */
    created_at: string;
    error?: Schemas["Failure"] | null;
    /** When it became final. */
    finished_at?: string | null;
    /** Its identity. */
    id: string;
    /** The value of `input`. */
    input: unknown;
    /** The spec's name. */
    name: string;
    /** The options of its creator. */
    options: Schemas["RunOptions"];
    /** Since when it starts no leaf; absent unless it is paused. */
    paused_at?: string;
    /** The output of the root node. */
    result?: unknown;
    /** The session it belongs to. */
    session_id?: string | null;
    /** The skills that its spec names, with the versions that it has. */
    skills?: {
      [key: string]: string;
    };
    /** When a scheduler first advanced it. */
    started_at?: string | null;
    /** Where it stands. */
    status: Schemas["RunStatus"];
    /** The sum over all attempts of its settled leaves. */
    usage: Schemas["Usage"];
  };
  /** What an autoscaler of one pool needs. */
  ScalingStats: {
    /** Worker slots needed to serve everything concurrently: `ready + running`. */
    demand: number;
    /** Sessions with work and no live owner. */
    ready: number;
    /** Sessions that a worker holds. */
    running: number;
  };
  /** What a key allows. `admin` includes the others, except `operate`. */
  Scope: "read" | "use" | "define" | "send" | "answer" | "manage" | "admin" | "operate";
  /** A secret, without its value, which is never shown. */
  Secret: {
    /** The origins that it may be sent to; empty if the server has lost the key that it was sealed with. */
    hosts: string[];
    /** The name that tools use. */
    name: string;
    /** When it was set. */
    set_at: string;
  };
  /** A secret to set. It is stored sealed, and never shown again. */
  SecretBody: {
    /**
     * Where it may be sent: hosts like `api.example`, which stands for `https://api.example`, or origins like
     * `https://api.example:8443`. For a client of OAuth also that of the authorization server.
     */
    hosts: string[];
    /** The value: visible ASCII characters and blanks. */
    value: string;
  };
  /** A send to a session that exists or is created with it. */
  SendAnywhereBody: {
    input: string | Schemas["InputPart"][];
    options?: Schemas["SendOptions"] | null;
    session?: Schemas["SendSession"] | null;
    /** A session that exists. */
    session_id?: string | null;
  };
  /** A send to a session in the path. */
  SendBody: {
    input: string | Schemas["InputPart"][];
    options?: Schemas["SendOptions"] | null;
  };
  /** The options of a send. */
  SendOptions: {
    /**
     * A published agent for this send only, instead of its session's: `NAME`, `NAME@VERSION` or `NAME@ALIAS`. A plain
     * name is its newest version when the send is accepted.
     */
    agent?: string | null;
    budget?: Schemas["Budget"] | null;
    /** From acceptance to the end. */
    deadline?: string | null;
    /** From acceptance until it has a position in the session. */
    delay?: string | null;
    /** Replaces the agent's limit on rounds. */
    max_rounds?: number | null;
    /** Replaces the agent's limit on the tokens of one answer. */
    max_tokens?: number | null;
    /**
     * What you note about it: at most 16 KiB of JSON, which no model is shown. Lists of sends can be filtered by it. A
     * message that joins a send that is there keeps none.
     */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** Replaces the agent's model. */
    model?: string | null;
    /** Further members of model requests: an object of at most 16 KiB of JSON. Replaces the agent's. */
    model_options?: {
      [key: string]: unknown;
    } | null;
    /**
     * `enqueue` (the default), `coalesce`, `steer`, `interrupt` or `reject`.
     * @enum {string|null}
     */
    on_busy?: "enqueue" | "coalesce" | "steer" | "interrupt" | "reject" | null;
    /**
     * The schema of the answer: a JSON Schema, or `{name, schema, strict}`; `{"type": "json_object"}` for any JSON
     * object. Replaces the agent's.
     */
    output_schema?: {
      [key: string]: unknown;
    } | null;
    /** Replaces the agent's: whether one answer may have several calls. */
    parallel_tool_calls?: boolean | null;
    /** `high` (the default) or `low`; a number from -100 to 100 is read as `low` below 0. */
    priority?: ("high" | "low") | number | null;
    reasoning_effort?: Schemas["ReasoningEffort"] | null;
    /** Replaces the agent's system prompt. */
    system_prompt?: string | null;
    /** Replaces the agent's. */
    temperature?: number | null;
    tool_choice?: Schemas["ToolChoice"] | null;
    /** Narrows the agent's tools to those with these names. */
    tools?: string[] | null;
    /** Replaces the agent's. */
    top_p?: number | null;
    /** Values of the variables that the prompt of `agent` declares. */
    variables?: {
      [key: string]: unknown;
    } | null;
  };
  /** The target of a send: the fields of a new session, or the id of an existing one. */
  SendSession: {
    agent?: null | string | Schemas["AgentSpec"];
    /** The data of a new session. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** A session that exists; excludes the others. */
    session_id?: string | null;
    /** Values of the variables that the new session's agent declares. */
    variables?: {
      [key: string]: unknown;
    } | null;
  };
  /** Where a send stands. */
  SendStatus: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled";
  /** A send as the API shows it. */
  SendView: {
    agent_ref?: Schemas["AgentRef"] | null;
    /** Model calls started in its current round. */
    attempts: number;
    /** When it was accepted. */
    created_at: string;
    error?: Schemas["Failure"] | null;
    /** When it became final. */
    finished_at?: string | null;
    /** Its identity. */
    id: string;
    memory?: Schemas["MemoryView"] | null;
    /** What its sender noted about it; absent if nothing. */
    metadata?: {
      [key: string]: unknown;
    };
    /** The final answer's value, if there is an output schema. */
    output?: unknown;
    /** The final answer's text. */
    output_text?: string | null;
    /** Its position in the session. */
    position?: number | null;
    /** Rounds that are durable. */
    rounds: number;
    /** Its session. */
    session_id: string;
    /** When a worker first took it. */
    started_at?: string | null;
    /** Where it stands. */
    status: Schemas["SendStatus"];
    stop_reason?: Schemas["StopReason"] | null;
    /** The sum over its model calls. */
    usage: Schemas["Usage"];
    waiting_on?: Schemas["WaitingOn"] | null;
    /**
     * Names in the `tools` of the session's agent that no worker of its pool has; only for a session that is
     * created with the send.
     */
    warnings?: Schemas["ToolFault"][];
  };
  /** Changes of a session; absent members stay as they are. */
  SessionChangeBody: {
    agent?: null | string | Schemas["AgentSpec"];
    /** Closes the session for new sends, or reopens it. */
    closed?: boolean | null;
    /**
     * Replaces the metadata. The agent's prompt stays as it was made, unless the agent or its variables are
     * given too.
     */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /**
     * Replaces the values of the agent's variables. If absent, previous values are kept as far as a new agent declares
     * them.
     */
    variables?: {
      [key: string]: unknown;
    } | null;
  };
  /** The lists that a session's agent keeps. */
  SessionLists: {
    /** The board of its tree of agents. */
    board: Schemas["ListEntry"][];
    /** Its notes. */
    notes: Schemas["ListEntry"][];
    /** Its to-do list. */
    todo: Schemas["ListEntry"][];
  };
  /** The status of a session. Derived from its hot row and its sends, never stored. */
  SessionStatus: "idle" | "queued" | "running" | "waiting" | "closed";
  /** A token for one session. */
  SessionToken: {
    /** From when on it is refused. */
    expires_at: string;
    /** What it allows. */
    scopes: Schemas["Scope"][];
    /** The only session that it reaches. */
    session_id: string;
    /** What to send as `Authorization: Bearer …`. It is stored nowhere. */
    token: string;
  };
  /** The cost of a session, as far as its sends are still stored. */
  SessionUsageView: {
    /** Its own model calls. */
    own: Schemas["UsageView"];
    /** The session and those below it. */
    sessions: number;
    /** Those, and the calls of the sessions below it: its children's, and those of its runs' leaves. */
    tree: Schemas["UsageView"];
  };
  /** A session as the API shows it. */
  SessionView: {
    /** The current agent. */
    agent: Schemas["AgentSpec"];
    agent_ref?: Schemas["AgentRef"] | null;
    /** Counts changes of the agent, from 1. */
    agent_version: number;
    /** When it was created. */
    created_at: string;
    /** The `seq` of the first of them: 1, or higher once older ones were pruned. */
    first_seq: number;
    /** Its identity. */
    id: string;
    /** Messages in the transcript. */
    messages: number;
    /** The creator's data. */
    metadata: {
      [key: string]: unknown;
    };
    /** The session that created it as its child. */
    parent_id?: string | null;
    /** Where it stands. */
    status: Schemas["SessionStatus"];
    /** When its agent, metadata or lifecycle last changed. */
    updated_at: string;
    /** The values of its agent's variables that were set. */
    variables?: {
      [key: string]: unknown;
    };
    /** Tools that its agent names and no live worker of its pool has; in responses that show one session. */
    warnings?: Schemas["ToolFault"][];
  };
  /** The files of a skill, by their paths in its folder. */
  SkillBody: {
    /** Each path with the file's text, or with `{"base64": …}`. */
    files: {
      [key: string]: unknown;
    };
  };
  /** Something that is wrong with a skill. */
  SkillFault: {
    /** A message for people. */
    detail: string;
    /** The file that it is about; empty for the whole skill. */
    path?: string;
  };
  /** A file of a skill, without its content. */
  SkillFile: {
    /** Its length. */
    bytes: number;
    /** Whether it is placed into workspaces as a program: it starts with `#!`, or is under `scripts/`. */
    executable: boolean;
    /** Its path in the skill's folder. */
    path: string;
    /** The SHA-256 of its content. */
    sha256: string;
  };
  /** Skills by name. */
  SkillList: {
    data: Schemas["SkillSummary"][];
    /** The `cursor` of the next page; null at the end. */
    next_cursor?: string | null;
    /** The mounted skills that were left out, and why. */
    warnings: Schemas["SkillWarning"][];
  };
  /** Where a skill came from. */
  SkillSource: "uploaded" | "mounted";
  /** A skill in a list: what its name means now. */
  SkillSummary: {
    /** Their length together. */
    bytes: number;
    /** When the version was stored. */
    created_at: string;
    /** What it is for and when to use it. */
    description: string;
    /** The number of its files. */
    files: number;
    /** Its current version. */
    hash: string;
    /** Its name. */
    name: string;
    /** Where the version came from. */
    source: Schemas["SkillSource"];
  };
  /** A version in a list of versions. */
  SkillVersion: {
    /** When it was stored. */
    created_at: string;
    /** The version. */
    hash: string;
    /** Where it came from. */
    source: Schemas["SkillSource"];
  };
  /** A version of a skill. */
  SkillView: {
    /** The tools that it asks for: text, or a list. Information only. */
    allowed_tools?: {
      [key: string]: unknown;
    } | null;
    /** Its requirements on the environment. */
    compatibility?: string | null;
    /** When the version was stored. */
    created_at: string;
    /** What it is for and when to use it. */
    description: string;
    /** Its files in the byte order of their paths. */
    files: Schemas["SkillFile"][];
    /** The SHA-256 of its content: the version. */
    hash: string;
    /** Its licence. */
    license?: string | null;
    /** Its author's data. */
    metadata?: {
      [key: string]: unknown;
    } | null;
    /** Its name. */
    name: string;
    /** Where the version came from. */
    source: Schemas["SkillSource"];
    /** All versions of the name, newest first, at most a hundred; in answers that show one skill. */
    versions?: Schemas["SkillVersion"][];
    /** Deviations from the format that were accepted. */
    warnings: string[];
  };
  /** A mounted skill that was left out. */
  SkillWarning: {
    /** Why. */
    errors: Schemas["SkillFault"][];
    /** The folder that it is in. */
    name: string;
    /** When a process last said so. */
    seen_at: string;
  };
  /** The contents of a valid spec. */
  SpecSummary: {
    /** The names that its nodes have. */
    ids: string[];
    /** Its name. */
    name: string;
    /** The number of nodes, by type. */
    nodes: {
      [key: string]: number;
    };
  };
  /** A message for a running leaf. */
  SteerBody: {
    /** The message that it gets before its next round. */
    text: string;
  };
  /** A message that a person sent to the session of a running leaf. */
  Steered: {
    /** When the run took note of it. */
    at: string;
    /** The item in the session's inbox, which has its outcome. */
    item_id: string;
    /** The message, truncated if it is long. */
    text: string;
  };
  /** Where a send stands. */
  StepEvent: {
    /** When. */
    at: string;
    /** Its send. */
    id: string;
    /** Why it continues; with `send.resumed`. */
    reason?: string;
    /** Its send. */
    send_id: string;
    status: Schemas["SendStatus"];
    /** What it waits for; with `send.waiting`. */
    waiting_on?: string;
  };
  /** Why a final send ended. */
  StopReason: "end" | "length" | "round_limit" | "budget" | "policy" | "deadline" | "cancelled" | "provider_error" | "context" | "tool_abort" | "worker_crash_limit" | "attempt_limit" | "internal";
  /** A tenant. */
  Tenant: {
    /** When it was created. */
    created_at: string;
    /** Since when it is being erased, if it is. */
    erasing_at?: string | null;
    /** `ten_` and a number. */
    id: string;
    /** What it may use. */
    limits: Schemas["Limits"];
    /** Unique among tenants. */
    name: string;
    /** Worker pools that it may name. */
    pools: Schemas["Pools"];
    /** For how long what it has is kept. */
    retention: Schemas["Retention"];
    /** Scheduling weight relative to other tenants, 1 to 1000, while several have sessions waiting. */
    weight: number;
  };
  /** Changes of a tenant; absent members stay as they are. */
  TenantChangeBody: {
    limits?: Schemas["Limits"] | null;
    /** At most 100 characters, unique among tenants. */
    name?: string | null;
    pools?: Schemas["Pools"] | null;
    retention?: Schemas["Retention"] | null;
    /** Scheduling weight relative to other tenants, from 1 to 1000. */
    weight?: number | null;
  };
  /** How far the erasure of a tenant is. */
  TenantErasure: {
    /** When it began. */
    begun_at: string;
    /** Blobs that are still to be removed with their bytes. */
    blobs_left: number;
    /** What the erasure itself does not reach, and what becomes of it. */
    elsewhere: string[];
    /** When nothing was left. */
    ended_at?: string | null;
    /** What could not be removed at the last attempt; it is retried. */
    failed?: string | null;
    /** Rows that were removed, by table. */
    removed: {
      [key: string]: number;
    };
    /** `erasing`, or `erased` once nothing of it is left. */
    status: string;
    /** `ten_` and a number, which is not used again. */
    tenant: string;
  };
  /** One day. */
  TenantUsageDay: Schemas["TenantUsageSpan"] & {
    /** When it began. */
    day: string;
  };
  /** What sends used. */
  TenantUsageSpan: {
    /** Their model responses, including incomplete ones. */
    calls: number;
    /** Sends that are still stored. */
    sends: number;
    /** What these cost. */
    usage: Schemas["Usage"];
  };
  /** What a tenant used. */
  TenantUsageView: {
    /** Bytes of its blobs now. */
    blob_bytes: number;
    /** Each day, today first. A send counts on the day on which it was accepted, in UTC, with all it cost. */
    days: Schemas["TenantUsageDay"][];
    /** All of these days together. */
    total: Schemas["TenantUsageSpan"];
  };
  /** Plain text. */
  TextPart: {
    /** The text, without U+0000. */
    text: string;
    type: "text";
  };
  /** How much an agent's model may think. */
  ThinkingSpec: {
    /** Tokens of one answer that may be thought, at least 1024 and fewer than `max_tokens`. */
    budget_tokens: number;
  };
  /** Timers to create in one request. */
  TimerBatchBody: {
    /** At most 1000. */
    timers: Schemas["BatchTimer"][];
  };
  /** The outcome of one item: it has either `timer` or `problem`. */
  TimerBatchResult: {
    problem?: Schemas["Problem"] | null;
    /** The status that the item alone would have been answered with. */
    status: number;
    timer?: Schemas["TimerView"] | null;
  };
  /** The schema of an answer. */
  TimerBatchResults: {
    /** One per item, in order. */
    results: Schemas["TimerBatchResult"][];
  };
  /** A timer to create. */
  TimerBody: {
    /** How long from now: once, or with `every` the first time. */
    after?: string | null;
    /** When it is due: once, or with `every` the first time. */
    at?: string | null;
    catch_up?: Schemas["CatchUp"] | null;
    /** A cron expression: five fields starting with minutes, or six with seconds first. */
    cron?: string | null;
    /** A fixed rate, at least `1s`. */
    every?: string | null;
    input?: string | Schemas["InputPart"][];
    /** Each occurrence is delayed by less than this; at most `1d`. */
    jitter?: string | null;
    /** Maximum number of occurrences. */
    max_occurrences?: number | null;
    on_busy?: Schemas["Merge"] | null;
    options?: Schemas["SendOptions"] | null;
    run?: Schemas["RunBody"] | null;
    /** The session that it sends to, under that session's own agent. */
    session_id?: string | null;
    /** The calendar's time zone, such as `Europe/Berlin`; `UTC` when absent. */
    timezone?: string | null;
    /** Nothing is due after this. */
    until?: string | null;
  };
  /**
   * Changes of a timer; absent members stay as they are. A new schedule is given whole and counts from now; the same
   * schedule once more changes nothing, except for `after` alone, which begins anew.
   */
  TimerChangeBody: {
    /** How long from now: once, or with `every` the first time. */
    after?: string | null;
    /** When it is due: once, or with `every` the first time. */
    at?: string | null;
    catch_up?: Schemas["CatchUp"] | null;
    /** A cron expression: five fields starting with minutes, or six with seconds first. */
    cron?: string | null;
    /** A fixed rate, at least `1s`. */
    every?: string | null;
    input?: string | Schemas["InputPart"][];
    /** Each occurrence is delayed by less than this; at most `1d`; null: not at all. */
    jitter?: string | null;
    /** Maximum number of occurrences, those that it had included; null: as many as there are. */
    max_occurrences?: number | null;
    on_busy?: Schemas["Merge"] | null;
    /** The calendar's time zone, such as `Europe/Berlin`; `UTC` when absent. Only with `cron`. */
    timezone?: string | null;
    /** Nothing is due after this; null: for good. */
    until?: string | null;
  };
  /** The parameters of a timer's runs; they are validated when the timer is created. */
  TimerRun: {
    /** The version of the language it is written in. */
    dsl_version: number;
    /** The value of `input`. */
    input: unknown;
    /** The spec's name. */
    name: string;
    /** Options of each run in addition to the spec. */
    options: Schemas["RunOptions"];
    /** The spec in its canonical form. */
    spec: {
      [key: string]: unknown;
    };
  };
  /** Where a timer stands. */
  TimerStatus: "armed" | "paused" | "done" | "cancelled" | "dead";
  /** A timer as the API shows it. */
  TimerView: {
    /** How long after its creation it is due: once, or the first time. */
    after?: string | null;
    agent_ref?: Schemas["AgentRef"] | null;
    /** When it is due: once, or the first time. */
    at?: string | null;
    /** What to do with missed occurrences. */
    catch_up: Schemas["CatchUp"];
    /** When it was created. */
    created_at: string;
    /** The calendar. */
    cron?: string | null;
    /** When it ended. */
    ended_at?: string | null;
    error?: Schemas["Failure"] | null;
    /** The interval of a fixed rate. */
    every?: string | null;
    /** Failed deliveries of the next occurrence. */
    failures: number;
    /** Its identity. */
    id: string;
    /** What it says there. */
    input?: Schemas["ContentPart"][] | null;
    /** Each occurrence is delayed by less than this. */
    jitter?: string | null;
    /** When an occurrence last got its fate. */
    last_fired_at?: string | null;
    /** The run that it started last. */
    last_run_id?: string | null;
    /** The send of the last occurrence that had one. */
    last_send_id?: string | null;
    /** Maximum number of occurrences. */
    max_occurrences?: number | null;
    /** When the next occurrences fire, at most five. */
    next: string[];
    /** Occurrences that have an outcome. */
    occurrences: number;
    /** What to do with an occurrence while the previous one's send is still queued. */
    on_busy: Schemas["Merge"];
    options?: Schemas["SendOptions"] | null;
    run?: Schemas["TimerRun"] | null;
    /** The session that it sends to. */
    session_id?: string | null;
    /** Where it stands. */
    status: Schemas["TimerStatus"];
    /** The calendar's time zone. */
    timezone?: string | null;
    /** Nothing is due after this. */
    until?: string | null;
    /** When it last changed. */
    updated_at: string;
  };
  /** What became of one. */
  ToldClaim: {
    /** The call. */
    call_id: string;
    /** Until when nobody else gets the call, if it is `held`. */
    claimed_until?: string | null;
    /**
     * What became of a claim. `lost`: someone else has the call, or nobody. `locked`: another transaction has held its session
     * for long; try again later.
     */
    status: "held" | "released" | "lost" | "already_settled" | "not_waiting" | "unknown" | "locked";
  };
  /** What became of claims, in order. */
  ToldClaims: {
    claims: Schemas["ToldClaim"][];
  };
  /** A function that the model asked for. */
  ToolCall: {
    /** How many of the message's parts came before the call; all of them when absent. */
    after?: number | null;
    /** The arguments: the model's JSON text, or that text as a string when it is not JSON. */
    arguments: unknown;
    attached?: Schemas["CallAttached"] | null;
    /** Unique within the session; assigned by Mainspring, because models repeat or omit theirs. */
    id: string;
    /** The tool's name as the model wrote it. */
    name: string;
  };
  /** Whether a model must call tools: `auto`, `none`, `required`, or `{"name": TOOL}`. */
  ToolChoice: "auto" | "none" | "required" | {
    /** It must call the one with this name, in the first round of a send. */
    name: string;
  };
  /** How the model is shown the older results of a tool, of all but the newest. */
  ToolContext: "preserve" | "truncate" | "archive" | "summary";
  /** One entry of `agent.tools`. */
  ToolEntry: string | Schemas["DeclaredTool"];
  /** What is wrong with a list of tools. */
  ToolFault: {
    /** What is wrong with it. */
    detail: string;
    /** Where, as a JSON pointer below the list. */
    pointer: string;
  };
  /** What a name stands for. */
  ToolKind: "tool" | "mcp_server";
  /** The names that agents can use in `tools`. */
  ToolView: {
    /** What it does, in a line. */
    description: string;
    /**
     * Whether it is a tool, or an MCP server whose tools an entry `{"type": "mcp", "server": NAME}`
     * brings.
     */
    kind: Schemas["ToolKind"];
    /** Its name. */
    name: string;
    /** The pools whose workers have it. */
    pools: string[];
    /** The presets that hold it. */
    presets: string[];
  };
  /** Tokens and cost of one model response, or the sum of several. */
  Usage: {
    /** The part of `input_tokens` that the provider's cache served. */
    cache_read_tokens?: number;
    /** The part of `input_tokens` that was written to the provider's cache, if reported. */
    cache_write_tokens?: number;
    /** US dollars, if a price is known. */
    cost_usd?: number | null;
    /** True if the provider reported no usage and the numbers are estimates. */
    estimated?: boolean;
    /** Input tokens, including those from the provider's cache. */
    input_tokens: number;
    /** Output tokens, including reasoning. */
    output_tokens: number;
    /** The part of `output_tokens` that was reasoning. */
    reasoning_tokens?: number;
  };
  /** The cost of model calls. */
  UsageView: {
    /** Model responses, including incomplete ones. */
    calls: number;
    /** The same by model. */
    models: Schemas["ModelUsage"][];
    /** The same by the purpose of the model calls. */
    purposes: Schemas["PurposeUsage"][];
    /** Their total cost. */
    usage: Schemas["Usage"];
  };
  /** A spec to validate. */
  ValidateBody: {
    /** A workflow: an object, or a text that holds one as JSON. */
    spec: {
      [key: string]: unknown;
    } | string;
  };
  /** A call that waits for an answer. */
  WaitingCall: {
    /** The arguments. */
    arguments: unknown;
    asks?: Schemas["Asks"] | null;
    /** The id with which its result is posted. */
    call_id: string;
    /** Until when a program has it that claimed it; absent if none does. */
    claimed_until?: string | null;
    /** When an answer is too late. */
    deadline_at?: string | null;
    /** The tool's name. */
    name: string;
    /** Whether the call may be made again after a program that claimed it died. */
    repeat: Schemas["Repeat"];
    /** When it was asked. */
    requested_at: string;
    /** The send that asks. */
    send_id: string;
    /** The session of the call: the requested one, or one below it. */
    session_id: string;
    /** `human` or `tool`. */
    waiting_on: Schemas["WaitingOn"];
    /** `answer` takes any JSON, `permission` takes `{"approved": true | false, "note"?}`, `reply` what `asks` says. */
    wants: "answer" | "permission";
  };
  /** What a waiting send waits for. */
  WaitingOn: "tool" | "human" | "agent" | "run" | "timer" | "retry" | "recovery";
  /** Something went wrong with the model and was put right. */
  WarningEvent: {
    /** What went wrong. */
    code: string;
    /** What happened, or the provider's words, shortened. */
    message?: string;
    /** The model. */
    model?: string;
    /** The part of the request that the provider refused. */
    part?: string;
    /** The provider's configured name. */
    provider?: string;
    /** The round. */
    round: number;
    /** Its send. */
    send_id: string;
  };
  /** A webhook. */
  Webhook: {
    /** When it was created. */
    created_at: string;
    /** Whether it is disabled. */
    disabled: boolean;
    /** When it was disabled. */
    disabled_at?: string | null;
    /** Why it is disabled. */
    disabled_reason?: string | null;
    /** Event filters: types like `send.completed`, prefixes like `send.*`, or `*`. */
    events: string[];
    /** Its id. */
    id: string;
    /** Until when messages are also signed with the previous secret. */
    previous_until?: string | null;
    /**
     * The secret that verifies the signatures. Only in the response that creates or rotates it, and not in a repeated
     * one (`Idempotency-Replayed`).
     */
    secret?: string | null;
    /** Where events are posted. */
    url: string;
  };
  /** Changes of a webhook; absent members stay as they are. */
  WebhookChangeBody: {
    /** Whether it is disabled. Pending deliveries continue when it is enabled again. */
    disabled?: boolean | null;
    /** Its event filters. */
    events?: string[] | null;
    /** The new signing secret; messages are also signed with the previous one for 24 hours. */
    secret?: string | null;
    /** Where events are posted. */
    url?: string | null;
  };
  /** A delivery: one event on its way to one webhook. */
  WebhookDelivery: {
    /** The HTTP status of the last answer. */
    answer?: number | null;
    /** Attempts so far. */
    attempts: number;
    /** What went wrong last. */
    error?: string | null;
    /** The event's id, which is the header `webhook-id` of every attempt. */
    id: string;
    /** When the next attempt is due, or when the one in flight times out. */
    next_attempt_at?: string | null;
    /** When it was delivered or given up. */
    settled_at?: string | null;
    /** The status of the delivery. */
    status: Schemas["DeliveryStatus"];
    /** The send, the run or the timer that it is about. */
    subject: string;
    /** When the event happened. */
    timestamp: string;
    /** The event's type. */
    type: string;
  };
  /** What happens when a note is added to a full list. */
  WhenFull: "reject" | "fifo";
  /** A preset or a tool of the workers, with additional options. */
  WorkerTool: {
    /** Whether a person has to approve each call. */
    approval?: boolean;
    /** A preset (`core`, `explore`, `full`) or the name of a tool that the workers have. */
    name: string;
    /** The workers that sends of an agent with it run on. */
    pool?: string | null;
    type: "worker";
  };
  /** A live worker. */
  WorkerView: {
    /** Maximum number of sends in flight. */
    concurrency: number;
    /** One lifetime of the process. */
    id: string;
    /** Sends it had in flight at its last renewal. */
    in_flight: number;
    /** When it counts as dead unless it renews. */
    lease_until: string;
    /** Its label. */
    name: string;
    /** The pool it serves. */
    pool: string;
    /**
     * Which version of what processes say to each other its program speaks; 0 for a release that did not note it. Two
     * of them are two releases.
     */
    protocol: number;
    /** When it began. */
    started_at: string;
  };
}
