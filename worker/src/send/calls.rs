//! Calls in flight: each is a future inside the run, so that none of them outlives it.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use mainspring_runtime::telemetry::spans::{self, Content as Told};
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::memory::{Account, PaidCall};
use mainspring_shared::message::{ContentPart, digest_of, plain_text};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{CallRecord, CallResult, Inquiry, Repeat, bounded};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::content::Content;
use crate::hook::{At, Hooks, OnFailure, RETRIES_MAX, ToolCall};
use crate::metrics;
use crate::tool::{
    Inquiring, Invocation, Keep, Kept, Offer, OnInterrupt, Output, Progress, Skills, Tool,
    ToolError, Traits,
};

/// Handles on their way to the run: a tool has one at a time.
const KEPT_WAITING_MAX: usize = 16;

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum CallOutcome {
    /// It has a result.
    Result(CallResult),
    /// Its tool asks a person, and is called again after the answer.
    Asks(Box<Inquiry>),
    /// It ends the send.
    Abort(String),
    /// The process that made it died.
    Lost(String),
}

impl CallOutcome {
    /// Label for metrics.
    const fn outcome(&self) -> &'static str {
        match self {
            Self::Result(result) if result.failed => "failed",
            Self::Result(_) => "done",
            Self::Asks(_) => "asked",
            Self::Abort(_) => "aborted",
            Self::Lost(_) => "lost",
        }
    }
}

/// The calls that are running.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: FuturesUnordered<BoxFuture<'static, (usize, CallOutcome)>>,
    stops: Vec<(OnInterrupt, CancellationToken)>,
    /// What each call paid providers, by its place.
    accounts: BTreeMap<usize, Account>,
    keeper: Keeper,
}

/// A call to begin.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) place: usize,
    pub(super) tool: Arc<dyn Tool>,
    /// Its schema, which the arguments must match whatever hooks change.
    pub(super) offer: Offer,
    /// Hooks that are asked about it.
    pub(super) hooks: Arc<Hooks>,
    /// The agent's skills.
    pub(super) skills: Skills,
    /// Where the large parts of its result go.
    pub(super) content: Arc<Content>,
    /// Whether traces contain its arguments and its result.
    pub(super) tells: bool,
    /// Where it reports how far it is.
    pub(super) progress: Progress,
    /// What an earlier attempt kept of it.
    pub(super) handle: Option<Value>,
}

/// Handles of calls on their way to the run, which stores them.
#[derive(Debug)]
struct Keeper {
    sender: mpsc::Sender<Keep>,
    receiver: mpsc::Receiver<Keep>,
}

impl Default for Keeper {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(KEPT_WAITING_MAX);
        Self { sender, receiver }
    }
}

/// What calls in flight want of the run.
#[derive(Debug)]
pub(super) enum Stirring {
    /// The call of this place is over.
    Over(usize, CallOutcome),
    /// A tool wants a handle stored.
    Keep(Keep),
}

impl Calls {
    /// Begins a call.
    pub(super) fn begin(
        &mut self,
        clock: Arc<dyn Clock>,
        (key, boot): (SessionKey, BootId),
        record: &CallRecord,
        begin: Begin,
    ) {
        let stop = CancellationToken::new();
        let traits = begin.offer.traits;
        self.stops.push((traits.on_interrupt, stop.clone()));
        let account = Account::default();
        self.accounts.insert(begin.place, account.clone());
        let invocation = Invocation {
            account,
            progress: begin.progress.clone(),
            inquiring: Inquiring::new(&record.asked),
            kept: Kept::new(
                &record.call_id,
                begin.handle.clone(),
                self.keeper.sender.clone(),
            ),
            call_id: record.call_id.clone(),
            arguments: Map::new(),
            said: None,
            session: key,
            send_id: record.send_id,
            boot,
            attempt: record.attempt,
            stop,
            skills: begin.skills.clone(),
        };
        let (id, given) = (record.call_id.clone(), record.arguments.clone());
        let at = At {
            session: key,
            send: record.send_id,
            round: record.round,
            attempt: record.attempt,
            life: record.started_epoch.unwrap_or_default(),
        };
        let call = ToolCall {
            call_id: record.call_id.clone(),
            name: record.name.clone(),
            said: Some(record.arguments.text().into()),
            arguments: Map::new(),
        };
        self.running.push(Box::pin(async move {
            // The agent may change between two workers of a send; its pinned version does not.
            let arguments = match begin.offer.arguments(clock.as_ref(), &given).await {
                Ok(arguments) => arguments,
                Err(fault) => return (begin.place, invalid(fault)),
            };
            let call = ToolCall { arguments, ..call };
            let mut over = hooked(clock, at, call, &begin, invocation).await;
            if let CallOutcome::Result(result) = &mut over {
                begin.content.spill(key, &id, result).await;
            }
            (begin.place, over)
        }));
    }

