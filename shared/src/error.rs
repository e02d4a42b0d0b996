//! Errors as users see them: one stable code each, and a class that alone decides the HTTP
//! status, whether a retry makes sense, and how loudly it is logged.
//!
//! Codes are API, in problem documents and on failed sends alike: never renamed. Each has a page
//! of advice in `error/codes/`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The caller sent something that can never work.
    Invalid,
    /// The named thing does not exist.
    NotFound,
    /// The request conflicts with the current state.
    Conflict,
    /// Too much at once; it may work later.
    Limit,
    /// Something outside is unavailable; it may work later.
    Unavailable,
    /// Stored data could not be read.
    Corrupt,
    /// A bug in the system.
    Bug,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $class:ident, $status:literal;)*) => {
        /// A stable code for one kind of failure.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The class.
            pub const fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }

            /// The HTTP status of responses with this code.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// What to do about it, for people.
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$variant => include_str!(concat!("error/codes/", $text, ".md")),)* }
            }
        }
    };
}

codes! {
    /// No session has this id.
    SessionNotFound = "session.not_found", NotFound, 404;
    /// The session has a send that is not final.
    SessionBusy = "session.busy", Conflict, 409;
    /// The session takes no more sends.
    SessionClosed = "session.closed", Conflict, 409;
    /// No send of the session waits for `resume` or `abort`.
    SessionNotWaiting = "session.not_waiting", Conflict, 409;
    /// No agent in use has this name, or it has no such version or alias.
    AgentNotFound = "agent.not_found", NotFound, 404;
    /// No send has this id.
    SendNotFound = "send.not_found", NotFound, 404;
    /// The send is already final.
    SendNotCancellable = "send.not_cancellable", Conflict, 409;
    /// The send did not fail, or is somebody else's to retry.
    SendNotRetryable = "send.not_retryable", Conflict, 409;
    /// The send's deadline passed before it ended.
    SendDeadline = "send.deadline", Limit, 504;
    /// Too many workers died while running this send.
    SendWorkerCrashLimit = "send.worker_crash_limit", Bug, 500;
    /// No timer has this id.
    TimerNotFound = "timer.not_found", NotFound, 404;
    /// The timer has ended, or its status does not allow this.
    TimerNotArmed = "timer.not_armed", Conflict, 409;
    /// A schedule that cannot be read or never fires.
    TimerInvalidSchedule = "timer.invalid_schedule", Invalid, 422;
    /// No tool call has this id.
    CallNotFound = "call.not_found", NotFound, 404;
    /// No entry of the memory has this id.
    MemoryNotFound = "memory.not_found", NotFound, 404;
    /// The memory provider is unavailable or too slow.
    MemoryUnavailable = "memory.unavailable", Unavailable, 503;
    /// No blob has this hash.
    BlobNotFound = "blob.not_found", NotFound, 404;
    /// The content exceeds the maximum size of a blob.
    BlobTooLarge = "blob.too_large", Invalid, 413;
    /// The blob store is unavailable.
    BlobUnavailable = "blob.unavailable", Unavailable, 503;
    /// The blob store returned different content than was stored.
    BlobCorrupt = "blob.corrupt", Corrupt, 500;
    /// No webhook has this id.
    WebhookNotFound = "webhook.not_found", NotFound, 404;
    /// The webhook has no delivery with this id.
    WebhookDeliveryNotFound = "webhook.delivery_not_found", NotFound, 404;
    /// The tenant has the maximum number of webhooks.
    WebhookTooMany = "webhook.too_many", Conflict, 409;
    /// The server has no key to seal a webhook's secret.
    WebhookNoKey = "webhook.no_key", Conflict, 409;
    /// The tenant has no key for this provider.
    ProviderKeyNotFound = "provider_key.not_found", NotFound, 404;
    /// The tenant has keys for the maximum number of providers.
    ProviderKeyTooMany = "provider_key.too_many", Conflict, 409;
    /// The server has no key to seal a provider's key.
    ProviderKeyNoSeal = "provider_key.no_seal", Conflict, 409;
    /// The tenant has no secret of this name.
    SecretNotFound = "secret.not_found", NotFound, 404;
    /// The tenant has the maximum number of secrets.
    SecretTooMany = "secret.too_many", Conflict, 409;
    /// The server has no key to seal a secret.
    SecretNoSeal = "secret.no_seal", Conflict, 409;
    /// No run has this id.
    RunNotFound = "run.not_found", NotFound, 404;
    /// No skill has this name, or it has no version with this hash.
    SkillNotFound = "skill.not_found", NotFound, 404;
    /// The files are not a valid skill.
    SkillInvalid = "skill.invalid", Invalid, 422;
    /// A workflow spec with problems.
    SpecInvalid = "spec.invalid", Invalid, 422;
    /// A reference of a workflow has no value.
    WorkflowRefUnresolved = "workflow.ref_unresolved", Invalid, 422;
    /// No case of a branch matches its value.
    WorkflowBranchUnmatched = "workflow.branch_unmatched", Invalid, 422;
    /// A template of a workflow cannot be rendered.
    WorkflowTemplate = "workflow.template", Invalid, 422;
    /// A workflow, or a leaf of it, took too long.
    WorkflowTimeout = "workflow.timeout", Limit, 504;
    /// A workflow or a node of it was cancelled.
    WorkflowCancelled = "workflow.cancelled", Conflict, 409;
    /// A loop's condition did not hold after its last iteration.
    WorkflowLoopExhausted = "workflow.loop_exhausted", Invalid, 422;
    /// A leaf used up its rounds.
    WorkflowRoundLimit = "workflow.round_limit", Limit, 422;
    /// A run would have too many leaves or items.
    WorkflowTooLarge = "workflow.too_large", Invalid, 422;
    /// Advancing a run took too long, or its schedulers died of it.
    WorkflowQuarantined = "workflow.quarantined", Bug, 500;
    /// The state of a run or a node does not allow this.
    WorkflowNotResumable = "workflow.not_resumable", Conflict, 409;
    /// No node of the run has this path.
    WorkflowNodeNotFound = "workflow.node_not_found", NotFound, 404;
    /// The request cannot be understood or asks for something that does not exist.
    RequestInvalid = "request.invalid", Invalid, 400;
    /// The body is larger than the limit.
    RequestTooLarge = "request.too_large", Invalid, 413;
    /// The body's media type is missing or not supported by this path.
    RequestUnsupportedMediaType = "request.unsupported_media_type", Invalid, 415;
    /// The request's host is not a name of this server.
    RequestHostNotAllowed = "request.host_not_allowed", Invalid, 421;
    /// A web page of another origin sent the request.
    RequestOriginNotAllowed = "request.origin_not_allowed", Invalid, 403;
    /// The path exists, but not with this method.
    RequestMethodNotAllowed = "request.method_not_allowed", Invalid, 405;
    /// Nothing is at this path.
    RequestNotFound = "request.not_found", NotFound, 404;
    /// The idempotency key was used with another request.
    IdempotencyMismatch = "idempotency.mismatch", Conflict, 422;
    /// The model asked for a tool that does not exist.
    ToolNotFound = "tool.not_found", NotFound, 404;
    /// The arguments do not fit the tool's schema.
    ToolInvalidArguments = "tool.invalid_arguments", Invalid, 422;
    /// The tool did not answer in time.
    ToolTimeout = "tool.timeout", Unavailable, 504;
    /// The tool failed.
    ToolFailed = "tool.failed", Unavailable, 502;
    /// A person did not permit the call.
    ToolDenied = "tool.denied", Invalid, 403;
    /// The call was cancelled with its send.
    ToolCancelled = "tool.cancelled", Conflict, 409;
    /// A message interrupted the call.
    ToolInterrupted = "tool.interrupted", Conflict, 409;
    /// The call was interrupted; whether it took effect is unknown.
    ToolUnknownOutcome = "tool.unknown_outcome", Conflict, 409;
    /// The worker cannot start the process that the agent's tools must run in.
    IsolationUnavailable = "isolation.unavailable", Unavailable, 503;
    /// Another worker owns the session now. Reserved: a worker that loses its lease reports nothing.
    LeaseLost = "lease.lost", Conflict, 409;
    /// The model did not answer in time.
    LlmTimeout = "llm.timeout", Unavailable, 504;
    /// The provider asks for fewer requests.
    LlmRateLimited = "llm.rate_limited", Limit, 429;
    /// The provider refuses the key.
    LlmAuth = "llm.auth", Invalid, 502;
    /// The window does not fit the model.
    LlmContextOverflow = "llm.context_overflow", Invalid, 422;
    /// The request does not fit the model, however much is folded.
    ContextCannotFit = "context.cannot_fit", Invalid, 422;
    /// The model declined to answer.
    LlmRefused = "llm.refused", Invalid, 422;
    /// The answer was truncated at its token limit.
    LlmTruncated = "llm.truncated", Limit, 422;
    /// The provider's response is invalid.
    LlmBadResponse = "llm.bad_response", Unavailable, 502;
    /// The provider refuses the request itself.
    LlmInvalidRequest = "llm.invalid_request", Invalid, 422;
    /// The provider does not have the model, or no longer.
    LlmModelGone = "llm.model_gone", Invalid, 422;
    /// The provider is unavailable.
    LlmUnavailable = "llm.unavailable", Unavailable, 503;
    /// A policy forbids the model call.
    PolicyDenied = "policy.denied", Invalid, 403;
    /// A policy that must permit the model call is unavailable.
    PolicyUnavailable = "policy.unavailable", Unavailable, 503;
    /// A budget is spent.
    BudgetExceeded = "budget.exceeded", Limit, 422;
    /// A budget is in dollars, and the model's price is unknown.
    BudgetNoPrice = "budget.no_price", Invalid, 422;
    /// The model's answer contains no JSON.
    OutputNoJson = "output.no_json", Invalid, 422;
    /// The model's answer is not JSON.
    OutputInvalidJson = "output.invalid_json", Invalid, 422;
    /// The model's answer does not fit the schema.
    OutputSchemaMismatch = "output.schema_mismatch", Invalid, 422;
    /// The request carries no key.
    AuthMissing = "auth.missing", Invalid, 401;
    /// The key is unknown, expired or revoked.
    AuthInvalid = "auth.invalid", Invalid, 401;
    /// The key does not allow this.
    AuthForbidden = "auth.forbidden", Invalid, 403;
    /// The token names a tenant that does not exist.
    AuthTenantUnknown = "auth.tenant_unknown", Invalid, 403;
    /// The keys of a token's issuer are unknown and cannot be fetched.
    AuthIssuerUnavailable = "auth.issuer_unavailable", Unavailable, 503;
    /// The result would be outside the key's binding.
    AuthBinding = "auth.binding", Invalid, 403;
    /// No tenant has this id.
    TenantNotFound = "tenant.not_found", NotFound, 404;
    /// Another tenant has this name.
    TenantNameTaken = "tenant.name_taken", Conflict, 409;
    /// The tenant has sessions or runs.
    TenantNotEmpty = "tenant.not_empty", Conflict, 409;
    /// The tenant is under a hold: nothing of it is removed.
    TenantHeld = "tenant.held", Conflict, 409;
    /// The tenant is being erased, and nothing can act on its behalf.
    TenantErasing = "tenant.erasing", Conflict, 409;
    /// No key has this id.
    KeyNotFound = "key.not_found", NotFound, 404;
    /// The tenant sends more requests than its limit allows.
    LimitRequests = "limit.requests", Limit, 429;
    /// The tenant has reached its limit of open sends.
    LimitSends = "limit.sends", Limit, 429;
    /// The tenant's model calls take more tokens in a minute than its limit allows.
    LimitTokens = "limit.tokens", Limit, 429;
    /// The tenant has reached its spending limit.
    LimitMoney = "limit.money", Limit, 402;
    /// The tenant has reached its storage limit.
    LimitBytes = "limit.bytes", Limit, 429;
    /// Too much is already waiting.
    LimitExceeded = "limit.exceeded", Limit, 429;
    /// The database is unavailable.
    StoreUnavailable = "store.unavailable", Unavailable, 503;
    /// The database refuses the login, the database's name or a right.
    StoreDenied = "store.denied", Unavailable, 503;
    /// The database has no schema, or an old one.
    StoreSchemaMissing = "store.schema_missing", Unavailable, 503;
    /// The database's schema is newer than this program.
    StoreSchemaNewer = "store.schema_newer", Unavailable, 503;
    /// A bug in the system.
    Internal = "internal", Bug, 500;
}

