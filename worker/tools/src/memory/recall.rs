//! `recall`: what was said in this conversation, including what the model is no longer shown.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use mainspring_shared::blob::absent;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionId, SessionKey};
use mainspring_shared::message::{ContentPart, Message, Role, ToolCall, plain_text};
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::{FindMessages, ListSends};
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use super::shared::{self, MemoryTools};
use crate::words::counted;
use mainspring_worker::tool::{Effect, Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// The tool's name.
const NAME: &str = "recall";

/// Messages listed by one call: the default, and the maximum.
const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 50;

/// Characters shared by the messages of a list, and the minimum for each.
const LIST_CHARS: usize = 12_000;
const ROW_CHARS_MIN: usize = 240;

/// Maximum characters shown of one message that is read by its number.
const ROW_CHARS: usize = 40_000;

/// Characters shown of a conversation's first message in a list of conversations.
const CHILD_CHARS: usize = 120;

/// Conversations of such a list that are looked up concurrently.
const CHILDREN_AT_ONCE: usize = 8;

/// Messages that one search looks at; the output says where it stopped.
const SCANNED_MAX: usize = 2_000;

/// Messages fetched by one read.
const PAGE: u32 = 200;

/// Maximum distance, in sends, at which a past send can be addressed.
const SENDS_BACK_MAX: i64 = 10_000;

#[derive(Debug, Deserialize)]
struct Arguments {
    #[serde(default)]
    send: Option<serde_json::Value>,
    #[serde(default)]
    seq: Option<i64>,
    #[serde(default)]
    query: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    children: bool,
    #[serde(default)]
    before_seq: Option<i64>,
    #[serde(default)]
    after_seq: Option<i64>,
    #[serde(default)]
    offset: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
}

/// What the call asks for.
#[derive(Debug)]
struct Search {
    key: SessionKey,
    /// The send that asks, whose own messages never match.
    running: SendId,
    send: Option<SendId>,
    query: Option<String>,
    after: i64,
    before: i64,
    limit: usize,
}

/// `recall`: finds messages by send, by number or by content.
#[derive(Debug)]
pub(super) struct Recall {
    pub(super) shared: Arc<MemoryTools>,
}

#[async_trait]
impl Tool for Recall {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description:
                "Reads earlier messages of this conversation, including those that you do \
                          not see any more. Give `seq` for one message in full, `send` for all \
                          messages of one task (its id, or -1 for the one before this, -2 for the \
                          one before that), `query` to search, or nothing for the latest messages. \
                          `session_id` reads a conversation that you started, and `children` lists \
                          them. Lists show the newest matches in order; long messages are cut."
                    .into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "send": {"type": ["string", "integer"]},
                    "seq": {"type": "integer", "minimum": 1},
                    "query": {"type": "string", "minLength": 1, "maxLength": 500},
                    "session_id": {"type": "string", "minLength": 1, "maxLength": 100},
                    "children": {"type": "boolean"},
                    "before_seq": {"type": "integer", "minimum": 1},
                    "after_seq": {"type": "integer", "minimum": 0},
                    "offset": {
                        "type": "integer", "minimum": 0,
                        "description": "With `seq`: characters to skip."
                    },
                    "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            effect: Effect::ReadBack,
            ..Traits::new(Repeat::Safe)
        }
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let asking = invocation.session;
        let arguments: Arguments = shared::arguments(invocation.arguments)?;
        let key = match &arguments.session_id {
            None => asking,
            Some(text) => self.child(asking, text).await?,
        };
        if arguments.children {
            let limit = arguments.limit.unwrap_or(LIMIT_DEFAULT);
            return self.children(key, limit.clamp(1, LIMIT_MAX)).await;
        }
        if let Some(seq) = arguments.seq {
            return self.one(key, seq, arguments.offset.unwrap_or(0)).await;
        }
        let send = match &arguments.send {
            None => None,
            Some(asked) => Some(self.send(key, invocation.send_id, asked).await?),
        };
        let search = Search {
            key,
            running: invocation.send_id,
            send,
            query: arguments.query.map(|query| query.to_lowercase()),
            after: arguments.after_seq.unwrap_or(0),
            before: arguments.before_seq.unwrap_or(i64::MAX),
            limit: arguments.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX),
        };
        self.list(search).await
    }
}