    /// Whether no call is running.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The next call that finishes or wants something stored; pending forever while none is
    /// running.
    pub(super) async fn next(&mut self) -> Stirring {
        if self.running.is_empty() {
            return std::future::pending().await;
        }
        tokio::select! {
            biased;
            Some(keep) = self.keeper.receiver.recv() => Stirring::Keep(keep),
            Some((place, over)) = self.running.next() => Stirring::Over(place, over),
            else => std::future::pending().await,
        }
    }

    /// Takes what the call of this place paid providers, or all calls; each payment is returned
    /// once.
    pub(super) fn take_paid(&mut self, place: Option<usize>) -> Vec<PaidCall> {
        let over = match place {
            Some(place) => self.accounts.remove(&place).into_iter().collect(),
            None => std::mem::take(&mut self.accounts)
                .into_values()
                .collect::<Vec<_>>(),
        };
        over.iter().flat_map(Account::take).collect()
    }

    /// Tells all calls to stop, or only those that an interruption may stop.
    pub(super) fn stop(&self, all: bool) {
        for (on_interrupt, stop) in &self.stops {
            if all || *on_interrupt == OnInterrupt::Stop {
                stop.cancel();
            }
        }
    }
}

/// Makes a call, as far as the hooks allow it.
async fn hooked(
    clock: Arc<dyn Clock>,
    at: At,
    mut call: ToolCall,
    begin: &Begin,
    mut invocation: Invocation,
) -> CallOutcome {
    let Begin { offer, hooks, .. } = begin;
    if hooks.is_empty() {
        invocation.said = call.said;
        invocation.arguments = call.arguments;
        return traced(clock, begin, &call.name, invocation).await;
    }
    let before = call.arguments.clone();
    if let Some(result) = hooks.before_tool(at, &mut call).await {
        return CallOutcome::Result(bounded(
            result,
            &call.call_id,
            offer.traits.output_chars_max,
        ));
    }
    if call.arguments != before
        && let changed = Value::Object(call.arguments.clone())
        && let Err(fault) = offer.arguments(clock.as_ref(), &changed).await
    {
        return invalid(fault);
    }
    invocation.said = call.said.clone().filter(|_| call.arguments == before);
    invocation.arguments = call.arguments.clone();
    let make = |invocation| traced(clock.clone(), begin, &call.name, invocation);
    let mut over = make(invocation.clone()).await;
    let mut made = 0;
    while let CallOutcome::Result(result) = &over
        && result.failed
    {
        let at = At {
            attempt: at.attempt + made as i32,
            ..at
        };
        match hooks.tool_failed(at, &call, result).await {
            // A tool that may run only once has run.
            OnFailure::Retry
                if made < RETRIES_MAX
                    && offer.traits.repeat != Repeat::Once
                    && !invocation.stop.is_cancelled() =>
            {
                made += 1;
                over = make(invocation.clone()).await;
            }
            OnFailure::Tell | OnFailure::Retry => break,
            OnFailure::Instead(other) => {
                let bound = offer.traits.output_chars_max;
                over = CallOutcome::Result(bounded(other, &call.call_id, bound));
                break;
            }
        }
    }
    match over {
        CallOutcome::Result(mut result) => {
            let said = digest_of(&result.content).is_some();
            let before = said.then(|| result.content.clone());
            hooks.after_tool(at, &call, &mut result).await;
            if let Some(before) = before {
                stale_digest(&before, &mut result.content);
            }
            CallOutcome::Result(result)
        }
        CallOutcome::Asks(_) | CallOutcome::Abort(_) | CallOutcome::Lost(_) => over,
    }
}

/// Drops the tool's own digest of its result if a hook replaced the result.
fn stale_digest(before: &[ContentPart], content: &mut Vec<ContentPart>) {
    let said = |parts: &[ContentPart]| digest_of(parts).map(str::to_owned);
    let shown = |part: &&ContentPart| part.is_content();
    let changed = before.iter().filter(shown).ne(content.iter().filter(shown));
    if changed && said(before) == said(content) {
        content.retain(ContentPart::is_content);
    }
}

fn invalid(fault: String) -> CallOutcome {
    CallOutcome::Result(CallResult::error(Code::ToolInvalidArguments, fault))
}

/// Makes a call inside a trace span.
async fn traced(
    clock: Arc<dyn Clock>,
    begin: &Begin,
    name: &str,
    invocation: Invocation,
) -> CallOutcome {
    let (call_id, attempt) = (&invocation.call_id, invocation.attempt);
    let span = spans::execute_tool(invocation.session, name, call_id, attempt);
    let tells = begin.tells && !span.is_disabled();
    if tells {
        let arguments = Value::Object(invocation.arguments.clone());
        spans::content(&span, Told::Arguments, arguments);
    }
    let begun = clock.monotonic();
    let (tool, traits) = (begin.tool.as_ref(), begin.offer.traits);
    let made = run(clock.clone(), tool, traits, invocation);
    let over = made.instrument(span.clone()).await;
    let took = clock.monotonic().saturating_sub(begun);
    metrics::tool_called(tool.kind(), over.outcome(), took);
    match &over {
        CallOutcome::Result(result) => {
            if result.failed {
                let code = result.code.unwrap_or(Code::ToolFailed);
                spans::failed(&span, code);
            }
            if tells {
                let said = plain_text(&result.content);
                spans::content(&span, Told::Result, said.into());
            }
        }
        CallOutcome::Asks(_) => {}
        CallOutcome::Abort(_) => spans::failed(&span, Code::ToolFailed),
        CallOutcome::Lost(_) => spans::failed(&span, Code::ToolUnknownOutcome),
    }
    over
}

