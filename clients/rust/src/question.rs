//! What persons are asked.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::clock;
use crate::error::Error;
use crate::types::{Asked, PostedResultStatus, ResultBody, ResultsBody, WaitingCall};

/// A call that waits for a person: a question, or one that needs an approval. It takes one answer, the first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Question {
    /// The call.
    pub call: WaitingCall,
    client: Client,
}

impl Question {
    pub(crate) fn new(client: Client, call: WaitingCall) -> Self {
        Self { call, client }
    }

    /// What a person is asked.
    pub fn text(&self) -> String {
        let call = &self.call;
        if let Some(asks) = &call.asks {
            return asks.message.clone();
        }
        if call.wants == Asked::Permission {
            return format!("May {} be called with {}?", call.name, call.arguments);
        }
        match call.arguments["question"].as_str() {
            Some(question) => question.to_owned(),
            None => format!("{}: {}", call.name, call.arguments),
        }
    }

    /// Answers it. Whether this answer counts: not if there was one already, also one of an earlier attempt of yours.
    pub async fn answer(&self, value: impl Into<Value>) -> Result<bool, Error> {
        let value = value.into();
        self.post(match self.call.asks {
            Some(_) => json!({"action": "accept", "content": value}),
            None => value,
        })
        .await
    }

    /// Lets the call be made. Whether this answer counts.
    pub async fn approve(&self, note: Option<&str>) -> Result<bool, Error> {
        self.decide(true, note).await
    }

    /// Does not; the model reads the note. Whether this answer counts.
    pub async fn deny(&self, note: Option<&str>) -> Result<bool, Error> {
        self.decide(false, note).await
    }

    async fn decide(&self, approved: bool, note: Option<&str>) -> Result<bool, Error> {
        let mut output = json!({"approved": approved});
        if self.call.asks.is_some() {
            output = json!({"action": if approved { "accept" } else { "decline" }});
        } else if let Some(note) = note {
            output["note"] = note.into();
        }
        self.post(output).await
    }

    async fn post(&self, output: Value) -> Result<bool, Error> {
        let asks = self.call.asks.as_ref();
        let wants = &self.call.wants;
        let is_simple = [Asked::Permission, Asked::Answer].contains(wants);
        let result = ResultBody {
            call_id: self.call.call_id.clone(),
            output: Some(output),
            question: asks.and_then(|asks| u32::try_from(asks.question).ok()),
            answers: (asks.is_none() && is_simple).then(|| wants.clone()),
            ..ResultBody::default()
        };
        let posted = post(&self.client, &self.call.session_id, &result).await?;
        Ok(posted == PostedResultStatus::Accepted)
    }
}

/// Posts a result, again while another transaction holds the session. What became of it.
pub(crate) async fn post(
    client: &Client,
    session: &str,
    result: &ResultBody,
) -> Result<PostedResultStatus, Error> {
    let body = ResultsBody {
        results: vec![result.clone()],
    };
    let mut pauses = [100, 500, 2_000].into_iter();
    loop {
        let posted = client.api().post_tool_results(session, &body).await?;
        let status = posted.results.into_iter().next().map(|one| one.status);
        let status = status.ok_or_else(|| Error::Mismatch("a result has no outcome".to_owned()))?;
        match pauses.next() {
            Some(pause) if status == PostedResultStatus::Locked => {
                clock::sleep(Duration::from_millis(pause)).await;
            }
            _ => return Ok(status),
        }
    }
}
