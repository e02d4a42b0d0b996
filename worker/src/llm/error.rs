//! The failures of one attempt.

use std::time::Duration;

use mainspring_shared::agent::AgentName;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::tenant::{MoneySpan, Usd};
use mainspring_shared::time::Span;

/// What an attempt was waiting for when it timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The first byte of an answer.
    FirstByte,
    /// The next byte of a stream.
    NextByte,
    /// The end of the answer.
    End,
}

impl Wait {
    const fn as_str(self) -> &'static str {
        match self {
            Self::FirstByte => "did not begin to answer",
            Self::NextByte => "fell silent",
            Self::End => "did not finish its answer",
        }
    }
}

/// Why a call is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The provider was down a moment ago.
    Outage,
    /// The provider would refuse it: its limits, or the configured ones, are reached.
    Rate,
    /// The remaining money or tokens of the tenant, or of its agent, are reserved by calls in flight.
    Money,
}

impl Hold {
    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outage => "outage",
            Self::Rate => "rate",
            Self::Money => "money",
        }
    }
}

/// Why a call is held for money, in errors and notes.
pub(crate) const MONEY_IS_RESERVED: &str =
    "the remaining money or tokens of the tenant or of its agent are reserved by calls in flight";

/// The owner of a limit, in a sentence.
fn whose(agent: Option<&AgentName>) -> String {
    agent.map_or_else(
        || "the tenant".to_owned(),
        |agent| format!("the agent {agent}"),
    )
}

/// The prefix of the name of an agent's limit.
fn of_agent(agent: Option<&AgentName>) -> String {
    agent.map_or_else(String::new, |agent| format!("agent {agent}: "))
}

