//! The writers of a fold: a model, a service, the embedding program or a hook.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use mainspring_runtime::telemetry::spans;
use mainspring_shared::agent::{FoldStrategy, Isolation};
use mainspring_shared::error::Coded as _;
use mainspring_shared::model::Thinking;
use mainspring_shared::pause::PauseKey;
use mainspring_shared::session::fold::FoldKind;
use mainspring_shared::session::fold::plan::Span;
use tracing::Instrument as _;

use super::{TRIES, WRITTEN_WITHIN, room_of};
use crate::fold::{
    Fault, FoldCall, Job, NOTE_TOOLS, Part, Taken, Writing, Written, ask_own, ask_service, distill,
    prompt, summarize,
};
use crate::hook::{self, CombinedVerdict};
use crate::llm::Error;
use crate::send::load;
use crate::send::run::Run;

impl Run<'_> {
    /// The same writing, provided that hooks permit this part to be folded. They are asked inside
    /// the future, so that dropping it also stops them.
    pub(super) fn permitted(&self, span: &Arc<Span>, writing: Writing, beside: bool) -> Writing {
        let (hooks, at) = (self.kernel.parts.hooks.clone(), self.place());
        let writing = self.traced(span, writing);
        if hooks.is_empty() {
            return writing;
        }
        let part = hook::FoldPart {
            part: Part {
                session: self.send.record.key,
                send: self.send.record.id,
                folds: span.folds.clone(),
                messages: span.messages.clone(),
            },
            from_seq: span.from_seq,
            to_seq: span.to_seq,
            tokens: span.tokens,
            beside,
        };
        self.within(
            span,
            Box::pin(async move {
                match hooks.before_fold(at, &part).await {
                    Ok(None) => writing.await,
                    Ok(Some(text)) if !text.trim().is_empty() => Ok(Written {
                        kind: FoldKind::Custom,
                        text: text.trim().replace('\0', "\u{fffd}"),
                        reply: None,
                        notes: Vec::new(),
                    }),
                    Ok(Some(_)) => Err(Fault::Service("a hook wrote an empty fold".to_owned())),
                    Err(why) => Err(Fault::Forbidden(why)),
                }
            }),
        )
    }

    /// The writing inside a trace span.
    fn traced(&self, span: &Span, writing: Writing) -> Writing {
        let strategy = self.send.agent.context.fold.strategy.as_str();
        let (session, messages) = (self.send.record.key, span.messages.len());
        let traced = spans::fold(session, strategy, messages, span.tokens);
        if traced.is_disabled() {
            return writing;
        }
        Box::pin(async move {
            let written = writing.instrument(traced.clone()).await;
            if let Err(fault) = &written {
                spans::failed(&traced, fault.code());
            }
            written
        })
    }

    /// The writing with a timeout. A panic counts as a fold that was not written.
    fn within(&self, span: &Arc<Span>, writing: Writing) -> Writing {
        let clock = Arc::clone(&self.kernel.parts.clock);
        let limit = (self.kernel.parts.config.answer_timeout).unwrap_or(WRITTEN_WITHIN);
        let span = Arc::clone(span);
        Box::pin(async move {
            tokio::select! {
                written = AssertUnwindSafe(writing).catch_unwind() => written.unwrap_or_else(|_| {
                    Err(Fault::Service("it crashed because of a bug".to_owned()))
                })?.fitting(&span),
                () = clock.sleep(limit) => Err(Fault::Model(Error::TotalTimeout)),
            }
        })
    }

    /// Asks for a fold, if hooks permit it; false if digests are wanted or no model can be asked.
    pub(super) fn ask_for_fold(&mut self, span: &Arc<Span>, beside: bool) -> bool {
        if (beside && self.fold_paused().is_some()) || !self.ask_whoever_folds(span) {
            return false;
        }
        if let Some(writing) = self.folding.writing.take() {
            self.folding.writing = Some(self.permitted(span, writing, beside));
        }
        true
    }

    /// The pause that holds back the model that would write a fold.
    pub(super) fn fold_paused(&self) -> Option<PauseKey> {
        let set = self.kernel.pauses.now();
        let spec = &self.send.agent.context.fold;
        let by_own =
            spec.strategy == FoldStrategy::Summary && self.kernel.parts.sources.fold.is_some();
        let by_model = matches!(spec.strategy, FoldStrategy::Summary | FoldStrategy::Agentic);
        if set.is_empty() || !by_model || by_own || self.folding.tried.failures >= TRIES {
            return None;
        }
        let name = spec.model.as_deref().or_else(|| load::model(&self.send));
        let resolved = self.kernel.parts.providers.resolve(name).ok()?;
        set.of_provider(&resolved.provider)
    }

    fn ask_whoever_folds(&mut self, span: &Arc<Span>) -> bool {
        let spec = &self.send.agent.context.fold;
        if self.folding.tried.failures >= TRIES {
            return false;
        }
        let job = Job {
            key: self.send.record.key,
            send: self.send.record.id,
            span: Arc::clone(span),
        };
        match (spec.strategy, &self.kernel.parts.sources.fold) {
            (FoldStrategy::None | FoldStrategy::Projection, _) => return false,
            (FoldStrategy::Http, _) => {
                let tools = Arc::clone(&self.kernel.parts.tools);
                let url = spec.url.clone().unwrap_or_default();
                let agent = &self.send.agent;
                let isolated = (agent.isolation != Isolation::None).then(|| agent.clone());
                let by = (self.lease_state.lease.boot, isolated);
                self.folding.writing =
                    Some(self.within(span, Box::pin(ask_service(tools, url, job, by))));
                return true;
            }
            (FoldStrategy::Summary, Some(own)) => {
                self.folding.writing =
                    Some(self.within(span, Box::pin(ask_own(Arc::clone(own), job))));
                return true;
            }
            (FoldStrategy::Summary | FoldStrategy::Agentic, _) => {}
        }
        let name = spec.model.as_deref().or_else(|| load::model(&self.send));
        let Ok(resolved) = self.kernel.parts.providers.resolve(name) else {
            return false;
        };
        let room = room_of(&resolved, 0, spec);
        let prompt = prompt(resolved.model.clone(), span, room.budget / 2);
        let Some(mut request) = prompt else {
            return false;
        };
        // A model that always thinks does so within these tokens.
        let thinks = resolved.facts.thinking == Some(Thinking::Always);
        let most = request.max_tokens * if thinks { 4 } else { 1 };
        let can = (resolved.facts.output_max).and_then(|max| u32::try_from(max).ok());
        request.max_tokens = most.min(can.unwrap_or(u32::MAX));
        // The rest of the budget is for the answer; digests cost nothing.
        if self.bill.allow(&mut request, &resolved).is_err() {
            return false;
        }
        let request = Arc::new(request);
        let taken = Arc::new(Taken::default());
        self.folding.calls += 1;
        self.folding.asked = Some(Box::new(FoldCall {
            request: Arc::clone(&request),
            price: resolved.facts.price,
            taken: Arc::clone(&taken),
        }));
        let client = self.client(&resolved);
        let notes = NOTE_TOOLS
            .iter()
            .filter_map(|name| self.prompt.offers.get(name));
        let notes: Vec<_> = notes.map(|offer| Arc::clone(&offer.spec)).collect();
        // An agent without notes has nowhere to keep them, and the budget was checked for one call.
        let by_notes = spec.strategy == FoldStrategy::Agentic
            && !notes.is_empty()
            && self.bill.allowance.is_unlimited();
        let (hooks, at) = (self.kernel.parts.hooks.clone(), self.place());
        self.folding.writing = Some(self.within(
            span,
            Box::pin(async move {
                let mut request = request;
                if !hooks.is_empty() {
                    let bound = request.max_tokens;
                    let asking = Arc::make_mut(&mut request);
                    let verdict = hooks.before_model(at, asking).await;
                    asking.max_tokens = asking.max_tokens.min(bound);
                    if !matches!(verdict, Ok(CombinedVerdict::Go)) {
                        let why = "a hook does not let the model be asked for it";
                        return Err(Fault::Service(why.to_owned()));
                    }
                }
                if by_notes {
                    distill(client, request, notes, &taken).await
                } else {
                    summarize(client, request, &taken).await
                }
            }),
        ));
        true
    }
}
