//! Whether and how a model is asked to think, and which of its earlier thinking it gets back.

use mainspring_shared::agent::{ReasoningEffort, THINKING_TOKENS_MIN, ToolChoice};
use mainspring_shared::message::{Message, Role};
use mainspring_shared::time::Timestamp;
use mainspring_worker::llm::Request;
use serde::Serialize;

use crate::rules::{Rules, ThinkingForm, ThinkingOff, ToolChoiceWord};

/// What a request says about thinking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thinking {
    /// At most this many tokens.
    Enabled { budget_tokens: u32 },
    /// As many as the model sees fit. Without `display` it does not show its thinking.
    Adaptive {
        display: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        block_binding: Option<BlockBinding>,
    },
    /// None, for models that think unless they are told not to.
    Disabled,
    /// None before the answer.
    BetweenTools,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct BlockBinding {
    prefix_mismatch_behavior: &'static str,
}

/// What is said about thinking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) thinking: Option<Thinking>,
    /// How much a model spends that decides by itself.
    pub(super) effort: Option<&'static str>,
    /// Whether no temperature of the request's own is accepted.
    pub(super) is_adaptive: bool,
    /// Whether the model thinks.
    pub(super) thinks: bool,
}

impl Asked {
    /// What a request says. `binding` is whether the provider may be asked to drop thinking whose place has changed.
    pub(super) fn of(request: &Request, rules: &Rules, binding: bool) -> Self {
        let is_adaptive = match rules.thinking {
            ThinkingForm::Adaptive => true,
            ThinkingForm::Budget => request.adaptive,
            ThinkingForm::None => false,
        };
        let (thinking, effort) = match rules.thinking {
            ThinkingForm::None => (None, None),
            ThinkingForm::Budget | ThinkingForm::Adaptive if is_adaptive => {
                let effort = request.reasoning_effort;
                let effort = effort.and_then(|effort| rules.effort(effort)).map(word);
                (adaptive(request, rules, binding), effort)
            }
            ThinkingForm::Budget | ThinkingForm::Adaptive => (budget(request), None),
        };
        let thinking = if is_forced(request, rules) && !rules.forced_while_thinking {
            without(thinking, rules)
        } else {
            thinking
        };
        let thinks = match &thinking {
            Some(Thinking::Enabled { .. } | Thinking::Adaptive { .. } | Thinking::BetweenTools) => {
                true
            }
            Some(Thinking::Disabled) => false,
            None => is_adaptive && rules.thinking_off != ThinkingOff::LeftOut,
        };
        Self {
            thinking,
            effort,
            is_adaptive,
            thinks,
        }
    }

    /// Leaves out a number of tokens for thinking: it must not begin within an answer that called tools without it.
    pub(super) fn not_within_an_answer(&mut self) {
        if matches!(self.thinking, Some(Thinking::Enabled { .. })) {
            self.thinking = None;
            self.thinks = false;
        }
    }
}

/// Whether a choice of tools is made that the provider accepts.
fn is_forced(request: &Request, rules: &Rules) -> bool {
    let accepts = |word| rules.tool_choice.contains(&word);
    !request.tools.is_empty()
        && match &request.tool_choice {
            ToolChoice::Auto | ToolChoice::None => false,
            ToolChoice::Required => {
                accepts(ToolChoiceWord::Required) || accepts(ToolChoiceWord::Any)
            }
            ToolChoice::Tool(_) => accepts(ToolChoiceWord::Named),
        }
}

/// The same without thinking, if that can be said: a demand for a tool is the author's, how much to think is a wish.
fn without(thinking: Option<Thinking>, rules: &Rules) -> Option<Thinking> {
    match rules.thinking_off {
        ThinkingOff::LeftOut => None,
        ThinkingOff::Disabled => Some(Thinking::Disabled),
        ThinkingOff::BetweenTools | ThinkingOff::Impossible => thinking,
    }
}

