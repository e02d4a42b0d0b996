// Made by scripts/generate.mjs from docs/openapi.json. Do not edit.

import type { RequestOptions } from "../transport.js";
import type { Schemas } from "./schemas.js";

/** A body that is not JSON. */
export type Body = string | Uint8Array<ArrayBuffer> | Blob;

/** Every operation of the API, by its name in the description. */
export interface Operations {
  /** Cancels a send that waits for recovery */
  abortSession(args: { id: string }, options?: RequestOptions): Promise<Schemas["SendView"]>;
  /** With `:cancel` behind its id cancels a task, with `:subscribe` streams it */
  actOnA2aTask(args: { agent: string; task: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Adds what was said elsewhere to a conversation, without an answer */
  addOpenAiItems(args: { id: string; body: Schemas["OpenAiItemsBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Replaces a node's result; nodes that depend on it run again */
  amendNode(args: { id: string; path: string; wait?: string; body: Schemas["AmendBody"] }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Archives an agent: existing sessions keep it; new ones cannot use it */
  archiveAgent(args: { name: string }, options?: RequestOptions): Promise<Schemas["NamedAgent"]>;
  /** Cancels a node, whose path is percent-encoded, and everything below it */
  cancelNode(args: { id: string; path: string; wait?: string }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Cancels a response */
  cancelOpenAiResponse(args: { id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Cancels a run and everything below it */
  cancelRun(args: { id: string; wait?: string; body?: Schemas["CancelRunBody"] }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Cancels the runs that a list with the same parameters shows, of those that have not ended */
  cancelRuns(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["RunStatus"]; name?: string; metadata?: Record<string, string>; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<Schemas["ActedResults"]>;
  /** Cancels a send: at once, or at its worker's next safe point */
  cancelSend(args: { id: string; wait?: string }, options?: RequestOptions): Promise<Schemas["SendView"]>;
  /** Cancels the sends that a list with the same parameters shows, of those that have not ended */
  cancelSends(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["SendStatus"]; agent?: string; metadata?: Record<string, string>; text?: string; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<Schemas["ActedResults"]>;
  /** Cancels a timer; sends that it created continue */
  cancelTimer(args: { id: string }, options?: RequestOptions): Promise<Schemas["TimerView"]>;
  /** Replaces the text, the metadata or the end of an entry */
  changeMemory(args: { id: string; body: Schemas["MemoryChangeBody"] }, options?: RequestOptions): Promise<Schemas["MemoryEntry"]>;
  /** Replaces the metadata of a conversation */
  changeOpenAiConversation(args: { id: string; body: Schemas["OpenAiConversationChangeBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Replaces the agent or the metadata, closes or reopens */
  changeSession(args: { id: string; body: Schemas["SessionChangeBody"] }, options?: RequestOptions): Promise<Schemas["SessionView"]>;
  /** Changes a tenant's name or limits; schedulers follow within seconds */
  changeTenant(args: { id: string; body: Schemas["TenantChangeBody"] }, options?: RequestOptions): Promise<Schemas["Tenant"]>;
  /** Changes what a timer says and when it is due */
  changeTimer(args: { id: string; body: Schemas["TimerChangeBody"] }, options?: RequestOptions): Promise<Schemas["TimerView"]>;
  /** Takes on calls of external tools: nobody else gets them while the claims last */
  claimCalls(args: { wait?: string; body: Schemas["ClaimBody"] }, options?: RequestOptions): Promise<Schemas["ClaimedCalls"]>;
  /** Refused: push notifications are not supported */
  createA2aPushConfig(args: { agent: string; task: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Stores the body under its SHA-256: 201, or 200 if it was stored before */
  createBlob(args: { body: Body }, options?: RequestOptions): Promise<Schemas["BlobRef"]>;
  /** Creates an API key; its token is in this response only */
  createKey(args: { body: Schemas["NewKeyBody"] }, options?: RequestOptions): Promise<Schemas["ApiKey"]>;
  /** Enters an entry */
  createMemory(args: { body: Schemas["NewMemoryBody"] }, options?: RequestOptions): Promise<Schemas["MemoryEntry"]>;
  /** Answers like OpenAI's Chat Completions API, with a send */
  createOpenAiChatCompletion(args: { body: Schemas["OpenAiChatBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Creates a conversation: a session in OpenAI's form */
  createOpenAiConversation(args?: { body?: Schemas["OpenAiConversationBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Computes vectors like OpenAI's Embeddings API, with the workers' model for them */
  createOpenAiEmbedding(args: { body: Schemas["OpenAiEmbeddingBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Answers like OpenAI's Responses API, with a send: at once, at its end, or with its events */
  createOpenAiResponse(args: { body: Schemas["OpenAiResponseBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Starts a workflow: 202, or 200 if it ends within `wait`; 422 with all problems of its spec */
  createRun(args: { wait?: string; body: Schemas["NewRunBody"] }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Accepts a send to a session that exists or is created with it */
  createSend(args: { wait?: string; body: Schemas["SendAnywhereBody"] }, options?: RequestOptions): Promise<Schemas["AcceptedSend"]>;
  /** Accepts a send: 202, or 200 if it ends within `wait` */
  createSendInSession(args: { id: string; wait?: string; body: Schemas["SendBody"] }, options?: RequestOptions): Promise<Schemas["AcceptedSend"]>;
  /** Accepts or rejects each of up to 1000 sends */
  createSends(args: { body: Schemas["BatchBody"] }, options?: RequestOptions): Promise<Schemas["BatchResults"]>;
  /** Creates a session, or returns the one with its `key` */
  createSession(args?: { body?: Schemas["NewSessionBody"] }, options?: RequestOptions): Promise<Schemas["SessionView"]>;
  /** Creates a tenant */
  createTenant(args: { body: Schemas["NewTenantBody"] }, options?: RequestOptions): Promise<Schemas["Tenant"]>;
  /** Creates a timer */
  createTimer(args: { body: Schemas["TimerBody"] }, options?: RequestOptions): Promise<Schemas["TimerView"]>;
  /** Creates or rejects each of up to 1000 timers */
  createTimers(args: { body: Schemas["TimerBatchBody"] }, options?: RequestOptions): Promise<Schemas["TimerBatchResults"]>;
  /** Makes a token with which a page of a browser uses one session for a while */
  createToken(args: { body: Schemas["NewTokenBody"] }, options?: RequestOptions): Promise<Schemas["SessionToken"]>;
  /** Creates a webhook; its secret is in this response only */
  createWebhook(args: { body: Schemas["NewWebhookBody"] }, options?: RequestOptions): Promise<Schemas["Webhook"]>;
  /** Refused: push notifications are not supported */
  deleteA2aPushConfig(args: { agent: string; task: string; config: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Deletes an entry */
  deleteMemory(args: { id: string }, options?: RequestOptions): Promise<void>;
  /** Deletes a conversation with all that was said in it */
  deleteOpenAiConversation(args: { id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Deletes a response with its conversation, if nothing else was said in it */
  deleteOpenAiResponse(args: { id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Removes the tenant's key for a provider: its calls are made with the operator's again */
  deleteProviderKey(args: { provider: string }, options?: RequestOptions): Promise<void>;
  /** Removes a secret: tools that name it are not called any more */
  deleteSecret(args: { name: string }, options?: RequestOptions): Promise<void>;
  /** Cancels its open sends and removes its transcript */
  deleteSession(args: { id: string }, options?: RequestOptions): Promise<void>;
  /** Deletes the sessions that a list with the same parameters shows */
  deleteSessions(args?: { limit?: number; cursor?: string; status?: Schemas["SessionStatus"]; agent?: string; metadata?: Record<string, string>; key?: string; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<Schemas["ActedResults"]>;
  /** Takes a skill from the list; sessions keep the version that they have */
  deleteSkill(args: { name: string; versions?: boolean }, options?: RequestOptions): Promise<void>;
  /** Deletes a tenant without sessions and runs, and revokes its keys */
  deleteTenant(args: { id: string }, options?: RequestOptions): Promise<void>;
  /** Deletes a webhook; what was on its way to it is not delivered */
  deleteWebhook(args: { id: string }, options?: RequestOptions): Promise<void>;
  /** The differences between two versions: `to`, by default the newest, and `from`, by default the one before */
  diffAgent(args: { name: string; from?: string; to?: string }, options?: RequestOptions): Promise<Schemas["AgentDiff"]>;
  /** Erases a namespace with all below it; what remains is a record of when and how many, without names */
  eraseMemories(args?: { namespace?: string }, options?: RequestOptions): Promise<Schemas["ErasedView"]>;
  /** Erases a tenant: ends its work, and removes all its data in the background */
  eraseTenant(args: { id: string; body: Schemas["EraseTenantBody"] }, options?: RequestOptions): Promise<Schemas["TenantErasure"]>;
  /** The run with its spec, its nodes and its events */
  exportRun(args: { id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /**
   * An archive: a header line, a line per message, lines with the blobs that they name, and a line with counts
   * and a SHA-256 of the preceding lines
   */
  exportSession(args: { id: string; blobs?: boolean }, options?: RequestOptions): Promise<Response>;
  /** Fires a timer's next occurrence now */
  fireTimer(args: { id: string; body: Schemas["FireTimerBody"] }, options?: RequestOptions): Promise<Schemas["TimerView"]>;
  /** Creates a session with a copy of this transcript, up to a seq where every call has its result */
  forkSession(args: { id: string; body?: Schemas["ForkBody"] }, options?: RequestOptions): Promise<Schemas["SessionView"]>;
  /** The card of a published agent */
  getA2aCard(args: { agent: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Refused: an agent has no other card than the one that everyone sees who may see it */
  getA2aExtendedCard(args: { agent: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Refused: push notifications are not supported */
  getA2aPushConfig(args: { agent: string; task: string; config: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** A task, or with `:subscribe` behind its id the stream of it */
  getA2aTask(args: { agent: string; task: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** What an error code means and what to do about it */
  getAdvice(args: { code: string }, options?: RequestOptions): Promise<string>;
  /** A published agent, archived or not */
  getAgent(args: { name: string }, options?: RequestOptions): Promise<Schemas["NamedAgent"]>;
  /** A version of an agent */
  getAgentVersion(args: { name: string; n: number }, options?: RequestOptions): Promise<Schemas["AgentVersion"]>;
  /** The content of a blob, or the part that `Range` names */
  getBlob(args: { sha256: string }, options?: RequestOptions): Promise<Response>;
  /** The whole output of a tool call */
  getCallOutput(args: { id: string; call_id: string }, options?: RequestOptions): Promise<string>;
  /** Versions of this server and its database, and who asks */
  getInfo(args?: Record<string, never>, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** An API key, revoked or not */
  getKey(args: { id: string }, options?: RequestOptions): Promise<Schemas["ApiKey"]>;
  /** The process runs */
  getLive(args?: Record<string, never>, options?: RequestOptions): Promise<string>;
  /** An entry */
  getMemory(args: { id: string }, options?: RequestOptions): Promise<Schemas["MemoryEntry"]>;
  /** Figures in the Prometheus text format */
  getMetrics(args?: Record<string, never>, options?: RequestOptions): Promise<string>;
  /** A chat completion that has ended */
  getOpenAiChatCompletion(args: { id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** A conversation */
  getOpenAiConversation(args: { id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Something that was said in a conversation */
  getOpenAiItem(args: { id: string; item_id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** A published agent or a model */
  getOpenAiModel(args: { id: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** A response as it is now, or the stream of its events */
  getOpenAiResponse(args: { id: string; stream?: boolean; starting_after?: number }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** This description */
  getOpenApi(args?: Record<string, never>, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** What clients of the Model Context Protocol are told of keys */
  getProtectedResource(args?: Record<string, never>, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** The same, where clients look for it first */
  getProtectedResourceOfMcp(args?: Record<string, never>, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Waiting and running sends by pool */
  getQueue(args?: Record<string, never>, options?: RequestOptions): Promise<{ data: (Schemas["PoolView"])[]; next_cursor: string | null }>;
  /** Requests can be served */
  getReady(args?: Record<string, never>, options?: RequestOptions): Promise<string>;
  /** A run, at once or after its end */
  getRun(args: { id: string; wait?: string }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Metrics for autoscaling */
  getScaling(args: { pool: string }, options?: RequestOptions): Promise<Schemas["ScalingStats"]>;
  /** A secret, without its value */
  getSecret(args: { name: string }, options?: RequestOptions): Promise<Schemas["Secret"]>;
  /** A send, at once or after its end */
  getSend(args: { id: string; wait?: string }, options?: RequestOptions): Promise<Schemas["SendView"]>;
  /** A session */
  getSession(args: { id: string }, options?: RequestOptions): Promise<Schemas["SessionView"]>;
  /**
   * The request of a session's next model call: that of its first send that is not final, else everything before the
   * next input
   */
  getSessionContext(args: { id: string; request?: boolean }, options?: RequestOptions): Promise<Schemas["Preview"]>;
  /** The to-do list, the notes and the board that a session's agent works with */
  getSessionLists(args: { id: string }, options?: RequestOptions): Promise<Schemas["SessionLists"]>;
  /** The cost of its model calls, and of those of the sessions below it, by model */
  getSessionUsage(args: { id: string }, options?: RequestOptions): Promise<Schemas["SessionUsageView"]>;
  /** A skill: `NAME` means its current version, `NAME@HASH` that version */
  getSkill(args: { name: string }, options?: RequestOptions): Promise<Schemas["SkillView"]>;
  /** The content of a file of a skill */
  getSkillFile(args: { name: string; path: string }, options?: RequestOptions): Promise<string>;
  /** A tenant */
  getTenant(args: { id: string }, options?: RequestOptions): Promise<Schemas["Tenant"]>;
  /** How far the erasure of a tenant is, also after its end */
  getTenantErasure(args: { id: string }, options?: RequestOptions): Promise<Schemas["TenantErasure"]>;
  /** A tenant's usage by day, from sends that are still stored */
  getTenantUsage(args: { id: string; days?: number }, options?: RequestOptions): Promise<Schemas["TenantUsageView"]>;
  /** A timer with its next five times */
  getTimer(args: { id: string }, options?: RequestOptions): Promise<Schemas["TimerView"]>;
  /** A webhook */
  getWebhook(args: { id: string }, options?: RequestOptions): Promise<Schemas["Webhook"]>;
  /** The JSON Schema of specs */
  getWorkflowSchema(args?: Record<string, never>, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Creates a session from an archive */
  importSession(args: { body: Body }, options?: RequestOptions): Promise<Schemas["SessionView"]>;
  /** Refused: push notifications are not supported */
  listA2aPushConfigs(args: { agent: string; task: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** The tasks of an agent, newest first */
  listA2aTasks(args: { agent: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** The versions of an agent, newest first */
  listAgentVersions(args: { name: string; limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["AgentVersion"])[]; next_cursor: string | null }>;
  /** Published agents, by name */
  listAgents(args?: { limit?: number; cursor?: string; archived?: boolean }, options?: RequestOptions): Promise<{ data: (Schemas["NamedAgent"])[]; next_cursor: string | null }>;
  /** Calls of all sessions that wait for a person or a client, the longest waiting first */
  listCalls(args?: { limit?: number; cursor?: string; waiting_on?: "human" | "tool"; name?: string; agent?: string }, options?: RequestOptions): Promise<{ data: (Schemas["WaitingCall"])[]; next_cursor: string | null }>;
  /** The sessions that a session's agent created, newest first */
  listChildren(args: { id: string; limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["SessionView"])[]; next_cursor: string | null }>;
  /** Erasures of namespaces, newest first: when, by whom and how many, without names or texts */
  listErasures(args?: { limit?: number; cursor?: string; namespace?: string }, options?: RequestOptions): Promise<{ data: (Schemas["Erasure"])[]; next_cursor: string | null }>;
  /** Messages and results for a busy session, with their outcomes */
  listInbox(args: { id: string; limit?: number; cursor?: string; fate?: "pending" }, options?: RequestOptions): Promise<{ data: (Schemas["InboxItem"])[]; next_cursor: string | null }>;
  /** The tenant's API keys, newest first, revoked ones included */
  listKeys(args?: { limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["ApiKey"])[]; next_cursor: string | null }>;
  /** Entries, newest first; with `q` the best matching ones of a namespace, best first */
  listMemories(args?: { limit?: number; cursor?: string; namespace?: string; q?: string }, options?: RequestOptions): Promise<{ data: (Schemas["MemoryEntry"])[]; next_cursor: string | null }>;
  /** The transcript by seq */
  listMessages(args: { id: string; limit?: number; cursor?: string; after?: number; folded?: boolean }, options?: RequestOptions): Promise<{ data: (Schemas["Entry"])[]; next_cursor: string | null }>;
  /** A run's nodes in the order in which they were reached */
  listNodes(args: { id: string; limit?: number; cursor?: string; prefix?: string }, options?: RequestOptions): Promise<{ data: (Schemas["NodeView"])[]; next_cursor: string | null }>;
  /** A timer's occurrences with their outcomes, newest first */
  listOccurrences(args: { id: string; limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["OccurrenceView"])[]; next_cursor: string | null }>;
  /** What was said to a response */
  listOpenAiInputItems(args: { id: string; after?: string; limit?: number; order?: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** What was said in a conversation */
  listOpenAiItems(args: { id: string; after?: string; limit?: number; order?: string }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** The published agents and the models that this key may use, in the form of OpenAI's API */
  listOpenAiModels(args?: Record<string, never>, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** What is paused: the tenant, its agents and tools; everything, for the operator */
  listPauses(args?: { limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["Pause"])[]; next_cursor: string | null }>;
  /** The providers for which the tenant has its own key */
  listProviderKeys(args?: { limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["ProviderKey"])[]; next_cursor: string | null }>;
  /** Runs, newest first */
  listRuns(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["RunStatus"]; name?: string; metadata?: Record<string, string>; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<{ data: (Schemas["RunView"])[]; next_cursor: string | null }>;
  /** The tenant's secrets, without their values */
  listSecrets(args?: { limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["Secret"])[]; next_cursor: string | null }>;
  /** Sends, newest first */
  listSends(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["SendStatus"]; agent?: string; metadata?: Record<string, string>; text?: string; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<{ data: (Schemas["SendView"])[]; next_cursor: string | null }>;
  /** Sessions, newest first */
  listSessions(args?: { limit?: number; cursor?: string; status?: Schemas["SessionStatus"]; agent?: string; metadata?: Record<string, string>; key?: string; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<{ data: (Schemas["SessionView"])[]; next_cursor: string | null }>;
  /** Skills by name */
  listSkills(args?: { limit?: number; cursor?: string }, options?: RequestOptions): Promise<Schemas["SkillList"]>;
  /** Tenants, by number */
  listTenants(args?: { limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["Tenant"])[]; next_cursor: string | null }>;
  /** Timers, newest first */
  listTimers(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["TimerStatus"]; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<{ data: (Schemas["TimerView"])[]; next_cursor: string | null }>;
  /** The names that agents can use in `tools`, as published by live and recent workers */
  listTools(args?: Record<string, never>, options?: RequestOptions): Promise<{ data: (Schemas["ToolView"])[]; next_cursor: string | null }>;
  /** Calls of the session, and of the sessions below it, that wait for a person or a client */
  listWaitingCalls(args: { id: string }, options?: RequestOptions): Promise<{ data: (Schemas["WaitingCall"])[]; next_cursor: string | null }>;
  /** Deliveries to a webhook, newest event first */
  listWebhookDeliveries(args: { id: string; limit?: number; cursor?: string; status?: Schemas["DeliveryStatus"] }, options?: RequestOptions): Promise<{ data: (Schemas["WebhookDelivery"])[]; next_cursor: string | null }>;
  /** The tenant's webhooks, newest first */
  listWebhooks(args?: { limit?: number; cursor?: string }, options?: RequestOptions): Promise<{ data: (Schemas["Webhook"])[]; next_cursor: string | null }>;
  /** Live workers */
  listWorkers(args?: Record<string, never>, options?: RequestOptions): Promise<{ data: (Schemas["WorkerView"])[]; next_cursor: string | null }>;
  /** Pauses the sends of an agent: they wait at the end of their round */
  pauseAgent(args: { name: string; body: Schemas["PauseBody"] }, options?: RequestOptions): Promise<Schemas["Pause"]>;
  /** Pauses a pool: its workers take no more work */
  pausePool(args: { name: string; body: Schemas["PauseBody"] }, options?: RequestOptions): Promise<Schemas["Pause"]>;
  /** Pauses a model provider for all tenants: it is not called */
  pauseProvider(args: { name: string; body: Schemas["PauseBody"] }, options?: RequestOptions): Promise<Schemas["Pause"]>;
  /** Lets a run start no leaf until it is resumed */
  pauseRun(args: { id: string }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Pauses a tenant: its sends wait, and more are accepted */
  pauseTenant(args: { id: string; body: Schemas["PauseBody"] }, options?: RequestOptions): Promise<Schemas["Pause"]>;
  /** Pauses a timer */
  pauseTimer(args: { id: string }, options?: RequestOptions): Promise<Schemas["TimerView"]>;
  /** Pauses a tool: its calls by workers wait */
  pauseTool(args: { name: string; body: Schemas["PauseBody"] }, options?: RequestOptions): Promise<Schemas["Pause"]>;
  /** A request of the Agent2Agent protocol, as JSON-RPC */
  postA2a(args: { agent: string; body: Schemas["RpcMessage"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** A message of the Model Context Protocol: a request, a notification or an answer */
  postMcp(args: { body: Schemas["RpcMessage"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Posts results of external tools, and answers to questions and approvals; the first result counts */
  postToolResults(args: { id: string; body: Schemas["ResultsBody"] }, options?: RequestOptions): Promise<Schemas["PostedResults"]>;
  /** The differences between a spec and the newest version, without publishing it */
  previewAgent(args: { body: Schemas["NewAgentBody"] }, options?: RequestOptions): Promise<Schemas["AgentDiff"]>;
  /** The model request of a send with this input, without sending it */
  previewSessionContext(args: { id: string; body: Schemas["ContextBody"] }, options?: RequestOptions): Promise<Schemas["Preview"]>;
  /** Removes old messages; calls are kept with their results, as are the last message and those of the open send */
  pruneSession(args: { id: string; body: Schemas["PruneBody"] }, options?: RequestOptions): Promise<Schemas["Pruned"]>;
  /** Publishes a version of an agent: 201, or 200 if its newest one is the same */
  publishAgent(args: { body: Schemas["NewAgentBody"] }, options?: RequestOptions): Promise<Schemas["AgentVersion"]>;
  /** Publishes a skill: 201, or 200 if this version is known */
  publishSkill(args: { body: Schemas["SkillBody"] | Body }, options?: RequestOptions): Promise<Schemas["SkillView"]>;
  /** Delivers an event again, under the same id */
  redeliverWebhook(args: { id: string; delivery_id: string }, options?: RequestOptions): Promise<Schemas["WebhookDelivery"]>;
  /** Delivers again what the list with the same parameters shows, each event under the same id */
  redeliverWebhooks(args: { id: string; limit?: number; cursor?: string; status?: Schemas["DeliveryStatus"] }, options?: RequestOptions): Promise<Schemas["ActedResults"]>;
  /** Gives claims back: the calls were not made and go to the next program */
  releaseClaims(args: { body: Schemas["ReleaseBody"] }, options?: RequestOptions): Promise<Schemas["ToldClaims"]>;
  /** Removes an alias of an agent */
  removeAgentAlias(args: { name: string; alias: string }, options?: RequestOptions): Promise<Schemas["NamedAgent"]>;
  /** Keeps claims for longer */
  renewClaims(args: { body: Schemas["RenewBody"] }, options?: RequestOptions): Promise<Schemas["ToldClaims"]>;
  /** Resumes what waits because of a paused agent */
  resumeAgent(args: { name: string }, options?: RequestOptions): Promise<void>;
  /** The rest of a stream of the Model Context Protocol that broke off, behind the event with the id in `Last-Event-ID` */
  resumeMcp(args?: Record<string, never>, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Resumes what waits because of a paused pool */
  resumePool(args: { name: string }, options?: RequestOptions): Promise<void>;
  /** Resumes what waits because of a paused provider */
  resumeProvider(args: { name: string }, options?: RequestOptions): Promise<void>;
  /** Lets a run go on after a pause */
  resumeRun(args: { id: string }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Resumes the sends that a list with the same parameters shows, of those that wait for recovery */
  resumeSends(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["SendStatus"]; agent?: string; metadata?: Record<string, string>; text?: string; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<Schemas["ActedResults"]>;
  /** Resumes a send that waits for recovery */
  resumeSession(args: { id: string }, options?: RequestOptions): Promise<Schemas["SendView"]>;
  /** Resumes what waits because of a paused tenant */
  resumeTenant(args: { id: string }, options?: RequestOptions): Promise<void>;
  /** Resumes a paused or dead timer */
  resumeTimer(args: { id: string }, options?: RequestOptions): Promise<Schemas["TimerView"]>;
  /** Resumes what waits because of a paused tool */
  resumeTool(args: { name: string }, options?: RequestOptions): Promise<void>;
  /** Runs a settled node and those that depend on it again */
  retryNode(args: { id: string; path: string; wait?: string }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Runs again what failed, was cancelled or was never reached */
  retryRun(args: { id: string; wait?: string; body?: Schemas["RetryRunBody"] }, options?: RequestOptions): Promise<Schemas["RunView"]>;
  /** Retries the runs that a list with the same parameters shows, of those that failed or were cancelled */
  retryRuns(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["RunStatus"]; name?: string; metadata?: Record<string, string>; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<Schemas["ActedResults"]>;
  /** Sends the same once more to the same session, if it failed or was cancelled */
  retrySend(args: { id: string; wait?: string }, options?: RequestOptions): Promise<Schemas["AcceptedSend"]>;
  /** Sends again what a list of sends with the same parameters shows, of those that failed or were cancelled */
  retrySends(args?: { limit?: number; cursor?: string; session_id?: string; status?: Schemas["SendStatus"]; agent?: string; metadata?: Record<string, string>; text?: string; created_from?: string; created_before?: string }, options?: RequestOptions): Promise<Schemas["ActedResults"]>;
  /** Revokes a key: it is refused everywhere within seconds, and streams under it end */
  revokeKey(args: { id: string }, options?: RequestOptions): Promise<void>;
  /** Replaces a key's secret; the new token is in this response only */
  rotateKey(args: { id: string; body?: Schemas["RotateBody"] }, options?: RequestOptions): Promise<Schemas["ApiKey"]>;
  /** Replaces a webhook's secret; the new one is in this response only */
  rotateWebhook(args: { id: string; body?: Schemas["RotateWebhookBody"] }, options?: RequestOptions): Promise<Schemas["Webhook"]>;
  /** Runs a published agent, with the events of the Agent-User Interaction protocol */
  runAgUi(args: { agent: string; body: Schemas["RunAgentInput"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Says something to an agent: in a new task, or in one that waits or works; waits for the end, or for a question */
  sendA2aMessage(args: { agent: string; body: Schemas["A2aBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** Points an alias of an agent at a version */
  setAgentAlias(args: { name: string; alias: string; body: Schemas["AliasBody"] }, options?: RequestOptions): Promise<Schemas["NamedAgent"]>;
  /** Sets the tenant's key for a provider, in the place of the one before */
  setProviderKey(args: { provider: string; body: Schemas["ProviderKeyBody"] }, options?: RequestOptions): Promise<Schemas["ProviderKey"]>;
  /** Sets a secret, in the place of the one before */
  setSecret(args: { name: string; body: Schemas["SecretBody"] }, options?: RequestOptions): Promise<Schemas["Secret"]>;
  /** Sends a message to a running leaf, delivered before its next round */
  steerNode(args: { id: string; path: string; body: Schemas["SteerBody"] }, options?: RequestOptions): Promise<Schemas["NodeView"]>;
  /** Says something to an agent, and streams what becomes of it */
  streamA2aMessage(args: { agent: string; body: Schemas["A2aBody"] }, options?: RequestOptions): Promise<Record<string, unknown>>;
  /** The run's events, up to its final one */
  streamRun(args: { id: string; after?: string }, options?: RequestOptions): Promise<Response>;
  /** The send's events, up to its final one */
  streamSend(args: { id: string; after?: string }, options?: RequestOptions): Promise<Response>;
  /** The session's events, until it is deleted */
  streamSession(args: { id: string; after?: string }, options?: RequestOptions): Promise<Response>;
  /** Changes a webhook */
  updateWebhook(args: { id: string; body: Schemas["WebhookChangeBody"] }, options?: RequestOptions): Promise<Schemas["Webhook"]>;
  /** Validates a spec: 422 with all problems at once */
  validateWorkflow(args: { body: Schemas["ValidateBody"] }, options?: RequestOptions): Promise<Schemas["SpecSummary"]>;
}

/**
 * Method and path of each; then whether it may be repeated (`k`: with an idempotency key, `s`: as it is), and what it
 * gives: JSON, text, the response itself, or nothing (`v`); then what a body is that is not JSON.
 */
export const OPERATIONS: Record<keyof Operations, string> = {
  abortSession: "POST /v1/sessions/{id}/abort sj",
  actOnA2aTask: "POST /a2a/{agent}/tasks/{task} -j",
  addOpenAiItems: "POST /v1/conversations/{id}/items -j",
  amendNode: "POST /v1/runs/{id}/nodes/{path}/amend sj",
  archiveAgent: "DELETE /v1/agents/{name} sj",
  cancelNode: "POST /v1/runs/{id}/nodes/{path}/cancel sj",
  cancelOpenAiResponse: "POST /v1/responses/{id}/cancel -j",
  cancelRun: "POST /v1/runs/{id}/cancel sj",
  cancelRuns: "POST /v1/runs:cancel -j",
  cancelSend: "POST /v1/sends/{id}/cancel sj",
  cancelSends: "POST /v1/sends:cancel -j",
  cancelTimer: "DELETE /v1/timers/{id} sj",
  changeMemory: "PATCH /v1/memories/{id} sj",
  changeOpenAiConversation: "POST /v1/conversations/{id} -j",
  changeSession: "PATCH /v1/sessions/{id} sj",
  changeTenant: "PATCH /v1/tenants/{id} sj",
  changeTimer: "PATCH /v1/timers/{id} sj",
  claimCalls: "POST /v1/calls:claim kj",
  createA2aPushConfig: "POST /a2a/{agent}/tasks/{task}/pushNotificationConfigs -j",
  createBlob: "POST /v1/blobs sj application/octet-stream",
  createKey: "POST /v1/keys kj",
  createMemory: "POST /v1/memories kj",
  createOpenAiChatCompletion: "POST /v1/chat/completions -j",
  createOpenAiConversation: "POST /v1/conversations -j",
  createOpenAiEmbedding: "POST /v1/embeddings -j",
  createOpenAiResponse: "POST /v1/responses -j",
  createRun: "POST /v1/runs kj",
  createSend: "POST /v1/sends kj",
  createSendInSession: "POST /v1/sessions/{id}/sends kj",
  createSends: "POST /v1/sends:batch kj",
  createSession: "POST /v1/sessions kj",
  createTenant: "POST /v1/tenants kj",
  createTimer: "POST /v1/timers kj",
  createTimers: "POST /v1/timers:batch kj",
  createToken: "POST /v1/tokens sj",
  createWebhook: "POST /v1/webhooks kj",
  deleteA2aPushConfig: "DELETE /a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config} sj",
  deleteMemory: "DELETE /v1/memories/{id} sv",
  deleteOpenAiConversation: "DELETE /v1/conversations/{id} sj",
  deleteOpenAiResponse: "DELETE /v1/responses/{id} sj",
  deleteProviderKey: "DELETE /v1/provider-keys/{provider} sv",
  deleteSecret: "DELETE /v1/secrets/{name} sv",
  deleteSession: "DELETE /v1/sessions/{id} sv",
  deleteSessions: "POST /v1/sessions:delete -j",
  deleteSkill: "DELETE /v1/skills/{name} sv",
  deleteTenant: "DELETE /v1/tenants/{id} sv",
  deleteWebhook: "DELETE /v1/webhooks/{id} sv",
  diffAgent: "GET /v1/agents/{name}/diff sj",
  eraseMemories: "DELETE /v1/memories sj",
  eraseTenant: "POST /v1/tenants/{id}/erase sj",
  exportRun: "GET /v1/runs/{id}/export sj",
  exportSession: "GET /v1/sessions/{id}/export sr",
  fireTimer: "POST /v1/timers/{id}/fire sj",
  forkSession: "POST /v1/sessions/{id}/fork kj",
  getA2aCard: "GET /a2a/{agent}/.well-known/agent-card.json sj",
  getA2aExtendedCard: "GET /a2a/{agent}/extendedAgentCard sj",
  getA2aPushConfig: "GET /a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config} sj",
  getA2aTask: "GET /a2a/{agent}/tasks/{task} sj",
  getAdvice: "GET /errors/{code} st",
  getAgent: "GET /v1/agents/{name} sj",
  getAgentVersion: "GET /v1/agents/{name}/versions/{n} sj",
  getBlob: "GET /v1/blobs/{sha256} sr",
  getCallOutput: "GET /v1/sessions/{id}/calls/{call_id}/output st",
  getInfo: "GET /v1/info sj",
  getKey: "GET /v1/keys/{id} sj",
  getLive: "GET /livez st",
  getMemory: "GET /v1/memories/{id} sj",
  getMetrics: "GET /metrics st",
  getOpenAiChatCompletion: "GET /v1/chat/completions/{id} sj",
  getOpenAiConversation: "GET /v1/conversations/{id} sj",
  getOpenAiItem: "GET /v1/conversations/{id}/items/{item_id} sj",
  getOpenAiModel: "GET /v1/models/{id} sj",
  getOpenAiResponse: "GET /v1/responses/{id} sj",
  getOpenApi: "GET /openapi.json sj",
  getProtectedResource: "GET /.well-known/oauth-protected-resource sj",
  getProtectedResourceOfMcp: "GET /.well-known/oauth-protected-resource/mcp sj",
  getQueue: "GET /v1/queue sj",
  getReady: "GET /readyz st",
  getRun: "GET /v1/runs/{id} sj",
  getScaling: "GET /v1/scaling/{pool} sj",
  getSecret: "GET /v1/secrets/{name} sj",
  getSend: "GET /v1/sends/{id} sj",
  getSession: "GET /v1/sessions/{id} sj",
  getSessionContext: "GET /v1/sessions/{id}/context sj",
  getSessionLists: "GET /v1/sessions/{id}/lists sj",
  getSessionUsage: "GET /v1/sessions/{id}/usage sj",
  getSkill: "GET /v1/skills/{name} sj",
  getSkillFile: "GET /v1/skills/{name}/files/{path} st",
  getTenant: "GET /v1/tenants/{id} sj",
  getTenantErasure: "GET /v1/tenants/{id}/erasure sj",
  getTenantUsage: "GET /v1/tenants/{id}/usage sj",
  getTimer: "GET /v1/timers/{id} sj",
  getWebhook: "GET /v1/webhooks/{id} sj",
  getWorkflowSchema: "GET /v1/workflows/schema sj",
  importSession: "POST /v1/sessions:import kj application/x-ndjson",
  listA2aPushConfigs: "GET /a2a/{agent}/tasks/{task}/pushNotificationConfigs sj",
  listA2aTasks: "GET /a2a/{agent}/tasks sj",
  listAgentVersions: "GET /v1/agents/{name}/versions sj",
  listAgents: "GET /v1/agents sj",
  listCalls: "GET /v1/calls sj",
  listChildren: "GET /v1/sessions/{id}/children sj",
  listErasures: "GET /v1/memories/erasures sj",
  listInbox: "GET /v1/sessions/{id}/inbox sj",
  listKeys: "GET /v1/keys sj",
  listMemories: "GET /v1/memories sj",
  listMessages: "GET /v1/sessions/{id}/messages sj",
  listNodes: "GET /v1/runs/{id}/nodes sj",
  listOccurrences: "GET /v1/timers/{id}/occurrences sj",
  listOpenAiInputItems: "GET /v1/responses/{id}/input_items sj",
  listOpenAiItems: "GET /v1/conversations/{id}/items sj",
  listOpenAiModels: "GET /v1/models sj",
  listPauses: "GET /v1/pauses sj",
  listProviderKeys: "GET /v1/provider-keys sj",
  listRuns: "GET /v1/runs sj",
  listSecrets: "GET /v1/secrets sj",
  listSends: "GET /v1/sends sj",
  listSessions: "GET /v1/sessions sj",
  listSkills: "GET /v1/skills sj",
  listTenants: "GET /v1/tenants sj",
  listTimers: "GET /v1/timers sj",
  listTools: "GET /v1/tools sj",
  listWaitingCalls: "GET /v1/sessions/{id}/calls sj",
  listWebhookDeliveries: "GET /v1/webhooks/{id}/deliveries sj",
  listWebhooks: "GET /v1/webhooks sj",
  listWorkers: "GET /v1/workers sj",
  pauseAgent: "POST /v1/agents/{name}/pause sj",
  pausePool: "POST /v1/pools/{name}/pause sj",
  pauseProvider: "POST /v1/providers/{name}/pause sj",
  pauseRun: "POST /v1/runs/{id}/pause sj",
  pauseTenant: "POST /v1/tenants/{id}/pause sj",
  pauseTimer: "POST /v1/timers/{id}/pause sj",
  pauseTool: "POST /v1/tools/{name}/pause sj",
  postA2a: "POST /a2a/{agent} -j",
  postMcp: "POST /mcp -j",
  postToolResults: "POST /v1/sessions/{id}/tool-results sj",
  previewAgent: "POST /v1/agents:diff sj",
  previewSessionContext: "POST /v1/sessions/{id}/context sj",
  pruneSession: "POST /v1/sessions/{id}/prune sj",
  publishAgent: "POST /v1/agents kj",
  publishSkill: "POST /v1/skills kj application/zip",
  redeliverWebhook: "POST /v1/webhooks/{id}/deliveries/{delivery_id}/redeliver sj",
  redeliverWebhooks: "POST /v1/webhooks/{id}/deliveries:redeliver -j",
  releaseClaims: "POST /v1/calls:release -j",
  removeAgentAlias: "DELETE /v1/agents/{name}/aliases/{alias} sj",
  renewClaims: "POST /v1/calls:renew -j",
  resumeAgent: "POST /v1/agents/{name}/resume sv",
  resumeMcp: "GET /mcp sj",
  resumePool: "POST /v1/pools/{name}/resume sv",
  resumeProvider: "POST /v1/providers/{name}/resume sv",
  resumeRun: "POST /v1/runs/{id}/resume sj",
  resumeSends: "POST /v1/sends:resume -j",
  resumeSession: "POST /v1/sessions/{id}/resume sj",
  resumeTenant: "POST /v1/tenants/{id}/resume sv",
  resumeTimer: "POST /v1/timers/{id}/resume sj",
  resumeTool: "POST /v1/tools/{name}/resume sv",
  retryNode: "POST /v1/runs/{id}/nodes/{path}/retry -j",
  retryRun: "POST /v1/runs/{id}/retry -j",
  retryRuns: "POST /v1/runs:retry -j",
  retrySend: "POST /v1/sends/{id}/retry kj",
  retrySends: "POST /v1/sends:retry -j",
  revokeKey: "DELETE /v1/keys/{id} sv",
  rotateKey: "POST /v1/keys/{id}/rotate -j",
  rotateWebhook: "POST /v1/webhooks/{id}/rotate -j",
  runAgUi: "POST /ag-ui/{agent} -j",
  sendA2aMessage: "POST /a2a/{agent}/message:send -j",
  setAgentAlias: "PUT /v1/agents/{name}/aliases/{alias} sj",
  setProviderKey: "PUT /v1/provider-keys/{provider} sj",
  setSecret: "PUT /v1/secrets/{name} sj",
  steerNode: "POST /v1/runs/{id}/nodes/{path}/steer -j",
  streamA2aMessage: "POST /a2a/{agent}/message:stream -j",
  streamRun: "GET /v1/runs/{id}/events sr",
  streamSend: "GET /v1/sends/{id}/events sr",
  streamSession: "GET /v1/sessions/{id}/events sr",
  updateWebhook: "PATCH /v1/webhooks/{id} sj",
  validateWorkflow: "POST /v1/workflows:validate sj",
};
