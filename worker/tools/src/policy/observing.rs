//! The notifications of a policy that cannot change anything.

use mainspring_shared::message::NewMessage;
use mainspring_worker::hook::{At, Moment};
use serde_json::{Value, json};

use super::Point;

/// The request's id and content, if this moment belongs to the point. The id is the same however
/// often and by whichever worker the same moment is reported, except when another worker took the
/// send.
pub(super) fn told(point: Point, at: At, moment: &Moment<'_>) -> Option<(String, Value)> {
    match (point, moment) {
        (Point::SendStarted, Moment::SendStarted) => {
            let id = format!("started_{}_{}", at.send, at.life);
            Some((id, json!({ "round": at.round })))
        }
        (Point::SendEnded, Moment::SendEnded(status)) => {
            let id = format!("ended_{}", at.send);
            Some((id, json!({ "status": status.as_str(), "round": at.round })))
        }
        (
            Point::MessagesStored,
            Moment::MessagesStored {
                first_seq,
                messages,
            },
        ) => {
            let id = format!("stored_{}_{first_seq}", at.send);
            let messages: Vec<_> = messages.iter().zip(*first_seq..).map(shown).collect();
            Some((id, json!({ "messages": messages, "round": at.round })))
        }
        (Point::FoldStored, Moment::FoldStored(fold)) => {
            // A fold of folds may cover the same messages.
            let span = format!("{}_{}_{}", fold.from_seq, fold.to_seq, fold.level);
            let id = format!("folded_{}_{span}", at.send);
            let stored = json!({
                "from_seq": fold.from_seq,
                "to_seq": fold.to_seq,
                "kind": fold.kind.as_str(),
                "text": fold.text,
                "tokens_before": fold.tokens_before,
                "tokens_after": fold.tokens_after,
                "round": at.round,
            });
            Some((id, stored))
        }
        _ => None,
    }
}

fn shown((message, seq): (&NewMessage, i64)) -> Value {
    json!({
        "seq": seq,
        "role": message.role,
        "content": message.content,
        "tool_calls": message.tool_calls,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "failed": message.failed,
        "round": message.round,
    })
}
