//! The ids of this API, all derived from those of sends and sessions, so that every scheduler gives the same.

use std::fmt;

use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionId};

/// A response: what a send says from one round on, up to its end or up to the calls that the client has to answer.
/// Printed as `resp_` and the send's digits, with `_ROUND` for those that continue after such calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseId {
    pub(crate) send: SendId,
    /// Its first round.
    pub(crate) round: i32,
}

const RESPONSE: &str = "resp_";
const CONVERSATION: &str = "conv_";
const COMPLETION: &str = "chatcmpl-";

impl ResponseId {
    pub(super) fn new(send: SendId, round: i32) -> Self {
        Self { send, round }
    }

    /// The response with this printed id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::after(text, RESPONSE)
    }

    /// The same, printed as the id of a chat completion.
    pub(super) fn of_completion(text: &str) -> Option<Self> {
        Self::after(text, COMPLETION)
    }

    fn after(text: &str, prefix: &str) -> Option<Self> {
        let rest = text.strip_prefix(prefix)?;
        let (hex, round) = rest.split_once('_').unwrap_or((rest, "0"));
        let send = format!("{}{hex}", SendId::PREFIX).parse().ok()?;
        let round: i32 = round.parse().ok().filter(|round| *round >= 0)?;
        let id = Self { send, round };
        (id.tail() == rest).then_some(id)
    }

    fn tail(self) -> String {
        match self.round {
            0 => self.send.0.simple().to_string(),
            round => format!("{}_{round}", self.send.0.simple()),
        }
    }

    /// Its printed form as the id of a chat completion.
    pub(super) fn completion(self) -> String {
        format!("{COMPLETION}{}", self.tail())
    }

    /// The response that continues the send once the calls of a round are answered. None if the call is not one of ours.
    pub(super) fn behind_call(call: &str) -> Option<Self> {
        let mut parts = call.strip_prefix("call_")?.splitn(3, '_');
        let send = format!("{}{}", SendId::PREFIX, parts.next()?);
        let round: i32 = parts.next()?.parse().ok()?;
        parts.next()?;
        Some(Self {
            send: send.parse().ok()?,
            round: round.checked_add(1)?,
        })
    }

    pub(super) fn not_found() -> Error {
        Error::new(Code::SendNotFound, "no response has this id")
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{RESPONSE}{}", self.tail())
    }
}

/// The printed id of a session's conversation.
pub(super) fn conversation(session: SessionId) -> String {
    format!("{CONVERSATION}{}", session.0.simple())
}

/// The session of the conversation with this printed id.
pub(crate) fn session(text: &str) -> Option<SessionId> {
    let hex = text.strip_prefix(CONVERSATION)?;
    format!("{}{hex}", SessionId::PREFIX).parse().ok()
}

/// The item of what a round says. An attempt whose text was void before it has the plain id.
pub(super) fn message(send: SendId, round: i32, attempt: Option<i32>) -> String {
    item("msg", send, round, attempt)
}

/// The item of a round's reasoning.
pub(super) fn reasoning(send: SendId, round: i32, attempt: Option<i32>) -> String {
    item("rs", send, round, attempt)
}

fn item(kind: &str, send: SendId, round: i32, attempt: Option<i32>) -> String {
    let again = attempt.map(|attempt| format!("_{attempt}"));
    let again = again.unwrap_or_default();
    format!("{kind}_{}_{round}{again}", send.0.simple())
}

/// The item of a call.
pub(super) fn call(call: &str) -> String {
    format!("fc_{}", call.strip_prefix("call_").unwrap_or(call))
}

/// The item of a call's result.
pub(super) fn output(call: &str) -> String {
    format!("fco_{}", call.strip_prefix("call_").unwrap_or(call))
}

/// The item of what was said to a session at this place.
pub(super) fn input(send: SendId, seq: i64) -> String {
    format!("msg_{}_in{seq}", send.0.simple())
}

/// The send that an item belongs to, and the item's id without its attempt: a transcript has one only.
pub(super) fn of_item(text: &str) -> Option<(SendId, String)> {
    let (kind, rest) = text.split_once('_')?;
    let mut parts = rest.splitn(3, '_');
    let hex = parts.next()?;
    let send = format!("{}{hex}", SendId::PREFIX).parse().ok()?;
    let id = match (kind, parts.next()?) {
        ("msg", place) => format!("msg_{hex}_{place}"),
        ("fc" | "fco", _) => text.to_owned(),
        _ => return None,
    };
    Some((send, id))
}

/// Whether an item is what a model thought.
pub(super) fn is_reasoning(text: &str) -> bool {
    text.starts_with("rs_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_id_is_read_back_and_no_other_form() {
        let send: SendId = format!("snd_{}", "0f".repeat(16)).parse().expect("an id");
        for round in [0, 1, 12] {
            let id = ResponseId::new(send, round);
            assert_eq!(ResponseId::parse(&id.to_string()), Some(id));
            assert_eq!(ResponseId::of_completion(&id.completion()), Some(id));
        }
        let hex = "0f".repeat(16);
        for text in [
            format!("resp_{hex}_0"),
            format!("resp_{hex}_01"),
            format!("resp_{hex}_-1"),
            format!("resp_{hex}_"),
            format!("snd_{hex}"),
            "resp_".to_owned(),
        ] {
            assert_eq!(ResponseId::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_call_leads_to_the_response_that_continues_it() {
        let send: SendId = format!("snd_{}", "0f".repeat(16)).parse().expect("an id");
        let call = mainspring_shared::tool::call_id(send, 2, 1);
        assert_eq!(
            ResponseId::behind_call(&call),
            Some(ResponseId::new(send, 3))
        );
        assert_eq!(ResponseId::behind_call("call_abc"), None);
        assert_eq!(ResponseId::behind_call("toolu_1"), None);
    }

    #[test]
    fn an_item_leads_to_its_send() {
        let send: SendId = format!("snd_{}", "0f".repeat(16)).parse().expect("an id");
        let call = mainspring_shared::tool::call_id(send, 2, 1);
        for (id, plain) in [
            (message(send, 3, None), message(send, 3, None)),
            (message(send, 3, Some(2)), message(send, 3, None)),
            (input(send, 7), input(send, 7)),
            (super::call(&call), super::call(&call)),
            (output(&call), output(&call)),
        ] {
            assert_eq!(of_item(&id), Some((send, plain)), "{id}");
        }
        for id in ["msg_1", "msg_1_2", "fc_call", "", "item"] {
            assert_eq!(of_item(id), None, "{id}");
        }
    }
}