/// The thinking budget. Thinking counts towards the answer, for which some tokens must be left; if
/// the send's budget leaves less than the minimum for thinking, there is none.
fn budget(request: &Request) -> Option<Thinking> {
    let most = request.max_tokens;
    let wanted = request.thinking_tokens.or_else(|| {
        let quarters = match request.reasoning_effort? {
            ReasoningEffort::None | ReasoningEffort::Minimal => return None,
            ReasoningEffort::Low => 1,
            ReasoningEffort::Medium => 2,
            ReasoningEffort::High | ReasoningEffort::XHigh | ReasoningEffort::Max => 3,
        };
        Some(most / 4 * quarters)
    })?;
    let budget_tokens = wanted.min(most.saturating_sub(1));
    (budget_tokens >= THINKING_TOKENS_MIN).then_some(Thinking::Enabled { budget_tokens })
}

/// Whether a model that decides by itself how much to think should think: if thinking tokens or a
/// sufficient effort are set. If it should not, it is told so where it would otherwise.
fn adaptive(request: &Request, rules: &Rules, binding: bool) -> Option<Thinking> {
    let may_drop = binding && rules.thinking_bound && rules.drop_block;
    let thinking = Thinking::Adaptive {
        display: "summarized",
        block_binding: may_drop.then_some(BlockBinding {
            prefix_mismatch_behavior: "drop_block",
        }),
    };
    let effort = request.reasoning_effort;
    if effort == Some(ReasoningEffort::None) {
        match rules.thinking_off {
            ThinkingOff::LeftOut => return None,
            ThinkingOff::Disabled => return Some(Thinking::Disabled),
            ThinkingOff::BetweenTools => return Some(Thinking::BetweenTools),
            ThinkingOff::Impossible => {}
        }
    }
    let is_wanted = match effort {
        None => request.thinking_tokens.is_some(),
        Some(ReasoningEffort::None | ReasoningEffort::Minimal) => false,
        Some(_) => true,
    };
    // What it does by itself must be said if blocks are to be dropped.
    (is_wanted || may_drop).then_some(thinking)
}

/// An effort in the protocol's word.
fn word(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::None | ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::XHigh => "xhigh",
        ReasoningEffort::Max => "max",
    }
}

/// Which messages get their thinking back. Thinking that is bound to everything before it is refused behind a change,
/// unless the provider may be asked to drop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Back {
    /// All of them.
    All,
    /// None: what stood at the end of the user's turn is no longer there.
    None,
    /// Those behind the last change.
    Behind {
        /// The last message of which something may have changed.
        seq: i64,
        /// When the last fold was made.
        folded: Option<Timestamp>,
    },
}

impl Back {
    /// What is given back in a request that says this about thinking.
    pub(super) fn of(request: &Request, rules: &Rules, asked: &Asked) -> Self {
        let may_drop = matches!(
            asked.thinking,
            Some(Thinking::Adaptive {
                block_binding: Some(_),
                ..
            })
        );
        if !rules.thinking_bound || may_drop {
            return Self::All;
        }
        if request.tail.is_some() {
            return Self::None;
        }
        // The thinking of earlier answers is left out, which is a change itself; it stays the same until the user
        // speaks again.
        let spoken = request
            .messages
            .iter()
            .rposition(|it| it.role == Role::User);
        let changed = spoken.map_or(0, |at| at + 1).max(request.settled);
        let last = changed
            .checked_sub(1)
            .and_then(|at| request.messages.get(at));
        // The sends of folds are nil, and their times those at which they were made.
        let folds = request.messages.iter().filter(|it| it.send_id.0.is_nil());
        Self::Behind {
            seq: last.map_or(i64::MIN, |last| last.seq),
            folded: folds.map(|it| it.created_at).max(),
        }
    }

    /// Whether a message gets its thinking back.
    pub(super) fn holds(self, message: &Message) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Behind { seq, folded } => {
                message.seq > seq && folded.is_none_or(|folded| message.created_at > folded)
            }
        }
    }
}
