//! Checks on the calls of an answer before its round is stored: whether their arguments match, and
//! what hooks say about those that do not run here.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use mainspring_shared::error::Code;
use mainspring_shared::message::{Arguments, ToolCall as Asked};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{CallResult, call_id};
use serde_json::Value;

use crate::hook::{At, CombinedVerdict, Hooks, ToolCall};
use crate::tool::{Executor, Offers};

/// Maximum number of calls of one answer; further calls are refused. More means the model ran wild.
pub(super) const CALLS_MAX: usize = 128;

/// Maximum size in bytes of one call's arguments: enough for a file.
const ARGUMENTS_BYTES_MAX: usize = 1 << 20;

/// How many calls of one answer hooks are asked about at once.
const AT_ONCE_MAX: usize = 16;

/// A call of an answer, as it is to be stored.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Vetted {
    /// What the model said, or a note if that is too large.
    pub(super) said: Arguments,
    /// The arguments of the call, after hooks changed them.
    pub(super) arguments: Arguments,
    /// Its result, if it is not made.
    pub(super) result: Option<CallResult>,
}

/// What calls are vetted with.
#[derive(Debug, Clone)]
pub(super) struct Vetting {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hooks: Arc<Hooks>,
    pub(super) offers: Offers,
    pub(super) at: At,
}

impl Vetting {
    /// Vets every call of an answer; `None` if the send ends without them.
    pub(super) async fn calls(&self, calls: &[Asked]) -> Option<Vec<Vetted>> {
        let instead = match self.instead(calls).await {
            CombinedVerdict::Go => None,
            CombinedVerdict::Instead(result) => Some(result),
            CombinedVerdict::End => return None,
        };
        if let Some(result) = instead {
            let vetted = calls.iter().map(|call| Vetted {
                said: call.arguments.clone(),
                arguments: call.arguments.clone(),
                result: Some(result.clone()),
            });
            return Some(vetted.map(bounded).collect());
        }
        let calls = stream::iter(calls.iter().cloned().enumerate());
        let vetted = calls.map(|(place, call)| self.call(place, call));
        Some(vetted.buffered(AT_ONCE_MAX).collect().await)
    }

    /// The result that hooks give all calls of an answer instead, if any.
    async fn instead(&self, calls: &[Asked]) -> CombinedVerdict<CallResult> {
        if self.hooks.is_empty() {
            return CombinedVerdict::Go;
        }
        let asked = calls.iter().enumerate().map(|(place, call)| ToolCall {
            call_id: call_id(self.at.send, self.at.round, place),
            name: call.name.clone(),
            // A value that is not an object matches no tool.
            said: Some(call.arguments.text().into()),
            arguments: call.arguments.as_object().cloned().unwrap_or_default(),
        });
        let asked: Vec<ToolCall> = asked.collect();
        self.hooks.before_calls(self.at, &asked).await
    }

    async fn call(&self, place: usize, call: Asked) -> Vetted {
        let mut vetted = bounded(Vetted {
            said: call.arguments.clone(),
            arguments: call.arguments.clone(),
            result: None,
        });
        if vetted.result.is_some() {
            return vetted;
        }
        if place >= CALLS_MAX {
            let fault = format!("an answer has at most {CALLS_MAX} calls; this one was not made");
            vetted.result = Some(invalid(fault));
            return vetted;
        }
        let Some(offer) = self.offers.get(&call.name) else {
            return vetted;
        };
        // What the tool would get is not what the model said.
        if let Some(fault) = call.arguments.fault() {
            let name = &call.name;
            vetted.result = Some(invalid(format!(
                "the arguments of {name} cannot be used: {fault}"
            )));
            return vetted;
        }
        let clock = self.clock.as_ref();
        let arguments = match offer.arguments(clock, &call.arguments).await {
            Ok(arguments) => arguments,
            Err(fault) => {
                vetted.result = Some(invalid(fault));
                return vetted;
            }
        };
        if let Some(fault) = offer.question(&call.arguments).and_then(|q| q.fault()) {
            vetted.result = Some(invalid(fault.to_owned()));
            return vetted;
        }
        // Calls that run here are vetted by hooks when they start, and again when they are
        // repeated.
        if self.hooks.is_empty() || matches!(offer.place, Executor::Here(_)) {
            return vetted;
        }
        let mut asked = ToolCall {
            call_id: call_id(self.at.send, self.at.round, place),
            name: call.name.clone(),
            said: Some(call.arguments.text().into()),
            arguments,
        };
        vetted.result = self.hooks.before_tool(self.at, &mut asked).await;
        let arguments = Value::Object(asked.arguments);
        if vetted.result.is_none() && arguments != *vetted.arguments.value() {
            vetted.result = offer.arguments(clock, &arguments).await.err().map(invalid);
            vetted.arguments = arguments.into();
        }
        vetted
    }
}

fn invalid(message: String) -> CallResult {
    CallResult::error(Code::ToolInvalidArguments, message)
}

/// Replaces arguments that are too large to store with a note.
fn bounded(vetted: Vetted) -> Vetted {
    let bytes = vetted.said.len();
    if bytes <= ARGUMENTS_BYTES_MAX {
        return vetted;
    }
    let note = format!("[{bytes} bytes of arguments left out]");
    let note = Arguments::from(Value::String(note));
    let fault = format!("arguments have at most {ARGUMENTS_BYTES_MAX} bytes, these had {bytes}");
    Vetted {
        said: note.clone(),
        arguments: note,
        result: Some(invalid(fault)),
    }
}
