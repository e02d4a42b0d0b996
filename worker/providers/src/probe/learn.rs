//! Finds out which rules an endpoint has, member by member: a request that needs one of them is sent by one form of it
//! after the other until it is accepted.

use std::sync::Arc;

use mainspring_shared::agent::{OutputSpec, ReasoningEffort};
use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_worker::llm::{Error, Reply, Request, Share};
use serde_json::json;
use uuid::Uuid;

use super::{note, request};
use crate::open::made;
use crate::rules::{CallIds, OutputLimit, ReasoningBack, Rules, Said, Sampling, ToolsAtResponses};
use crate::settings::ProviderSettings;

/// The id of a call that no endpoint gave, as sessions have them.
const FOREIGN_ID: &str = "call_0123456789abcdef0123456789abcdef_0_0";

/// Efforts by name, as refusals list them.
const EFFORTS: [(&str, ReasoningEffort); 7] = [
    ("none", ReasoningEffort::None),
    ("minimal", ReasoningEffort::Minimal),
    ("low", ReasoningEffort::Low),
    ("medium", ReasoningEffort::Medium),
    ("high", ReasoningEffort::High),
    ("xhigh", ReasoningEffort::XHigh),
    ("max", ReasoningEffort::Max),
];

/// What was learnt of an endpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Learned {
    /// The members in which it differs from what is built in and configured.
    pub said: Said,
    /// Members that could not be learnt, and why.
    pub failed: Vec<(&'static str, String)>,
}

/// Asks a model at an endpoint with some twenty small requests, most of which are only needed where something is
/// refused. Fails if the simplest one does in each form.
pub async fn learn(
    settings: &ProviderSettings,
    model: &str,
    clock: &Arc<dyn Clock>,
) -> Result<Learned, Error> {
    let mut learner = Learner {
        settings,
        clock,
        name: model,
        learned: Learned::default(),
    };
    learner.limit().await?;
    learner.samplings().await;
    learner.efforts().await;
    if let Some(turn) = learner.tools().await {
        learner.back(&turn).await;
        learner.ids(&turn).await;
        learner.user_after_tool(&turn).await;
    }
    learner.schema_with_tools().await;
    Ok(learner.learned)
}

struct Learner<'a> {
    settings: &'a ProviderSettings,
    clock: &'a Arc<dyn Clock>,
    name: &'a str,
    learned: Learned,
}

