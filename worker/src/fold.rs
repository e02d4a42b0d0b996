//! Folding: turning a part of a transcript into a text that stands for it.
//!
//! Each strategy is one future that the run drops when something more urgent comes. It only reads
//! its input, and reports what it cost.

mod agentic;
mod notes;
pub(crate) mod resting;
mod service;
mod summary;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainspring_shared::budget::Price;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::{Message, ToolCall};
use mainspring_shared::model::expect_tokens;
use mainspring_shared::session::fold::digest::of_span;
use mainspring_shared::session::fold::plan::Span;
use mainspring_shared::session::fold::{FoldKind, NewFold};
use mainspring_shared::usage::Usage;

use crate::llm::{self, Chunk, Reply, Request, estimate_request_tokens, estimate_tokens};

pub(crate) use self::agentic::{NOTE_TOOLS, distill};
pub(crate) use self::notes::Notebook;
pub(crate) use self::service::ask as ask_service;
pub(crate) use self::summary::{prompt, summarize};

/// Maximum tokens of a fold that somebody else wrote: four times the most that models are asked
/// for.
const TOKENS_MAX: u64 = 20_000;

/// A fold that is being written.
pub(crate) type Writing = BoxFuture<'static, Result<Written, Fault>>;

/// The input of a fold.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) key: SessionKey,
    pub(crate) send: SendId,
    pub(crate) span: Arc<Span>,
}

/// A model call that writes a fold.
#[derive(Debug)]
pub(crate) struct FoldCall {
    pub(crate) request: Arc<Request>,
    pub(crate) price: Option<Price>,
    /// What it has used so far.
    pub(crate) taken: Arc<Taken>,
}

/// What the calls for a fold have used so far, in estimated tokens.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Input tokens of its requests after the first one.
    repeated: AtomicU64,
    /// Output tokens received.
    streamed: AtomicU64,
}

impl Taken {
    /// Counts another request.
    pub(crate) fn asks(&self, request: &Request) {
        let tokens = estimate_request_tokens(request);
        self.repeated.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Counts a chunk of an answer.
    pub(crate) fn hears(&self, chunk: &Chunk<'_>) {
        let (Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::Hidden(text)) = chunk else {
            return;
        };
        self.streamed
            .fetch_add(estimate_tokens(text), Ordering::Relaxed);
    }

    pub(crate) fn heard(&self) -> u64 {
        self.streamed.load(Ordering::Relaxed)
    }
}

impl FoldCall {
    /// Adds the price to what a provider counted.
    pub(crate) fn priced(&self, mut usage: Usage) -> Usage {
        usage.cost_usd = usage.cost_usd.or(self.price.map(|price| price.of(&usage)));
        usage
    }

    /// The estimated cost of a call that was cut off.
    pub(crate) fn estimated(&self) -> (String, Usage) {
        let mut usage = Usage {
            input_tokens: estimate_request_tokens(&self.request)
                + self.taken.repeated.load(Ordering::Relaxed),
            output_tokens: self.taken.heard(),
            estimated: true,
            ..Usage::default()
        };
        usage.cost_usd = self.price.map(|price| price.at_most(&usage));
        (self.request.model.clone(), usage)
    }

