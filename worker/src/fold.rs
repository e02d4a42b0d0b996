//! Folding: how a part of a transcript becomes a text that stands for it.
//!
//! Each way is one future that the run drops when something more urgent comes. It reads what it is
//! given, changes nothing, and says what it cost.

mod agentic;
mod service;
mod summary;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainspring_shared::budget::Price;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::{Message, ToolCall};
use mainspring_shared::model::expect_tokens;
use mainspring_shared::session::fold::plan::Span;
use mainspring_shared::session::fold::{FoldKind, NewFold};

use crate::llm::{self, Reply, Request};

pub(crate) use self::agentic::{NOTE_TOOLS, distill};
pub(crate) use self::service::ask as ask_service;
pub(crate) use self::summary::{prompt, summarize};

/// A fold that is being written.
pub(crate) type Writing = BoxFuture<'static, Result<Written, Fault>>;

/// What a fold is made of.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) key: SessionKey,
    pub(crate) send: SendId,
    pub(crate) span: Arc<Span>,
}

/// A model call that writes a fold.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Arc<Request>,
    pub(crate) price: Option<Price>,
    /// Tokens that came back so far, estimated.
    pub(crate) streamed: Arc<AtomicU64>,
}

/// A way to fold of an embedding program's own, in the place of the strategy `summary`.
///
/// It is given a part of a transcript and writes the text that stands for it. A failure is no harm:
/// digests take its place. The future is dropped when something more urgent comes; the same part may
/// be given again, by this worker or another one.
#[async_trait]
pub trait Fold: Send + Sync + Debug {
    /// Writes the text. What an earlier fold of the part says has to be in it, too.
    async fn fold(&self, part: &Part) -> Result<String, String>;
}

/// A part of a transcript.
#[derive(Debug, Clone)]
pub struct Part {
    /// The session.
    pub session: SessionKey,
    /// The send that runs.
    pub send: SendId,
    /// What stands for the messages before, if anything does.
    pub folds: Vec<Arc<mainspring_shared::session::fold::Fold>>,
    /// The messages, whole sends or whole rounds of the running one.
    pub messages: Vec<Arc<Message>>,
}

/// Has a program's own way write a fold.
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

/// A text that stands for messages.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) kind: FoldKind,
    pub(crate) text: String,
    /// The answer that it was taken from, if a model gave it.
    pub(crate) reply: Option<Reply>,
    /// Calls that save notes, to be made once it is attached.
    pub(crate) notes: Vec<ToolCall>,
}

/// Why there is no text.
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
    /// The user's service, or the program's own way, did not give one.
    #[error("the fold was not written: {0}")]
    Service(String),
}

impl Written {
    /// The row that is attached.
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