impl Code {
    /// The code with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// Whether the same request may work later.
    pub const fn retryable(self) -> bool {
        matches!(self.class(), Class::Limit | Class::Unavailable)
            && !matches!(
                self,
                Self::BudgetExceeded
                    | Self::LlmTruncated
                    | Self::SendDeadline
                    | Self::WorkflowTimeout
                    | Self::WorkflowRoundLimit
            )
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        // A newer process may have stored a code that this one does not know yet.
        Ok(Self::parse(&text).unwrap_or(Self::Internal))
    }
}

/// An error that has a code.
pub trait Coded: std::error::Error {
    /// Its code.
    fn code(&self) -> Code;

    /// How long the other side asked us to wait; overrides any backoff.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// A failure as stored with a send: without secrets or texts of drivers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Failure {
    /// The stable code.
    #[schema(value_type = String)]
    pub code: Code,
    /// One sentence for people.
    pub message: String,
}

impl Failure {
    /// A failure with a code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_list_is_stable() {
        let lines: Vec<String> = Code::ALL
            .iter()
            .map(|c| {
                let retry = if c.retryable() { "retryable" } else { "final" };
                format!("{c} {:?} {} {retry}", c.class(), c.http_status())
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn every_code_parses_back_and_has_advice() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert!(code.advice().len() > 40, "{code} has no page of advice");
        }
    }
}
