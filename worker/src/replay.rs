//! Renders the recorded rounds of a send again: as they were, or as another agent would have been
//! asked. It only reads, and asks no model.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_shared::agent::prompt::take_over;
use mainspring_shared::agent::{AgentSpec, AgentVersion};
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{Message, Role};
use mainspring_shared::model::Digest;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::session::fold::{self, Fold};
use mainspring_shared::session::render::following;
use mainspring_shared::session::window::Window;
use mainspring_shared::step::RoundRef;
use mainspring_shared::store::{self, StartedSend, Store};
use mainspring_shared::time::Clock;

use crate::llm::{Providers, Request};
use crate::send::Output;
use crate::send::load::{self, Question};
use crate::session::read_messages;
use crate::tool::Tools;

/// Page size of steps.
const STEPS_PAGE: u32 = 512;

/// The dependencies of a replay.
#[derive(Debug, Clone)]
pub struct Replayer {
    /// The database.
    pub store: Arc<dyn Store>,
    /// The model providers.
    pub providers: Arc<Providers>,
    /// The tools.
    pub tools: Arc<Tools>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Another agent to render the rounds for, instead of the session's own.
#[derive(Debug, Clone, PartialEq)]
pub enum Other {
    /// An agent given in full.
    Spec(Box<AgentSpec>),
    /// A published version.
    Version(Box<AgentVersion>),
}

impl Other {
    /// The agent as this session would take it over in place of its own.
    fn taken_by(&self, session: &SessionRecord) -> Result<AgentSpec, ReplayError> {
        let (spec, reference) = match self {
            Self::Spec(spec) => (spec.as_ref(), None),
            Self::Version(version) => (&version.spec, Some(version.reference())),
        };
        let before = session.agent.bound.as_ref().map(|bound| &bound.variables);
        let before = before.cloned().unwrap_or_default();
        let taken = take_over(spec.clone(), reference, before, &session.metadata);
        taken.map_err(|faults| {
            let faults: Vec<String> = faults
                .into_iter()
                .map(|fault| format!("{} {}", fault.pointer, fault.detail))
                .collect();
            ReplayError::Prompt(faults.join("; "))
        })
    }
}

/// A round that was rendered again.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// Its number within the send, from 0.
    pub round: i32,
    /// The digest recorded for its request; `None` for rounds of older releases.
    pub recorded: Option<Digest>,
    /// The request as it would be sent now.
    pub request: Request,
}