    /// The cost of a fold that failed.
    pub(crate) fn cost(asked: Option<&Self>, fault: &Fault) -> Option<(String, Usage)> {
        match fault {
            Fault::Empty { reply: Some(reply) } | Fault::Long { reply: Some(reply) } => {
                let usage = asked.map_or(reply.usage, |asked| asked.priced(reply.usage));
                Some((reply.model.clone(), usage))
            }
            Fault::Model(error) => asked
                .filter(|asked| {
                    let heard = asked.taken.heard() > 0;
                    heard || error.code() == Code::LlmTimeout
                })
                .map(Self::estimated),
            Fault::Empty { reply: None }
            | Fault::Long { reply: None }
            | Fault::Forbidden(_)
            | Fault::Service(_) => None,
        }
    }
}

/// An embedding program's own way to fold, which replaces the strategy `summary`.
///
/// It is given a part of a transcript and writes the text that stands for it. If it fails, digests
/// are used instead. The future is dropped when something more urgent comes; the same part may be
/// given again, by this worker or another one.
#[async_trait]
pub trait Fold: Send + Sync + Debug {
    /// Writes the text, which must include what earlier folds of the part say.
    async fn fold(&self, part: &Part) -> Result<String, String>;
}

/// A part of a transcript.
#[derive(Debug, Clone)]
pub struct Part {
    /// The session.
    pub session: SessionKey,
    /// The send that is running.
    pub send: SendId,
    /// The folds that stand for the preceding messages, if any.
    pub folds: Vec<Arc<mainspring_shared::session::fold::Fold>>,
    /// The messages: whole sends, or whole rounds of the running one.
    pub messages: Vec<Arc<Message>>,
}

/// Lets the program's own implementation write a fold.
pub(crate) async fn ask_own(fold: Arc<dyn Fold>, job: Job) -> Result<Written, Fault> {
    let part = Part {
        session: job.key,
        send: job.send,
        folds: job.span.folds.clone(),
        messages: job.span.messages.clone(),
    };
    let text = fold.fold(&part).await.map_err(Fault::Service)?;
    let text = text.trim().replace('\0', "\u{fffd}");
    if text.is_empty() {
        return Err(Fault::Empty { reply: None });
    }
    Ok(Written {
        kind: FoldKind::Custom,
        text,
        reply: None,
        notes: Vec::new(),
    })
}

/// The text of a fold.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) kind: FoldKind,
    pub(crate) text: String,
    /// The answer that it was taken from, if a model wrote it.
    pub(crate) reply: Option<Reply>,
    /// Calls that save notes; they are made once the fold is attached.
    pub(crate) notes: Vec<ToolCall>,
}

impl Written {
    /// The digests of a part, which no model has to write.
    pub(crate) fn digests(span: &Span) -> Self {
        Self {
            kind: FoldKind::Projection,
            text: of_span(&span.folds, &span.messages, span.digest_max),
            reply: None,
            notes: Vec::new(),
        }
    }
}

/// Why a fold was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The model could not be asked.
    #[error("the model could not be asked for a fold")]
    Model(#[source] llm::Error),
    /// The answer has no text in it.
    #[error("the fold is empty")]
    Empty {
        /// The answer, which is paid for.
        reply: Option<Box<Reply>>,
    },
    /// The text is longer than allowed: the writer did not follow the instructions.
    #[error("the fold is too long")]
    Long {
        /// The answer, which is paid for.
        reply: Option<Box<Reply>>,
    },
    /// A hook forbids folds in this round.
    #[error("nothing is folded: {0}")]
    Forbidden(String),
    /// The user's service or the program's own implementation failed.
    #[error("the fold was not written: {0}")]
    Service(String),
}

impl Fault {
    /// Whether asking again for the same fold is likely to fail again. Digests then take its place
    /// even if nobody waits for it.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Model(error) => error.is_permanent(),
            Self::Empty { .. } | Self::Long { .. } | Self::Service(_) => true,
            Self::Forbidden(_) => false,
        }
    }
}

impl Coded for Fault {
    fn code(&self) -> Code {
        match self {
            Self::Model(error) => error.code(),
            Self::Empty { .. } | Self::Long { .. } => Code::LlmBadResponse,
            Self::Forbidden(_) => Code::PolicyDenied,
            Self::Service(_) => Code::ToolFailed,
        }
    }
}

impl Written {
    /// Fails if the text is longer than what it stands for, or than any fold should be.
    pub(crate) fn fitting(self, span: &Span) -> Result<Self, Fault> {
        if expect_tokens(&self.text) <= TOKENS_MAX.min(span.tokens) {
            return Ok(self);
        }
        Err(Fault::Long {
            reply: self.reply.map(Box::new),
        })
    }

    /// The row to attach.
    pub(crate) fn row(self, span: &Span) -> NewFold {
        let tokens_after = expect_tokens(&self.text);
        NewFold {
            from_seq: span.from_seq,
            to_seq: span.to_seq,
            level: span.level,
            kind: self.kind,
            model: self.reply.map(|reply| reply.model),
            tokens_before: span.tokens.min(i64::MAX as u64).cast_signed(),
            tokens_after: tokens_after.min(i64::MAX as u64).cast_signed(),
            text: self.text,
        }
    }
}