impl Learner<'_> {
    /// Sends a request under what was learnt so far and `also`.
    async fn ask(&self, request: &Request, also: &Said) -> Result<Reply, Error> {
        let mut settings = self.settings.clone();
        let own = settings
            .rules
            .by_model
            .entry(self.name.to_ascii_lowercase());
        let own = own.or_default();
        own.lay(&self.learned.said);
        own.lay(also);
        let model = made(&settings, &Share::default(), self.clock).map_err(|error| {
            Error::InvalidRequest {
                message: error.to_string(),
            }
        })?;
        model.complete(request, &mut |_| {}).await
    }

    /// Tries one form of a member after the other. What is accepted is kept unless it is the first one, which stands
    /// for the present rules.
    async fn first(
        &mut self,
        member: &'static str,
        request: &Request,
        forms: &[Said],
    ) -> Result<Reply, Error> {
        let mut refused = None;
        for (at, form) in forms.iter().enumerate() {
            match self.ask(request, form).await {
                Ok(reply) => {
                    if at > 0 {
                        self.learned.said.lay(form);
                    }
                    return Ok(reply);
                }
                Err(error) if is_refusal(&error) => refused = Some(error),
                Err(error) => return Err(self.fail(member, error)),
            }
        }
        let refused = refused.unwrap_or_else(|| Error::InvalidRequest {
            message: "no form was tried".to_owned(),
        });
        Err(self.fail(member, refused))
    }

    fn fail(&mut self, member: &'static str, error: Error) -> Error {
        self.learned.failed.push((member, error.to_string()));
        error
    }

    async fn limit(&mut self) -> Result<(), Error> {
        let request = request(self.name, "Say ok.");
        let limit = |limit| Said {
            output_limit: Some(limit),
            ..Said::default()
        };
        let plain = |limit| Said {
            stream_options: Some(false),
            output_limit: Some(limit),
            ..Said::default()
        };
        let forms = [
            Said::default(),
            limit(OutputLimit::MaxCompletionTokens),
            limit(OutputLimit::MaxTokens),
            plain(OutputLimit::MaxTokens),
            plain(OutputLimit::MaxCompletionTokens),
        ];
        let asked = self.first("output_limit", &request, &forms).await;
        asked.map(|_| ())
    }

    async fn samplings(&mut self) {
        let any = Said {
            temperature: Some(Sampling::Any),
            ..Said::default()
        };
        let none = Said {
            temperature: Some(Sampling::None),
            top_p: Some(Sampling::None),
            ..Said::default()
        };
        let sampled = Request {
            temperature: Some(0.3),
            ..request(self.name, "Say ok.")
        };
        let _ = self.first("temperature", &sampled, &[any, none]).await;
        let stops = Request {
            stop: vec!["END".to_owned()],
            ..request(self.name, "Say ok.")
        };
        let [yes, no] = [true, false].map(|stop| Said {
            stop: Some(stop),
            ..Said::default()
        });
        let _ = self.first("stop", &stops, &[yes, no]).await;
    }

    /// Asks for the most effort. A refusal usually lists what is accepted.
    async fn efforts(&mut self) {
        let most = Request {
            reasoning_effort: Some(ReasoningEffort::Max),
            ..request(self.name, "Say ok.")
        };
        let efforts = |efforts: Vec<ReasoningEffort>| Said {
            efforts: Some(efforts),
            ..Said::default()
        };
        let all = efforts(EFFORTS.map(|(_, effort)| effort).to_vec());
        let message = match self.ask(&most, &all).await {
            Ok(_) => return,
            Err(error) if is_refusal(&error) => error.to_string(),
            Err(error) => {
                self.fail("efforts", error);
                return;
            }
        };
        let listed = listed(&message);
        let usual = [
            ReasoningEffort::Low,
            ReasoningEffort::Medium,
            ReasoningEffort::High,
        ];
        let mut forms = vec![Said::default()];
        forms.extend((!listed.is_empty()).then(|| efforts(listed)));
        forms.extend([efforts(usual.to_vec()), efforts(Vec::new())]);
        let _ = self.first("efforts", &most, &forms).await;
    }

    /// Has it call a tool; returns its turn.
    async fn tools(&mut self) -> Option<Reply> {
        let mut asking = request(self.name, "Call the tool `note` with the text \"ok\".");
        asking.tools.push(note());
        let elsewhere = Said {
            tools_at_responses: Some(ToolsAtResponses::Always),
            ..Said::default()
        };
        let forms = [Said::default(), elsewhere];
        let reply = self.first("tools", &asking, &forms).await.ok()?;
        (!reply.tool_calls.is_empty()).then_some(reply)
    }

    async fn schema_with_tools(&mut self) {
        let schema = json!({
            "type": "object",
            "properties": { "sum": { "type": "integer" } },
            "required": ["sum"],
            "additionalProperties": false,
        });
        let Some((spec, _)) = OutputSpec::read(&schema)
            .ok()
            .filter(|_| self.settings.native_schema)
        else {
            return;
        };
        let mut asking = request(self.name, "What is 17 and 25?");
        asking.tools.push(note());
        asking.output = Some(Arc::new(spec));
        let [yes, no] = [true, false].map(|both| Said {
            schema_with_tools: Some(both),
            ..Said::default()
        });
        let _ = self.first("schema_with_tools", &asking, &[yes, no]).await;
    }

    /// Sends the model's own turn back.
    async fn back(&mut self, turn: &Reply) {
        let back = |member| Said {
            reasoning_back: Some(member),
            ..Said::default()
        };
        let empty = Said {
            reasoning_empty: Some(true),
            ..back(ReasoningBack::ReasoningContent)
        };
        let forms = [
            Said::default(),
            back(ReasoningBack::AsItCame),
            back(ReasoningBack::None),
            back(ReasoningBack::ReasoningContent),
            empty,
        ];
        let again = self.answered(turn, false);
        let _ = self.first("reasoning_back", &again, &forms).await;
    }

    /// Sends the turn back as if another endpoint had made its calls.
    async fn ids(&mut self, turn: &Reply) {
        let form = |ids, chars| Said {
            call_ids: Some(ids),
            call_ids_max: Some(chars),
            ..Said::default()
        };
        let chars = Rules::default().call_ids_max;
        let forms = [
            Said::default(),
            form(CallIds::Any, 40),
            form(CallIds::Nine, chars),
            form(CallIds::Functions, chars),
        ];
        let again = self.answered(turn, true);
        let _ = self.first("call_ids", &again, &forms).await;
    }

    async fn user_after_tool(&mut self, turn: &Reply) {
        let mut again = self.answered(turn, false);
        again.tail = Some("Answer briefly.".to_owned());
        let [yes, no] = [true, false].map(|after| Said {
            user_after_tool: Some(after),
            ..Said::default()
        });
        let _ = self.first("user_after_tool", &again, &[yes, no]).await;
    }

    /// The request of the round after a turn with calls.
    fn answered(&self, turn: &Reply, foreign: bool) -> Request {
        let mut again = request(self.name, "Call the tool `note` with the text \"ok\".");
        again.tools.push(note());
        let call = |(at, call): (usize, &ToolCall)| {
            if foreign {
                let id = format!("{FOREIGN_ID}{at}");
                ToolCall::new(id, call.name.clone(), call.arguments.clone())
            } else {
                call.clone()
            }
        };
        let calls: Vec<ToolCall> = turn.tool_calls.iter().enumerate().map(call).collect();
        let results = calls.iter().map(|call| NewMessage {
            role: Role::Tool,
            tool_call_id: Some(call.id.clone()),
            ..NewMessage::user(vec![ContentPart::text("noted")], 0)
        });
        let asked = NewMessage {
            role: Role::Assistant,
            tool_calls: calls.clone(),
            ..NewMessage::user(turn.content.clone(), 0)
        };
        let messages = std::iter::once(asked).chain(results);
        again.messages.extend(messages.zip(2..).map(stored));
        again
    }
}

fn stored((message, seq): (NewMessage, i64)) -> Arc<Message> {
    Arc::new(message.at(seq, SendId(Uuid::from_u128(1)), Timestamp::default(), 0))
}

/// Whether the endpoint refuses the request as it is.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Amended { .. }) || error.code() == Code::LlmInvalidRequest
}

/// The efforts that a refusal lists, if it lists several.
fn listed(message: &str) -> Vec<ReasoningEffort> {
    let text = message.to_ascii_lowercase();
    // What was asked for is repeated, often before the list.
    let list = text.rsplit("supported").next().unwrap_or_default();
    let words: Vec<&str> = list.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let named = EFFORTS.iter().filter(|(word, _)| words.contains(word));
    let named: Vec<_> = named.map(|(_, effort)| *effort).collect();
    if named.len() > 1 { named } else { Vec::new() }
}

#[cfg(test)]
mod tests;