/// The failure of one attempt. Messages contain at most the provider's own words, shortened and
/// without anything that looks like a key; never the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A timeout of ours passed.
    #[error("the model {} within {}", .wait.as_str(), Span(*.limit))]
    Timeout {
        /// What was waited for.
        wait: Wait,
        /// The limit.
        limit: Duration,
    },
    /// The time for an answer, over all attempts and the waits between them, passed.
    #[error("no model answered within the time limit of all attempts (retry.total_timeout)")]
    TotalTimeout,
    /// The provider asks for fewer requests.
    #[error("the provider limits the rate: {message}")]
    RateLimited {
        /// The provider's message.
        message: String,
        /// How long the provider asked us to wait.
        retry_after: Option<Duration>,
    },
    /// The call was held: the provider was not called, which does not count as an attempt.
    #[error("calls to the provider are held for another {}: {}", Span(*.wait), match .why {
        Hold::Outage => "it was not available",
        Hold::Rate => "its rate limit is reached",
        Hold::Money => MONEY_IS_RESERVED,
    })]
    Held {
        /// Why.
        why: Hold,
        /// For how long.
        wait: Duration,
    },
    /// Too little is left of the money that the tenant or its agent may spend. The provider was not
    /// asked.
    #[error(
        "what is left of the {} US dollars that {} may spend in a {} does not suffice for this call \
         ({}limits.usd_per_{})",
        .limit.dollars(), whose(.agent.as_ref()), .span.as_str(), of_agent(.agent.as_ref()), .span.as_str()
    )]
    Spent {
        /// The published agent whose limit it is; the tenant's when absent.
        agent: Option<AgentName>,
        /// The limit.
        limit: Usd,
        /// The period that it applies to.
        span: MoneySpan,
    },
    /// Too little is left of the tokens that the tenant or its agent may use. The provider was not
    /// asked.
    #[error(
        "what is left of the {limit} tokens that {}'s calls may use in a {} does not suffice for this call \
         ({}limits.tokens_per_{})",
        whose(.agent.as_ref()), .span.as_str(), of_agent(.agent.as_ref()), .span.as_str()
    )]
    TokensSpent {
        /// The published agent whose limit it is; the tenant's when absent.
        agent: Option<AgentName>,
        /// The limit.
        limit: u64,
        /// The period that it applies to.
        span: MoneySpan,
    },
    /// The provider refuses the key, or the account behind it.
    #[error("the provider refuses the key: {message}")]
    Auth {
        /// The provider's message.
        message: String,
    },
    /// The conversation does not fit into the model's window.
    #[error("the conversation does not fit the model: {message}")]
    ContextOverflow {
        /// The provider's message.
        message: String,
    },
    /// The provider's filter refused the request before a model saw it. If a model declines, that
    /// is a reply with [`Finish::Refused`](super::Finish::Refused), since it is billed.
    #[error("the provider declines the request: {message}")]
    Refused {
        /// The provider's message.
        message: String,
    },
    /// No model was asked: the call that stands in its place failed. The call's own result has the
    /// reason.
    #[error("{message}")]
    CallFailed {
        /// The call's output.
        message: String,
    },
    /// The answer violates the provider's protocol, or is larger than any answer may be.
    #[error("the provider's response is invalid: {message}")]
    BadResponse {
        /// What is wrong with it.
        message: String,
    },
    /// Neither the request nor the provider's settings name a model. The provider was not asked.
    #[error("no model is named, and provider {provider} has no default")]
    NoModel {
        /// The provider's configured name.
        provider: String,
    },
    /// The provider refuses the request itself.
    #[error("the provider refuses the request: {message}")]
    InvalidRequest {
        /// The provider's message.
        message: String,
    },
    /// The provider has no such model, or no longer.
    #[error("the provider does not have the model: {message}")]
    ModelGone {
        /// The provider's message.
        message: String,
    },
    /// The provider refused a part of the request that can be left out or rewritten. Requests to it are made
    /// so from now on: ask again at once.
    #[error("the provider refused a part of the request, {part}: {message}")]
    Amended {
        /// What is left out or rewritten from now on.
        part: String,
        /// The provider's message.
        message: String,
    },
    /// The content of an image or a file could not be read. The provider was not asked.
    #[error("the content of a picture or a file cannot be read: {message}")]
    Content {
        /// The kind of failure.
        code: Code,
        /// What happened.
        message: String,
    },
    /// The provider cannot be reached, or failed before it began to answer; it bills nothing.
    #[error("the provider is not available: {message}")]
    Unreached {
        /// The provider's message, or what happened to the connection.
        message: String,
        /// How long the provider asked us to wait.
        retry_after: Option<Duration>,
    },
    /// The provider failed, or broke off before the end of its answer; it may bill what it read and
    /// wrote.
    #[error("the provider is not available: {message}")]
    Unavailable {
        /// The provider's message, or what happened to the connection.
        message: String,
        /// How long the provider asked us to wait.
        retry_after: Option<Duration>,
    },
}