/// Makes a call within its time limit; a call that is told to stop has its grace period to report
/// how far it got.
async fn run(
    clock: Arc<dyn Clock>,
    tool: &dyn Tool,
    traits: Traits,
    invocation: Invocation,
) -> CallOutcome {
    let (call_id, stop) = (invocation.call_id.clone(), invocation.stop.clone());
    let call = AssertUnwindSafe(tool.call(invocation)).catch_unwind();
    tokio::pin!(call);
    let why = tokio::select! {
        biased;
        given = &mut call => return over(given, &call_id, traits),
        () = stop.cancelled() => (Code::ToolCancelled, "the call was stopped"),
        () = clock.sleep(traits.timeout) => (Code::ToolTimeout, "the tool did not answer in time"),
    };
    stop.cancel();
    let (code, text) = why;
    tokio::select! {
        biased;
        given = &mut call => match over(given, &call_id, traits) {
            // What it still reports is worth more than the fact that it was stopped, unless it
            // failed because of that.
            CallOutcome::Result(result) if !result.failed && code == Code::ToolCancelled => {
                CallOutcome::Result(result)
            }
            CallOutcome::Abort(message) => CallOutcome::Abort(message),
            CallOutcome::Result(_) | CallOutcome::Asks(_) | CallOutcome::Lost(_) => {
                CallOutcome::Result(ended(code, text, traits))
            }
        },
        () = clock.sleep(traits.grace) => CallOutcome::Result(ended(code, text, traits)),
    }
}

fn ended(code: Code, text: &str, traits: Traits) -> CallResult {
    let doubt = match traits.repeat {
        Repeat::Safe => "",
        Repeat::Keyed | Repeat::Once => "; whether it took effect is not known",
    };
    CallResult::error(code, format!("error: {text}{doubt}"))
}

type Given = std::thread::Result<Result<Output, ToolError>>;

fn over(given: Given, call_id: &str, traits: Traits) -> CallOutcome {
    let result = match given {
        Ok(Ok(output)) => {
            let mut content = output.content;
            let mut shown = content.iter().filter(|part| part.is_content());
            let only_text = shown.all(|part| matches!(part, ContentPart::Text { .. }));
            if only_text && plain_text(&content).is_empty() {
                content.retain(|part| !part.is_content());
                content.insert(0, ContentPart::text("(no output)"));
            }
            CallResult {
                content,
                value: output.value.map(Box::new),
                failed: output.failed,
                code: output.failed.then_some(Code::ToolFailed),
                ..CallResult::text("")
            }
        }
        Ok(Err(ToolError::Reply { code, message })) => {
            CallResult::error(code, format!("error: {message}"))
        }
        Ok(Err(ToolError::Asks(inquiry))) => return CallOutcome::Asks(inquiry),
        Ok(Err(ToolError::Abort { message })) => return CallOutcome::Abort(message),
        Ok(Err(ToolError::Lost { message })) => return CallOutcome::Lost(message),
        Err(_) => CallResult::error(Code::ToolFailed, "error: the tool crashed because of a bug"),
    };
    CallOutcome::Result(bounded(result, call_id, traits.output_chars_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_goes_with_the_result_that_it_is_of() {
        let digest = |text: &str| ContentPart::Digest { text: text.into() };
        let before = [ContentPart::text("a secret"), digest("found a secret")];
        let after = |content: &[ContentPart]| {
            let mut content = content.to_vec();
            stale_digest(&before, &mut content);
            content
        };
        assert_eq!(after(&before), before);
        let removed = [ContentPart::text("nothing"), digest("found a secret")];
        assert_eq!(after(&removed), removed[..1]);
        let replaced = [ContentPart::text("nothing"), digest("found nothing")];
        assert_eq!(after(&replaced), replaced);
    }

    #[test]
    fn an_output_of_nothing_says_so_and_keeps_its_digest() {
        let traits = Traits::new(Repeat::Safe);
        let output = Output::default().with_digest("did it");
        let CallOutcome::Result(result) = over(Ok(Ok(output)), "c", traits) else {
            panic!("a result");
        };
        assert_eq!(plain_text(&result.content), "(no output)");
        assert_eq!(digest_of(&result.content), Some("did it"));
    }
}
