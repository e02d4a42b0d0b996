//! What a provider refuses in requests is left out or written otherwise from then on.
//!
//! A request that is refused for good would be refused again with each send of its session. So a
//! refusal is read for the part that it [names](mod@named), or for what its words [mean](mod@named); the
//! part is changed in all requests to that model, and the caller is told to ask again. If nothing
//! is named, parts are tried from the most to the least likely (see [`ladder`]), and what helped is
//! kept. The changes are made in the finished body, so that they hold whatever put the part there;
//! everything else in it stays the bytes that it was.
//!
//! Kept in this process, for one client of a provider: a refusal that is learned again costs one
//! request that is not billed. What was not named is a guess: a provider may have refused one request
//! for no reason that lies in it. So a guess holds for a while, after which the part is sent again; if
//! that goes through the guess is forgotten, else it holds for longer.

mod apply;
mod ladder;
mod named;
mod part;
mod place;
mod schema;
mod tree;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Clock;
use mainspring_worker::llm::{Error, Request, estimate_request_tokens};

use self::named::{hashes, named};
use self::part::{Amendment, FILES, PICTURES};
use self::tree::Node;
use crate::metrics;
use crate::status::Refusal;

pub(crate) use self::part::Protocol;

/// How often one request is changed.
const TRIES_MAX: u32 = 8;

/// How many models are remembered, how many changes for each, and how many contents are left out.
const MODELS_MAX: usize = 64;
const AMENDMENTS_MAX: usize = 64;
const CONTENTS_MAX: usize = 4_096;

/// After so many refusals of reasoning, none goes back.
const REASONING_REFUSED_MAX: u32 = 3;

/// How many refused requests are remembered.
const CALLS_MAX: usize = 256;

/// After so many requests in a row for which nothing helped, nothing more is tried until one goes
/// through.
const HOPELESS_MAX: u32 = 3;

/// How long a guess holds at first, and at most: after a refusal without a reason an agent is without one part for
/// minutes, and a part that is really refused costs a request a day.
const GUESS_FIRST: Duration = Duration::from_mins(5);
const GUESS_MAX: Duration = Duration::from_hours(24);

/// How much longer a guess holds each time that it is confirmed.
const GUESS_TIMES: u32 = 4;

/// A request with less than this is too long for nobody.
const SMALL_BYTES: usize = 128 * 1024;

/// What was learned about the models of a provider.
#[derive(Debug)]
pub(crate) struct Amends {
    provider: String,
    protocol: Protocol,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The least recently changed first.
    models: Vec<(String, Learned)>,
    calls: VecDeque<(u64, Progress)>,
}

/// What was learned about one model.
#[derive(Debug, Clone, Default)]
struct Learned {
    list: Vec<Amendment>,
    guesses: Vec<Guess>,
    hopeless: u32,
}

/// A change that nobody named and after which a request went through.
#[derive(Debug, Clone)]
struct Guess {
    part: Amendment,
    /// For how long it holds, and until which reading of the monotonic clock.
    span: Duration,
    until: Duration,
}

/// How far the attempts to repair one request are.
#[derive(Debug, Clone, Default)]
struct Progress {
    tries: u32,
    /// What is being tried for this request alone.
    trial: Vec<Amendment>,
    /// The next step of the ladder.
    step: usize,
    /// Whether it was taken for too long.
    suspected: bool,
    /// Whether nothing helped.
    over: bool,
}

impl Amends {
    pub(crate) fn new(provider: &str, protocol: Protocol, clock: Arc<dyn Clock>) -> Self {
        Self {
            provider: provider.to_owned(),
            protocol,
            clock,
            state: Mutex::default(),
        }
    }

    /// The body with everything that was learned.
    pub(crate) fn amended(&self, model: &str, body: Vec<u8>) -> Vec<u8> {
        let (learned, progress) = self.known(model, || fingerprint(&body));
        let now = self.clock.monotonic();
        if learned.parts(now).next().is_none() && progress.trial.is_empty() {
            return body;
        }
        match std::str::from_utf8(&body).ok().and_then(Node::parse) {
            Some(mut tree) => {
                self.change(&mut tree, learned.parts(now).chain(&progress.trial));
                tree.json().into_bytes()
            }
            None => body,
        }
    }

    /// Keeps what helped a request that went through.
    pub(crate) fn went_through(&self, model: &str, body: impl FnOnce() -> Option<Vec<u8>>) {
        let now = self.clock.monotonic();
        let doubted = {
            let state = self.lock();
            let doubted = state
                .of(model)
                .guesses
                .iter()
                .any(|guess| guess.until <= now);
            if state.calls.is_empty() && !doubted {
                return;
            }
            doubted
        };
        let Some(body) = body() else {
            return;
        };
        let mark = fingerprint(&body);
        let mut state = self.lock();
        if state.of(model).hopeless > 0 {
            state.learned(model).hopeless = 0;
        }
        let at = state.calls.iter().position(|(own, _)| *own == mark);
        let helped = at.and_then(|at| state.calls.remove(at));
        let helped = helped.map(|(_, progress)| progress.trial);
        let helped = helped.unwrap_or_default();
        if doubted {
            self.refute(state.learned(model), &body, &helped, now);
        }
        if !helped.is_empty() {
            tracing::warn!(
                provider = self.provider,
                model,
                parts = %listed(&helped),
                "a request went through without what a provider may have refused, which is left out from now on"
            );
        }
        for amendment in helped {
            state.learned(model).guess(amendment, now);
        }
    }

