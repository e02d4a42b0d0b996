//! Names of span attributes, in one place, since the conventions that they follow still change.
//!
//! They are those of OpenTelemetry's semantic conventions for generative AI as of 1.41.0, the last
//! version before these moved to a repository of their own, and the one that backends support.
//! Attributes without a name in the conventions begin with `mainspring.`.

/// The version of the conventions, as recorded on spans.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

/// The operation: one of the words below.
pub(super) const OPERATION: &str = "gen_ai.operation.name";

/// A worker runs a send.
pub(super) const INVOKE_AGENT: &str = "invoke_agent";
/// A model call.
pub(super) const CHAT: &str = "chat";
/// A tool call.
pub(super) const EXECUTE_TOOL: &str = "execute_tool";
/// A run of a workflow advances.
pub(super) const INVOKE_WORKFLOW: &str = "invoke_workflow";

pub(super) const AGENT_NAME: &str = "gen_ai.agent.name";
pub(super) const AGENT_VERSION: &str = "gen_ai.agent.version";
/// The id of the session.
pub(super) const CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub(super) const PROVIDER_NAME: &str = "gen_ai.provider.name";
pub(super) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(super) const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub(super) const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub(super) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// All tokens of the request, including cached ones.
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub(super) const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub(super) const WORKFLOW_NAME: &str = "gen_ai.workflow.name";

/// The method of an MCP request, as its protocol names it.
pub(super) const MCP_METHOD: &str = "mcp.method.name";
/// The method for calling a tool of an MCP server.
pub(super) const TOOLS_CALL: &str = "tools/call";

/// Content, which is recorded only if that is configured.
pub(super) const SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
pub(super) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub(super) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(super) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const TOOL_RESULT: &str = "gen_ai.tool.call.result";

/// The code of the error.
pub(super) const ERROR_TYPE: &str = "error.type";

pub(super) const HTTP_METHOD: &str = "http.request.method";
pub(super) const HTTP_ROUTE: &str = "http.route";
pub(super) const HTTP_STATUS: &str = "http.response.status_code";

pub(super) const DB_OPERATION: &str = "db.operation.name";
/// The number of items in the batch.
pub(super) const DB_BATCH: &str = "db.operation.batch.size";

pub(super) const REQUEST_ID: &str = "mainspring.request.id";
pub(super) const SEND_ID: &str = "mainspring.send.id";
/// Sends that were accepted together.
pub(super) const SENDS: &str = "mainspring.sends";
pub(super) const TENANT: &str = "mainspring.tenant.id";
/// The epoch of the claim: each lower number was an earlier claim of the session.
pub(super) const EPOCH: &str = "mainspring.epoch";
/// Model calls begun before in the send's current round, or attempts of a tool call.
pub(super) const ATTEMPT: &str = "mainspring.attempt";
pub(super) const ROUNDS: &str = "mainspring.rounds";
/// The number of a round.
pub(super) const ROUND: &str = "mainspring.round";
pub(super) const WORKER: &str = "mainspring.worker";
pub(super) const POOL: &str = "mainspring.pool";
pub(super) const STATUS: &str = "mainspring.status";
pub(super) const STOP_REASON: &str = "mainspring.stop_reason";
/// The number of messages that a fold replaces, and their tokens.
pub(super) const FOLD_MESSAGES: &str = "mainspring.fold.messages";
pub(super) const FOLD_TOKENS: &str = "mainspring.fold.tokens";
pub(super) const FOLD_STRATEGY: &str = "mainspring.fold.strategy";
pub(super) const RUN_ID: &str = "mainspring.run.id";
pub(super) const RUN_STEP: &str = "mainspring.run.step";
/// The number of ended leaves that an advance processes, and of leaves that it starts.
pub(super) const RUN_ENDS: &str = "mainspring.run.ends";
pub(super) const RUN_STARTS: &str = "mainspring.run.starts";
pub(super) const TIMER_LATE_MS: &str = "mainspring.timer.late_ms";