impl Error {
    /// Whether the same request would fail again however often it is sent.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::CallFailed { .. } | Self::TotalTimeout => true,
            Self::Amended { .. } => false,
            _ => !self.code().retryable(),
        }
    }

    /// Whether it is certain that the attempt is not billed, provided that no part of an answer
    /// arrived.
    pub fn is_free(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Held { .. }
            | Self::Spent { .. }
            | Self::TokensSpent { .. }
            | Self::Auth { .. }
            | Self::ContextOverflow { .. }
            | Self::Refused { .. }
            | Self::CallFailed { .. }
            | Self::NoModel { .. }
            | Self::InvalidRequest { .. }
            | Self::ModelGone { .. }
            | Self::Amended { .. }
            | Self::Content { .. }
            | Self::Unreached { .. } => true,
            Self::Timeout { .. }
            | Self::TotalTimeout
            | Self::BadResponse { .. }
            | Self::Unavailable { .. } => false,
        }
    }

    /// An answer that violates the provider's protocol.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::BadResponse {
            message: message.into(),
        }
    }

    /// A provider that failed without asking us to wait.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable {
            message: message.into(),
            retry_after: None,
        }
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Timeout { .. } | Self::TotalTimeout => Code::LlmTimeout,
            Self::RateLimited { .. }
            | Self::Held {
                why: Hold::Rate, ..
            } => Code::LlmRateLimited,
            Self::Auth { .. } => Code::LlmAuth,
            Self::ContextOverflow { .. } => Code::LlmContextOverflow,
            Self::Refused { .. } => Code::LlmRefused,
            Self::CallFailed { .. } => Code::ToolFailed,
            Self::BadResponse { .. } => Code::LlmBadResponse,
            Self::NoModel { .. } | Self::InvalidRequest { .. } | Self::Amended { .. } => {
                Code::LlmInvalidRequest
            }
            Self::ModelGone { .. } => Code::LlmModelGone,
            Self::Content { code, .. } => *code,
            Self::Unreached { .. }
            | Self::Unavailable { .. }
            | Self::Held {
                why: Hold::Outage, ..
            } => Code::LlmUnavailable,
            Self::Held {
                why: Hold::Money, ..
            } => Code::LimitMoney,
            Self::Spent { .. } | Self::TokensSpent { .. } => Code::BudgetExceeded,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. }
            | Self::Unreached { retry_after, .. }
            | Self::Unavailable { retry_after, .. } => *retry_after,
            Self::Held { wait, .. } => Some(*wait),
            Self::Timeout { .. }
            | Self::TotalTimeout
            | Self::Spent { .. }
            | Self::TokensSpent { .. }
            | Self::Auth { .. }
            | Self::ContextOverflow { .. }
            | Self::Refused { .. }
            | Self::CallFailed { .. }
            | Self::Content { .. }
            | Self::NoModel { .. }
            | Self::BadResponse { .. }
            | Self::ModelGone { .. }
            | Self::Amended { .. }
            | Self::InvalidRequest { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_for_which_too_little_is_left_says_of_which_limit() {
        let spent = Error::Spent {
            agent: None,
            limit: Usd(500_000),
            span: MoneySpan::Day,
        };
        assert_eq!(
            spent.to_string(),
            "what is left of the 0.5 US dollars that the tenant may spend in a day does not suffice for this call \
             (limits.usd_per_day)"
        );
        let spent = Error::TokensSpent {
            agent: None,
            limit: 7,
            span: MoneySpan::Month,
        };
        assert_eq!(
            spent.to_string(),
            "what is left of the 7 tokens that the tenant's calls may use in a month does not suffice for this call \
             (limits.tokens_per_month)"
        );
        assert_eq!(spent.code(), Code::BudgetExceeded);
        let agent = "support".parse().ok();
        let spent = Error::Spent {
            agent: agent.clone(),
            limit: Usd(500_000),
            span: MoneySpan::Day,
        };
        assert_eq!(
            spent.to_string(),
            "what is left of the 0.5 US dollars that the agent support may spend in a day does not suffice for this \
             call (agent support: limits.usd_per_day)"
        );
        let spent = Error::TokensSpent {
            agent,
            limit: 7,
            span: MoneySpan::Month,
        };
        assert_eq!(
            spent.to_string(),
            "what is left of the 7 tokens that the agent support's calls may use in a month does not suffice for this \
             call (agent support: limits.tokens_per_month)"
        );
    }

    #[test]
    fn only_what_a_later_attempt_may_cure_is_not_permanent() {
        let message = String::new();
        let wait = Error::Timeout {
            wait: Wait::End,
            limit: Duration::from_mins(10),
        };
        assert_eq!(
            wait.to_string(),
            "the model did not finish its answer within 10m"
        );
        for passing in [
            wait,
            Error::RateLimited {
                message: message.clone(),
                retry_after: None,
            },
            Error::bad("x"),
            Error::unavailable("x"),
            Error::Held {
                why: Hold::Money,
                wait: Duration::from_secs(1),
            },
        ] {
            assert!(!passing.is_permanent(), "{passing}");
        }
        for lasting in [
            Error::TotalTimeout,
            Error::Spent {
                agent: None,
                limit: Usd(1_500_000),
                span: MoneySpan::Day,
            },
            Error::TokensSpent {
                agent: None,
                limit: 7,
                span: MoneySpan::Month,
            },
            Error::Auth {
                message: message.clone(),
            },
            Error::ContextOverflow {
                message: message.clone(),
            },
            Error::Refused {
                message: message.clone(),
            },
            Error::InvalidRequest { message },
        ] {
            assert!(lasting.is_permanent(), "{lasting}");
        }
    }
}