    /// Forgets the guesses that do not hold any longer and whose parts went through with this body, which was sent
    /// without what was `tried`.
    fn refute(&self, learned: &mut Learned, body: &[u8], tried: &[Amendment], now: Duration) {
        let Some(mut tree) = std::str::from_utf8(body).ok().and_then(Node::parse) else {
            return;
        };
        self.change(&mut tree, tried);
        let held = |guess: &Guess| guess.until > now || !self.changes(&tree, &guess.part);
        learned.guesses.retain(held);
    }

    /// Judges the refusal of a request with this body, before anything that was learned. `None` if
    /// the refusal stands.
    pub(crate) fn judge(
        &self,
        request: &Request,
        body: &[u8],
        (status, refusal): (u16, &Refusal),
    ) -> Option<Error> {
        let model = &request.model;
        let mark = fingerprint(body);
        let (learned, mut progress) = self.known_of(model, mark);
        let mut tree = std::str::from_utf8(body).ok().and_then(Node::parse)?;
        self.change(&mut tree, learned.parts(self.clock.monotonic()));
        let message = format!("status {status}: {}", refusal.message);
        if progress.tries >= TRIES_MAX {
            self.give_up(model, mark, progress);
            return None;
        }
        if may_be_a_part(status, refusal) {
            let named = named(&tree, self.protocol, refusal);
            if let Some(found) = named.into_iter().find(|each| self.changes(&tree, each)) {
                progress.tries += 1;
                progress.trial.clear();
                let error = self.amends(model, std::slice::from_ref(&found), message);
                self.keep(model, mark, Some(found), progress);
                return Some(error);
            }
        }
        // No change of the limit helps a request that alone exceeds the tokens of a minute.
        if refusal.has(&["request too large for"]) {
            return Some(Error::ContextOverflow { message });
        }
        if status == 413 {
            return self.too_large(request, (body, &tree), (mark, progress), message);
        }
        if !matches!(status, 400 | 422) {
            return None;
        }
        if !progress.suspected && is_long(request) {
            progress.suspected = true;
            self.keep(model, mark, None, progress);
            let message = format!("{message} (its length is the most likely reason)");
            return Some(Error::ContextOverflow { message });
        }
        self.ladder(request, &tree, (mark, progress, learned.hopeless), message)
    }

    /// Tries the next step for a request of which no part was named.
    fn ladder(
        &self,
        request: &Request,
        tree: &Node<'_>,
        (mark, mut progress, hopeless): (u64, Progress, u32),
        message: String,
    ) -> Option<Error> {
        let steps = ladder::steps(tree, self.protocol);
        while hopeless < HOPELESS_MAX
            && let Some(step) = steps.get(progress.step)
        {
            progress.step += 1;
            let step: Vec<Amendment> = step
                .iter()
                .filter(|each| self.changes(tree, each))
                .cloned()
                .collect();
            if !step.is_empty() {
                let error = self.amends(&request.model, &step, message);
                progress.tries += 1;
                progress.trial = step;
                self.keep(&request.model, mark, None, progress);
                return Some(error);
            }
        }
        progress.tries = TRIES_MAX;
        self.give_up(&request.model, mark, progress);
        None
    }

    fn give_up(&self, model: &str, mark: u64, mut progress: Progress) {
        if !progress.over {
            progress.over = true;
            progress.trial.clear();
            self.keep(model, mark, None, progress);
            self.lock().learned(model).hopeless += 1;
        }
    }

    /// A request of too many bytes.
    fn too_large(
        &self,
        request: &Request,
        (body, tree): (&[u8], &Node<'_>),
        (mark, mut progress): (u64, Progress),
        message: String,
    ) -> Option<Error> {
        let list = tree.list(self.protocol.conversation());
        let media = [PICTURES.as_slice(), FILES.as_slice()].concat();
        // The oldest is the one that is needed least.
        if let Some(oldest) = hashes(list, &media).into_iter().next() {
            let part = Amendment::Parts(vec![oldest]);
            progress.tries += 1;
            let error = self.amends(&request.model, std::slice::from_ref(&part), message);
            self.keep(&request.model, mark, Some(part), progress);
            return Some(error);
        }
        let is_small = body.len() < SMALL_BYTES && !is_long(request);
        is_small.then(|| Error::InvalidRequest {
            message: format!("{message} (the request has {} bytes)", body.len()),
        })
    }

    /// The error that tells of a change, and what else tells of it.
    fn amends(&self, model: &str, parts: &[Amendment], message: String) -> Error {
        let mut kinds: Vec<&'static str> = parts.iter().map(Amendment::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            metrics::amended(&self.provider, kind);
        }
        let part = listed(parts);
        tracing::warn!(
            provider = self.provider,
            model,
            part,
            reason = message,
            "a provider refused a request; it is sent again without this part of it, or with another form of it"
        );
        Error::Amended { part, message }
    }