/// Why a send cannot be rendered again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Some of its messages were pruned.
    #[error("messages of it were pruned")]
    Pruned,
    /// Something that it was shown has changed since.
    #[error("{0}")]
    Changed(&'static str),
    /// Its agent's model cannot be called here.
    #[error("its model cannot be called here: {0}")]
    Model(#[source] crate::llm::Error),
    /// The other agent's prompt cannot be rendered for the session.
    #[error("the agent does not fit its session: {0}")]
    Prompt(String),
    /// Its agent's output schema is invalid.
    #[error("its output schema is invalid: {0}")]
    Schema(String),
}

impl Replayer {
    /// The rounds of a send as this build renders them, to be compared with their digests. Sends
    /// that cannot be the same in any build are rejected.
    pub async fn again(&self, record: &SendRecord) -> Result<Vec<Replayed>, ReplayError> {
        let session = self.store.get_session(record.key).await?;
        let session = session.ok_or(ReplayError::Pruned)?;
        if record.agent_version != Some(session.agent_version) {
            return Err(ReplayError::Changed("its session has another agent now"));
        }
        let memory = record
            .shown
            .as_ref()
            .and_then(|shown| shown.memory.as_ref());
        if memory.is_some_and(|memory| !memory.entries.is_empty() && memory.text.is_none()) {
            let why = "the memory entries that it was shown are not stored";
            return Err(ReplayError::Changed(why));
        }
        self.rounds(record, None).await
    }

    /// The rounds of a send, as its session's current agent or another one would be asked.
    pub async fn rounds(
        &self,
        record: &SendRecord,
        agent: Option<&Other>,
    ) -> Result<Vec<Replayed>, ReplayError> {
        let key = record.key;
        let session = self.store.get_session(key).await?;
        let session = session.ok_or(ReplayError::Pruned)?;
        let mut send = StartedSend::new(record.clone(), session.agent.clone(), None);
        if let Some(agent) = agent {
            send.agent = record.options.over(agent.taken_by(&session)?);
        }
        let shown = record.shown.clone();
        let from = shown.as_ref().and_then(|shown| shown.from_seq).unwrap_or(1);
        let folds = self.store.read_folds(key).await?;
        let recorded = self.recorded(key, record).await?;
        let stood = stood(&recorded, &folds, record)?;
        let first = recorded.first_key_value().map_or(0, |(round, _)| *round);
        let begin = fold::begin(from, fold::end(&fold::as_of(&folds, stood(first))));
        if begin < session.first_seq {
            return Err(ReplayError::Pruned);
        }
        let next_seq = session.last_seq() + 1;
        let window = read_messages(self.store.as_ref(), key, begin, next_seq).await?;
        let window = window.ok_or(ReplayError::Pruned)?;
        let resolved = self.providers.resolve(load::model(&send));
        let resolved = resolved.map_err(ReplayError::Model)?;
        let clock = self.clock.as_ref();
        let offers = if let Ok(offers) = load::offers(&self.tools, clock, &send).await {
            offers
        } else {
            // The tools are only shown; no call is made.
            let only = send.record.options.tools.as_deref();
            self.tools.offers(clock, &send.agent, only).await
        };
        self.tools.left(key, send.record.id);
        let output = Output::of(self.clock.as_ref(), &send, window.held()).await;
        let output = output.map_err(|fault| ReplayError::Schema(fault.to_string()))?;
        let by = (record.id, record.created_at, &record.input[..]);
        let rounds = answers(&window, record).into_iter().map(|answer| {
            let stood = fold::as_of(&folds, stood(answer.round));
            let asked = window.until(answer.seq, stood);
            Replayed {
                round: answer.round,
                recorded: recorded.get(&answer.round).and_then(|round| round.digest),
                request: load::request(Question {
                    send: &send,
                    round: answer.round,
                    resolved: &resolved,
                    offers: &offers,
                    shown: shown.as_ref(),
                    folds: asked.folds(),
                    projections: asked.projections(from),
                    messages: following(&asked, from, &[], by),
                    aged_to: (recorded.get(&answer.round))
                        .and_then(|round| round.aged_to)
                        .unwrap_or(0),
                    partial: None,
                    output: output.as_ref().map(|output| &output.spec),
                }),
            }
        });
        Ok(rounds.collect())
    }

    /// What the rounds of a send recorded.
    async fn recorded(
        &self,
        key: SessionKey,
        record: &SendRecord,
    ) -> store::Result<BTreeMap<i32, Recorded>> {
        let mut recorded = BTreeMap::new();
        let mut after = record.first_step - 1;
        loop {
            let page = self.store.read_steps(key, after, STEPS_PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(recorded);
            };
            after = last.n;
            for step in page.into_iter().filter(|step| step.send_id == record.id) {
                recorded.extend(step.refs.round.map(|round| {
                    let RoundRef {
                        digest,
                        folded,
                        aged_to,
                        ..
                    } = round;
                    (
                        round.index,
                        Recorded {
                            digest,
                            folded,
                            aged_to,
                        },
                    )
                }));
            }
            if i32::try_from(recorded.len()).unwrap_or(i32::MAX) >= record.rounds {
                return Ok(recorded);
            }
        }
    }
}

/// What a round recorded of its request.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    digest: Option<Digest>,
    folded: Option<i64>,
    aged_to: Option<i64>,
}

/// The newest fold at each round of a send. Rounds of older releases, and rounds that continued a
/// truncated answer, do not record it, which matters if something was folded after the send began.
fn stood<'r>(
    recorded: &'r BTreeMap<i32, Recorded>,
    folds: &[Fold],
    record: &SendRecord,
) -> Result<impl Fn(i32) -> i64 + use<'r>, ReplayError> {
    let (began, rounds) = (record.started_at, recorded.values());
    let is_silent = rounds.clone().any(|round| round.folded.is_none());
    let is_newer = |fold: &Fold| began.is_none_or(|at| fold.created_at > at);
    if (is_silent || rounds.len() == 0) && folds.iter().any(is_newer) {
        let why = "something was folded since it began";
        return Err(ReplayError::Changed(why));
    }
    let newest = folds.iter().map(|fold| fold.n).max().unwrap_or(0);
    let of = |round| {
        recorded
            .get(&round)
            .and_then(|round: &Recorded| round.folded)
    };
    Ok(move |round| of(round).unwrap_or(newest))
}

/// The first answer of each round of a send.
fn answers<'a>(window: &'a Window, record: &SendRecord) -> Vec<&'a Message> {
    let answers = window.held().iter().map(Arc::as_ref).filter(|message| {
        message.send_id == record.id
            && message.role == Role::Assistant
            && message.round < record.rounds
    });
    let mut first: Vec<&Message> = Vec::new();
    for answer in answers {
        if first.last().is_none_or(|last| last.round < answer.round) {
            first.push(answer);
        }
    }
    first
}
