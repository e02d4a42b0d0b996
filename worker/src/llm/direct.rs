//! No model at all: the user's message names one tool call, whose output is the answer.
//!
//! Workflow leaves that are a tool call or a person's decision are sends like all others; this
//! provider runs them.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::message::{Message, Role, ToolCall, plain_text};
use mainspring_shared::usage::Usage;
use serde::Deserialize;
use serde_json::Value;

use super::{Chunk, Error, Finish, Model, Reply, Request};

/// The provider's name: agents reach it as `mainspring/direct` only.
pub(super) const PROVIDER: &str = "mainspring";

/// Its one model.
pub(super) const MODEL: &str = "direct";

/// Requests the call that the user's message names, and answers with its output.
#[derive(Debug)]
pub(super) struct Direct;

/// The content of the user's message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    tool: String,
    #[serde(default)]
    arguments: Value,
}

#[async_trait]
impl Model for Direct {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let output = output(&request.messages)?;
        let (content, tool_calls, finish) = match output {
            Some(result) => {
                let text = plain_text(&result.content);
                on_chunk(Chunk::Text(&text));
                let content = result.content.iter().filter(|part| part.is_content());
                (content.cloned().collect(), Vec::new(), Finish::Stop)
            }
            None => (
                Vec::new(),
                vec![call(&request.messages)?],
                Finish::ToolCalls,
            ),
        };
        Ok(Reply {
            content,
            tool_calls,
            finish,
            usage: Usage::default(),
            model: request.model.clone(),
        })
    }
}

/// The output of the call, once it exists. A failed call fails the send.
fn output(messages: &[Arc<Message>]) -> Result<Option<&Message>, Error> {
    let since = messages.iter().rev();
    let mut since = since.take_while(|message| message.role != Role::User);
    let Some(result) = since.find(|message| message.role == Role::Tool) else {
        return Ok(None);
    };
    if result.failed {
        return Err(Error::CallFailed {
            message: plain_text(&result.content),
        });
    }
    Ok(Some(result))
}

fn call(messages: &[Arc<Message>]) -> Result<ToolCall, Error> {
    let mut users = messages.iter().filter(|message| message.role == Role::User);
    let words = users.next().map(|message| plain_text(&message.content));
    let order: Order = serde_json::from_str(&words.unwrap_or_default()).map_err(|error| {
        Error::InvalidRequest {
            message: format!("the words are no call of a tool: {error}"),
        }
    })?;
    Ok(ToolCall::new("direct", order.tool, order.arguments))
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::SendId;
    use mainspring_shared::message::{ContentPart, NewMessage};
    use mainspring_shared::time::Timestamp;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    async fn ask(messages: Vec<NewMessage>) -> Result<Reply, Error> {
        let send = SendId(Uuid::from_u128(1));
        let messages = messages.into_iter().zip(1..);
        let messages = messages.map(|(m, seq)| Arc::new(m.at(seq, send, Timestamp(0), 1)));
        let request = Request {
            model: MODEL.to_owned(),
            messages: messages.collect(),
            ..crate::llm::bare_request()
        };
        Direct.complete(&request, &mut |_| {}).await
    }

    fn says(text: &str) -> NewMessage {
        NewMessage::user(vec![ContentPart::text(text)], 0)
    }

    fn result(failed: bool) -> NewMessage {
        NewMessage {
            role: Role::Tool,
            failed,
            ..says("noon")
        }
    }

    const ORDER: &str = r#"{"tool": "current_time", "arguments": {"zone": "UTC"}}"#;

    #[tokio::test]
    async fn the_words_are_a_call_and_its_output_is_the_answer() {
        let asked = ask(vec![says(ORDER)]).await.expect("asks");
        assert_eq!(asked.finish, Finish::ToolCalls);
        assert_eq!(asked.tool_calls[0].name, "current_time");
        assert_eq!(asked.tool_calls[0].arguments, json!({ "zone": "UTC" }));
        let done = ask(vec![says(ORDER), result(false)])
            .await
            .expect("answers");
        assert_eq!(
            (plain_text(&done.content), done.finish),
            ("noon".into(), Finish::Stop)
        );
    }

    #[tokio::test]
    async fn a_call_that_failed_and_words_that_are_none_fail() {
        let failed = ask(vec![says(ORDER), result(true)]).await;
        assert!(
            matches!(failed, Err(Error::CallFailed { .. })),
            "{failed:?}"
        );
        let strange = ask(vec![says("hello")]).await;
        assert!(
            matches!(strange, Err(Error::InvalidRequest { .. })),
            "{strange:?}"
        );
    }
}