    fn change<'p>(&self, tree: &mut Node<'_>, parts: impl IntoIterator<Item = &'p Amendment>) {
        for part in parts {
            part.apply(tree, self.protocol);
        }
    }

    fn changes(&self, tree: &Node<'_>, part: &Amendment) -> bool {
        let mut changed = tree.clone();
        part.apply(&mut changed, self.protocol);
        changed != *tree
    }

    fn known(&self, model: &str, mark: impl FnOnce() -> u64) -> (Learned, Progress) {
        let state = self.lock();
        if state.calls.is_empty() {
            return (state.of(model), Progress::default());
        }
        drop(state);
        self.known_of(model, mark())
    }

    fn known_of(&self, model: &str, mark: u64) -> (Learned, Progress) {
        let state = self.lock();
        let progress = state.calls.iter().find(|(own, _)| *own == mark);
        let progress = progress.map(|(_, progress)| progress.clone());
        (state.of(model), progress.unwrap_or_default())
    }

    fn keep(&self, model: &str, mark: u64, part: Option<Amendment>, progress: Progress) {
        let mut state = self.lock();
        state.calls.retain(|(own, _)| *own != mark);
        if state.calls.len() >= CALLS_MAX {
            state.calls.pop_front();
        }
        state.calls.push_back((mark, progress));
        if let Some(part) = part {
            state.learned(model).learn(part);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic midway, so the value is never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&self, model: &str) -> Learned {
        let found = self.models.iter().find(|(own, _)| own == model);
        found
            .map(|(_, learned)| learned.clone())
            .unwrap_or_default()
    }

    fn learned(&mut self, model: &str) -> &mut Learned {
        let at = self.models.iter().position(|(own, _)| own == model);
        let entry = at.map(|at| self.models.remove(at));
        if self.models.len() >= MODELS_MAX {
            self.models.remove(0);
        }
        self.models
            .push(entry.unwrap_or_else(|| (model.to_owned(), Learned::default())));
        let (_, learned) = self.models.last_mut().expect("it was just pushed");
        learned
    }
}

impl Learned {
    /// Everything that holds now.
    fn parts(&self, now: Duration) -> impl Iterator<Item = &Amendment> {
        let guesses = self.guesses.iter().filter(move |guess| guess.until > now);
        self.list.iter().chain(guesses.map(|guess| &guess.part))
    }

    /// Takes a part for what was refused, for longer each time.
    fn guess(&mut self, part: Amendment, now: Duration) {
        let before = self.guesses.iter().position(|guess| guess.part == part);
        let before = before.map(|at| self.guesses.remove(at).span);
        let span = before.map_or(GUESS_FIRST, |span| {
            span.saturating_mul(GUESS_TIMES).min(GUESS_MAX)
        });
        if self.guesses.len() >= AMENDMENTS_MAX {
            self.guesses.remove(0);
        }
        let until = now.saturating_add(span);
        self.guesses.push(Guess { part, span, until });
    }

    fn learn(&mut self, part: Amendment) {
        let Some(own) = self.list.iter_mut().find(|own| own.replaced_by(&part)) else {
            if self.list.len() >= AMENDMENTS_MAX {
                self.list.remove(0);
            }
            self.list.push(part);
            return;
        };
        match (&mut *own, &part) {
            (Amendment::Parts(all), Amendment::Parts(new)) => add(all, new),
            (Amendment::Reasoning(_, times), _) if *times + 1 >= REASONING_REFUSED_MAX => {
                *own = Amendment::NoReasoning;
            }
            (Amendment::Reasoning(all, times), Amendment::Reasoning(new, _)) => {
                *times += 1;
                add(all, new);
            }
            _ => *own = part,
        }
    }
}

/// Adds contents, and forgets the oldest.
fn add(all: &mut Vec<u64>, new: &[u64]) {
    for hash in new {
        if !all.contains(hash) {
            all.push(*hash);
        }
    }
    let excess = all.len().saturating_sub(CONTENTS_MAX);
    all.drain(..excess);
}

/// Parts in a sentence.
fn listed(parts: &[Amendment]) -> String {
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    parts.join(", ")
}

/// Whether the refusal may be about a part of the request.
fn may_be_a_part(status: u16, refusal: &Refusal) -> bool {
    match status {
        400 | 422 | 501 => true,
        404 => refusal.has(&["support"]),
        405..=407 | 411..=424 | 429 => refusal.has(&["request too large for", "image", "support"]),
        // llama.cpp and others that render a template.
        500 => refusal.has(&[
            "jinja",
            "chat template",
            "system message must be",
            "roles must alternate",
        ]),
        _ => false,
    }
}

/// Whether a request fills so much of the model's window that its length is the likely reason for
/// a refusal that gives none.
fn is_long(request: &Request) -> bool {
    request.window.is_some_and(|window| {
        estimate_request_tokens(request).saturating_mul(10) >= window.saturating_mul(7)
    })
}

fn fingerprint(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