impl Recall {
    /// Resolves a session that this one started.
    async fn child(&self, asking: SessionKey, text: &str) -> Result<SessionKey, ToolError> {
        let session: Option<SessionId> = text.parse().ok();
        if session == Some(asking.session) {
            return Ok(asking);
        }
        let key = session.map(|session| SessionKey { session, ..asking });
        let found = match key {
            Some(key) => self.shared.find_session(key).await?,
            None => None,
        };
        let parent = |found: &SessionRecord| found.parent.as_ref().map(|parent| parent.session);
        match found.filter(|found| parent(found) == Some(asking.session)) {
            Some(found) => Ok(found.key),
            None => Err(ToolError::Reply {
                code: Code::SessionNotFound,
                message: format!("{text:?} is not a conversation that this one started"),
            }),
        }
    }

    /// Lists the newest conversations that a session started, in order: the model may no longer be
    /// shown the calls that started them.
    async fn children(&self, key: SessionKey, limit: usize) -> Result<Output, ToolError> {
        let all = self.shared.children(key).await?;
        let older = all.len().saturating_sub(limit);
        let mut text = match all.len() {
            0 => "no conversations were started".to_owned(),
            n if older > 0 => format!("the last {limit} of {n} conversations, in order"),
            n => format!("{n} conversations, in order"),
        };
        let lines: Vec<String> = stream::iter(all[older..].iter().copied())
            .map(|child| self.of_child(child))
            .buffered(CHILDREN_AT_ONCE)
            .try_collect()
            .await?;
        text.extend(lines);
        Ok(Output::text(text))
    }

    /// A line about a session that another one started; empty if it is gone.
    async fn of_child(&self, child: SessionKey) -> Result<String, ToolError> {
        let Some(found) = self.shared.find_session(child).await? else {
            return Ok(String::new());
        };
        let mut text = format!(
            "\n{}, {} messages, {}",
            child.session, found.messages, found.created_at
        );
        if let Some(parent) = &found.parent {
            let _ = write!(text, ", started by call {}", parent.call_id);
        }
        let query = FindMessages {
            key: child,
            send: None,
            call: None,
            after: 0,
            before: found.first_seq + 1,
            limit: 1,
        };
        if let Some(first) = self.shared.find_messages(query).await?.first() {
            let task = plain_text(&first.content);
            let line = task.split_whitespace().collect::<Vec<_>>().join(" ");
            text.push_str(": ");
            text.extend(line.chars().take(CHILD_CHARS));
        }
        Ok(text)
    }

    /// Resolves a send by its id, or by how many sends it is before the current one.
    async fn send(
        &self,
        key: SessionKey,
        present: SendId,
        asked: &serde_json::Value,
    ) -> Result<SendId, ToolError> {
        let unknown = || ToolError::Reply {
            code: Code::SendNotFound,
            message: format!("there is no send {asked} here: an id like snd_…, or -1, -2, …"),
        };
        let text = asked.as_str().map(str::trim);
        if let Some(id) = text.and_then(|text| text.parse().ok()) {
            return Ok(id);
        }
        let place = asked.as_i64().or_else(|| text?.parse().ok());
        let back = place.filter(|back| (-SENDS_BACK_MAX..=0).contains(back));
        let mut back = back.ok_or_else(unknown)?.unsigned_abs();
        if back == 0 {
            return Ok(present);
        }
        let mut before = None;
        loop {
            let query = ListSends {
                tenant: key.tenant,
                session: Some(key.session),
                status: None,
                before,
                limit: PAGE,
            };
            let page = self.shared.list_sends(query).await?;
            // A send that is still pending has said nothing yet.
            let said = |send: &&SendRecord| send.started_at.is_some() && send.id != present;
            for send in page.data.iter().filter(said) {
                back -= 1;
                if back == 0 {
                    return Ok(send.id);
                }
            }
            before = page.data.last().map(|send| send.id);
            if !page.more || before.is_none() {
                return Err(unknown());
            }
        }
    }

    /// One message, whole or a page of it.
    async fn one(&self, key: SessionKey, seq: i64, offset: usize) -> Result<Output, ToolError> {
        let query = FindMessages {
            key,
            send: None,
            call: None,
            after: seq - 1,
            before: seq + 1,
            limit: 1,
        };
        let found = self.shared.find_messages(query).await?;
        let Some(message) = found.first() else {
            return Err(ToolError::Reply {
                code: Code::ToolFailed,
                message: format!("there is no message {seq}; it may have been removed"),
            });
        };
        let text = body(message);
        let chars = text.chars().count();
        let page: String = text.chars().skip(offset).take(ROW_CHARS).collect();
        let end = offset.saturating_add(page.chars().count());
        let mut shown = head(message);
        if offset > 0 || end < chars {
            let _ = write!(shown, " [characters {offset} to {end} of {chars}");
            if end < chars {
                let _ = write!(shown, "; continue with offset {end}]");
            } else {
                shown.push_str(", the end]");
            }
        }
        let shown = Output {
            content: std::iter::once(ContentPart::text(format!("{shown}\n{page}")))
                // A picture is shown to the model again.
                .chain(
                    message
                        .content
                        .iter()
                        .filter(|part| is_picture(part))
                        .cloned(),
                )
                .collect(),
            ..Output::default()
        };
        Ok(shown.with_digest(format!("read message #{seq}")))
    }

    /// Lists the newest matching messages that fit, in order.
    async fn list(&self, search: Search) -> Result<Output, ToolError> {
        let mut found: VecDeque<Message> = VecDeque::new();
        let (mut before, mut scanned, mut more) = (search.before, 0, true);
        while more && found.len() < search.limit && scanned < SCANNED_MAX {
            let query = FindMessages {
                key: search.key,
                send: search.send,
                call: None,
                after: search.after,
                before,
                limit: PAGE,
            };
            let page = self.shared.find_messages(query).await?;
            more = page.len() == PAGE as usize;
            for message in page {
                scanned += 1;
                before = message.seq;
                let fits = search
                    .query
                    .as_ref()
                    .is_none_or(|query| message.send_id != search.running && says(&message, query));
                if !fits {
                    continue;
                }
                if found.len() == search.limit {
                    more = true;
                    before = message.seq + 1;
                    break;
                }
                found.push_front(message);
            }
        }
        let shown = Output::text(listed(&found, more.then_some(before)));
        Ok(match (found.front(), found.back()) {
            (Some(first), Some(last)) => shown.with_digest(format!(
                "found {}, #{} to #{}",
                counted(found.len(), "message", "messages"),
                first.seq,
                last.seq
            )),
            _ => shown,
        })
    }
}

/// Messages with their content, as far as it fits, and where to continue.
fn listed(found: &VecDeque<Message>, rest: Option<i64>) -> String {
    let mut text = match found.len() {
        0 => "nothing was found".to_owned(),
        1 => "1 message".to_owned(),
        n => format!("{n} messages, in order"),
    };
    if let Some(before) = rest {
        let _ = write!(
            text,
            "; earlier ones were not searched: continue with before_seq {before}"
        );
    }
    let each = (LIST_CHARS / found.len().max(1)).max(ROW_CHARS_MIN);
    for message in found {
        let body = body(message);
        let chars = body.chars().count();
        let _ = write!(text, "\n\n{}\n", head(message));
        if chars <= each {
            text.push_str(&body);
        } else {
            text.extend(body.chars().take(each));
            let seq = message.seq;
            let _ = write!(
                text,
                "… [{each} of {chars} characters; recall seq {seq} has all]"
            );
        }
    }
    text
}

/// Whether a message contains the query, ignoring case. Earlier results of this tool and the calls
/// that asked for them are left out, because they only repeat other messages.
fn says(message: &Message, query: &str) -> bool {
    if message.role == Role::Tool && message.name.as_deref() == Some(NAME) {
        return false;
    }
    let calls = message.tool_calls.iter().filter(|call| call.name != NAME);
    told(message, calls).to_lowercase().contains(query)
}

/// The line that identifies a message.
fn head(message: &Message) -> String {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let name = message.name.as_deref();
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    let failed = if message.failed { ", failed" } else { "" };
    format!(
        "[seq {}, {role}{name}{failed}, round {}, send {}, {}]",
        message.seq, message.round, message.send_id, message.created_at
    )
}

/// The content of a message, with the calls that it makes.
fn body(message: &Message) -> String {
    told(message, message.tool_calls.iter())
}

fn told<'m>(message: &'m Message, calls: impl Iterator<Item = &'m ToolCall>) -> String {
    let parts = message.content.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.clone()),
        ContentPart::Reasoning { .. } | ContentPart::Digest { .. } | ContentPart::Attached(_) => {
            None
        }
        ContentPart::Image { .. } | ContentPart::File { .. } => {
            Some(plain_text(&[absent(part, "not shown here")]))
        }
    });
    let mut text = parts.collect::<Vec<_>>().join("\n\n");
    for call in calls {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = write!(text, "calls {} {} ({})", call.name, call.arguments, call.id);
    }
    text
}

fn is_picture(part: &ContentPart) -> bool {
    matches!(part, ContentPart::Image { .. })
}
