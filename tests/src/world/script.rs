//! A model that answers from a script and records what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, ToolCall, plain_text};
use mainspring_shared::model::{expect_message_tokens, expect_request_tokens};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_shared::usage::{Purpose, Usage};
use mainspring_worker::llm::{Chunk, Error, Finish, Hold, InBackground, Model, Reply, Request};
use serde_json::{Value, json};
use uuid::Uuid;

use super::listed::{failure, going_on, listed, rounds_since};
use super::model_behaviour::{Bill, Bills, ModelBehaviour};

/// One call, as the model received it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The system prompt.
    pub system: Option<String>,
    /// The text after the transcript.
    pub tail: Option<String>,
    /// The last user text.
    pub user: String,
    /// The whole transcript: role and text of each message, in order.
    pub transcript: Vec<(Role, String)>,
    /// The whole messages.
    pub messages: Vec<Arc<Message>>,
    /// The whole request.
    pub request: Arc<Request>,
    /// When it was called.
    pub at: Duration,
}

/// The scripted model. The last user text says what it does; by default it echoes that text.
///
/// - `tools N`: calls two tools in each of its first N rounds.
/// - `plan ROUNDS`: makes the calls of a JSON list of rounds, each a list of `[tool, arguments]`; a tool
///   `panic` panics in that round.
/// - `answers LIST`: gives the answers of a JSON list one after another, whatever it is told in between.
///   Each is a text, a list of calls, `{"ms", "text"}` with a thinking time, or `{"cut", "calls"}`, which
///   hits its token limit. `{"tries": LIST}` gives the answers of a list to calls that follow equally many
///   answers, the last one to all further calls. `{"error"}` fails as `amended`, `gone` or `invalid`;
///   `{"finish", "text", "calls"}` ends as `paused`, `failed` or any other word says.
/// - `sleep MS`: thinks this long.
/// - `stream COUNTxMS`: streams this many pieces with this pause after each, skipping those already said.
/// - `counted N`: breaks off in the middle of its first answer's call, after it has counted N input tokens, if not 0.
/// - `break N`: breaks off in the middle of its first N answers.
/// - `crash`: panics in the middle of an answer.
/// - `fail N`: fails the first N calls with this text.
/// - `fail-late N`: the same, asking to be called again a minute later.
/// - `held N`: the same, as a provider that must not be called for a minute.
/// - `empty`, `refuse`, `panic`: says nothing, declines, or panics.
///
/// Asked for a fold, it first saves a note if it may, and then lists the heads of the messages,
/// unless these say `fold empty`, `fold forbidden`, `fold sleeps MS` or `fold fails N`. With the
/// system prompt `room N`, a transcript of more than N characters overflows; with `counts`, it
/// reports the estimated number of input tokens instead of a constant.
#[derive(Debug)]
pub struct Script {
    clock: Arc<dyn Clock>,
    ledger: Mutex<Vec<Asked>>,
    given_up: GivenUp,
    abandoned: Mutex<Vec<String>>,
    behaviour: Mutex<ModelBehaviour>,
    bills: Bills,
}

/// User texts of the calls that were abandoned midway, and when.
type GivenUp = Arc<Mutex<Vec<(String, Duration)>>>;

/// A call in flight.
struct Under {
    user: String,
    clock: Arc<dyn Clock>,
    given_up: Option<GivenUp>,
}

impl Drop for Under {
    fn drop(&mut self) {
        if let Some(given_up) = &self.given_up {
            let at = self.clock.monotonic();
            let mut given_up = given_up.lock().expect("nobody panics under it");
            given_up.push((std::mem::take(&mut self.user), at));
        }
    }
}

impl Script {
    /// The answer to the current call, of those that followed as many answers as it does.
    fn tried(&self, answer: Value) -> Value {
        let Some(tries) = answer.get("tries").and_then(Value::as_array) else {
            return answer;
        };
        let asked = self.ledger();
        let answers = |of: &Asked| {
            let roles = of.messages.iter().map(|it| it.role);
            roles.filter(|role| *role == Role::Assistant).count()
        };
        let now = asked.last().map(answers);
        let same = asked.iter().filter(|it| Some(answers(it)) == now);
        let at = same.count().saturating_sub(1);
        tries.get(at).or(tries.last()).cloned().expect("an answer")
    }

    /// When calls with this user text were abandoned midway.
    pub fn given_up(&self, user: &str) -> Vec<Duration> {
        let given_up = self.given_up.lock().expect("nobody panics under it");
        let mine = given_up.iter().filter(|(of, _)| of == user);
        mine.map(|(_, at)| *at).collect()
    }

    /// Length of the most recent transcript, in characters.
    fn last_len(&self) -> usize {
        let ledger = self.ledger.lock().expect("nobody panics under it");
        let last = ledger.last().map(|asked| asked.transcript.iter());
        last.into_iter().flatten().map(|(_, text)| text.len()).sum()
    }

    /// Folds the transcript in `user`; the users' words in it can change the outcome.
    async fn folded(&self, user: &str, request: &Request) -> Result<Reply, Error> {
        let said = |word: &str| user.contains(&format!("]\n{word}"));
        let number = |word: &str| {
            let (_, rest) = user.split_once(&format!("]\n{word} "))?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        if said("fold empty") {
            return Ok(reply("", Vec::new(), Finish::Stop));
        }
        if said("fold forbidden") {
            return Err(Error::Auth {
                message: "scripted".into(),
            });
        }
        if let Some(ms) = number("fold sleeps") {
            self.clock.sleep(Duration::from_millis(ms)).await;
        }
        if number("fold fails").is_some_and(|times| self.calls(user) <= times as usize) {
            return Err(Error::Unavailable {
                message: "scripted".into(),
                retry_after: None,
            });
        }
        let asked_first = request.messages.len() == 1;
        if asked_first && request.tools.iter().any(|tool| tool.name == "note_add") {
            let note = format!("of {} characters", user.len());
            let calls = planned(&json!([["note_add", { "content": note }]]));
            return Ok(reply("I note.", calls, Finish::ToolCalls));
        }
        let (_, transcript) = user.split_once("<transcript>").unwrap_or_default();
        let heads = transcript.lines().filter(|line| line.starts_with('['));
        let heads: Vec<&str> = heads.collect();
        let last = heads.last().unwrap_or(&"");
        let behaviour = self.behaviour();
        self.clock.sleep(behaviour.summary_takes).await;
        let text = behaviour.summary(&format!("{} heads up to {last}", heads.len()));
        let text = format!("<summary>{text}</summary>");
        Ok(reply(&text, Vec::new(), Finish::Stop))
    }

    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            ledger: Mutex::default(),
            given_up: Arc::default(),
            abandoned: Mutex::default(),
            behaviour: Mutex::default(),
            bills: Bills::default(),
        }
    }

    /// The background answers that were abandoned.
    pub fn abandoned(&self) -> Vec<String> {
        self.abandoned
            .lock()
            .expect("nobody panics under it")
            .clone()
    }

    /// Sets how it behaves from now on.
    pub fn set_behaviour(&self, behaviour: ModelBehaviour) {
        *self.behaviour.lock().expect("nobody panics under it") = behaviour;
    }

    fn behaviour(&self) -> ModelBehaviour {
        *self.behaviour.lock().expect("nobody panics under it")
    }

    /// How many answers it gave, and the usage charged for all of them.
    pub fn billed(&self) -> (usize, Usage) {
        self.bills.sum()
    }

    /// Every answer it gave, with the worker that asked for it.
    pub fn bills(&self) -> Vec<Bill> {
        self.bills.all()
    }

    /// Every call so far, in order.
    pub fn ledger(&self) -> Vec<Asked> {
        self.ledger.lock().expect("nobody panics under it").clone()
    }

    /// The calls after the first `count`.
    pub fn ledger_behind(&self, count: usize) -> Vec<Asked> {
        let ledger = self.ledger.lock().expect("nobody panics under it");
        ledger[count..].to_vec()
    }

    /// The number of calls so far.
    pub fn asked(&self) -> usize {
        self.ledger.lock().expect("nobody panics under it").len()
    }

    /// The number of calls with this user text.
    pub fn calls(&self, user: &str) -> usize {
        self.ledger()
            .iter()
            .filter(|asked| asked.user == user)
            .count()
    }
}

/// Estimated tokens of an answer when it is part of the next request.
fn said_tokens(reply: &Reply) -> u64 {
    let said = NewMessage {
        role: Role::Assistant,
        tool_calls: reply.tool_calls.clone(),
        ..NewMessage::user(reply.content.clone(), 0)
    };
    let said = said.at(1, SendId(Uuid::nil()), Timestamp(0), 0);
    expect_message_tokens(&said)
}

fn reply(content: &str, tool_calls: Vec<ToolCall>, finish: Finish) -> Reply {
    Reply {
        content: vec![ContentPart::text(content)],
        tool_calls,
        finish,
        usage: Usage {
            input_tokens: 10,
            output_tokens: 5,
            ..Usage::default()
        },
        model: "model".into(),
    }
}

/// The tool calls of a list of `[tool, arguments]`.
fn planned(calls: &Value) -> Vec<ToolCall> {
    let calls: Vec<(String, Value)> =
        serde_json::from_value(calls.clone()).expect("calls are pairs");
    let call = |(name, arguments)| ToolCall::new("same", name, arguments);
    calls.into_iter().map(call).collect()
}

/// The model as seen by one worker.
#[derive(Debug)]
pub(super) struct AskedBy {
    pub(super) script: Arc<Script>,
    pub(super) worker: String,
}

#[async_trait]
impl Model for AskedBy {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let reply = self.script.complete(request, on_chunk).await?;
        let last = request.messages.last();
        let text = last.map(|message| plain_text(&message.content));
        let text = text.unwrap_or_default();
        let purpose = if text.starts_with("<known>") {
            Purpose::Extract
        } else if text.contains("<transcript>") {
            Purpose::Fold
        } else {
            Purpose::Round
        };
        self.script.bills.add(Bill {
            by: self.worker.clone(),
            purpose,
            usage: reply.usage,
        });
        Ok(reply)
    }

    async fn abandon(&self, background: &str) -> Result<(), Error> {
        let mut abandoned = self
            .script
            .abandoned
            .lock()
            .expect("nobody panics under it");
        abandoned.push(background.to_owned());
        Ok(())
    }
}

impl Script {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        self.clock.sleep(self.behaviour().answer_takes).await;
        let mut reply = self.answer(request, on_chunk).await?;
        if request.system.as_deref() == Some("counts") {
            reply.usage.input_tokens = expect_request_tokens(request);
        }
        let behaviour = self.behaviour();
        if let Some(factor) = behaviour.counts {
            reply.usage.input_tokens = behaviour.count(request);
            let said = (said_tokens(&reply) as f64 * factor).ceil() as u64;
            // Output beyond the request's limit is never charged.
            reply.usage.output_tokens = said.min(u64::from(request.max_tokens));
        }
        if let Some((read, written)) = behaviour.caches {
            reply.usage.cache_read_tokens = read;
            reply.usage.cache_write_tokens = written;
        }
        Ok(reply)
    }
}

impl Script {
    #[expect(
        clippy::too_many_lines,
        reason = "one arm for each word that a script knows"
    )]
    async fn answer(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        let shown: Vec<(Role, String)> = request
            .messages
            .iter()
            .map(|m| (m.role, plain_text(&m.content)))
            .collect();
        let user = shown.iter().rev().find(|(role, _)| *role == Role::User);
        let user = user.map(|(_, text)| text.clone()).unwrap_or_default();
        let rounds = rounds_since(&request.messages);
        let listed = listed(&shown);
        let going_on = going_on(&shown);
        let asked = Asked {
            system: request.system.clone(),
            tail: request.tail.clone(),
            user: user.clone(),
            transcript: shown,
            messages: request.messages.clone(),
            request: Arc::new(request.clone()),
            at: self.clock.monotonic(),
        };
        self.ledger
            .lock()
            .expect("nobody panics under it")
            .push(asked);
        self.behaviour().admit(request)?;
        if user.starts_with("<known>") {
            // The conversation itself says what is to be extracted from it.
            let found = user.split_once("extract ").map(|(_, rest)| rest);
            let found = found.and_then(|rest| rest.lines().next()).unwrap_or("{}");
            return Ok(reply(found, Vec::new(), Finish::Stop));
        }
        if user.contains("<transcript>") {
            return self.folded(&user, request).await;
        }
        let room = request
            .system
            .as_deref()
            .and_then(|system| system.strip_prefix("room "));
        if let Some(room) = room.and_then(|room| room.parse::<usize>().ok())
            && self.last_len() > room
        {
            return Err(Error::ContextOverflow {
                message: "scripted".into(),
            });
        }
        let listed = listed.map(|answer| self.tried(answer));
        if let Some(answer) = listed {
            if let Some(error) = answer.get("error") {
                return Err(failure(error.as_str().expect("a word")));
            }
            return Ok(match answer {
                Value::Object(ended) if ended.contains_key("finish") => {
                    let calls = ended.get("calls").map(planned).unwrap_or_default();
                    let text = ended["text"].as_str().expect("a text");
                    let finish = match ended["finish"].as_str().expect("a word") {
                        "paused" => Finish::Paused,
                        "failed" => Finish::Failed("scripted".into()),
                        other => Finish::Other(other.into()),
                    };
                    reply(text, calls, finish)
                }
                Value::String(text) => reply(&text, Vec::new(), Finish::Stop),
                Value::Object(cut) if cut.contains_key("cut") => {
                    let text = cut["cut"].as_str().expect("a text");
                    let calls = cut.get("calls").map(planned).unwrap_or_default();
                    reply(text, calls, Finish::Length)
                }
                // The first `empty` answers say nothing.
                Value::Object(rest) if rest.contains_key("empty") => {
                    let times = rest["empty"].as_u64().expect("a count");
                    let says = self.calls(&user) as u64 > times;
                    let text = if says { "said at last" } else { "" };
                    reply(text, Vec::new(), Finish::Stop)
                }
                Value::Object(slow) => {
                    let ms = slow["ms"].as_u64().expect("milliseconds");
                    self.clock.sleep(Duration::from_millis(ms)).await;
                    reply(
                        slow["text"].as_str().expect("a text"),
                        Vec::new(),
                        Finish::Stop,
                    )
                }
                calls => reply("calling", planned(&calls), Finish::ToolCalls),
            });
        }
        let (user, before) = going_on.unwrap_or((user, String::new()));
        let (verb, argument) = user.split_once(' ').unwrap_or((user.as_str(), ""));
        let number: u64 = argument.parse().unwrap_or(0);
        match verb {
            "sleep" => {
                let mut under = Under {
                    user: user.clone(),
                    clock: self.clock.clone(),
                    given_up: Some(self.given_up.clone()),
                };
                self.clock.sleep(Duration::from_millis(number)).await;
                under.given_up = None;
            }
            "stream" => {
                // `behind N`: the first N calls fail before saying anything.
                let (argument, behind) = argument.split_once(" behind ").unwrap_or((argument, "0"));
                if self.calls(&user) <= behind.parse().expect("a count") {
                    return Err(Error::Unavailable {
                        message: "scripted".into(),
                        retry_after: None,
                    });
                }
                let (count, ms) = argument.split_once('x').expect("COUNTxMS");
                let (count, ms): (u32, u64) = (
                    count.parse().expect("a count"),
                    ms.parse().expect("milliseconds"),
                );
                let mut text = String::new();
                for n in 0..count {
                    let piece = format!("{n} ");
                    if before.split_inclusive(' ').any(|said| said == piece) {
                        continue;
                    }
                    on_chunk(Chunk::Text(&piece));
                    text.push_str(&piece);
                    self.clock.sleep(Duration::from_millis(ms)).await;
                }
                return Ok(reply(&text, Vec::new(), Finish::Stop));
            }
            "background" => {
                let known = match &request.background {
                    InBackground::TakenUp(id) => Some(id),
                    InBackground::No | InBackground::Allowed => None,
                };
                let id = match known {
                    Some(id) if id == "gone" => {
                        return Err(Error::Unavailable {
                            message: "scripted".into(),
                            retry_after: None,
                        });
                    }
                    Some(id) => id.clone(),
                    None if argument.ends_with("gone") => "gone".to_owned(),
                    None => format!("resp_{}", self.calls(&user)),
                };
                if known.is_none() {
                    on_chunk(Chunk::Background(&id));
                }
                on_chunk(Chunk::Text("begun "));
                // It finishes a minute after it was requested, whether or not anyone waits.
                let asked = self.ledger();
                let mut asked = asked.iter().filter(|asked| {
                    asked.user == user && asked.request.background == InBackground::Allowed
                });
                let since = asked.next_back().map(|asked| asked.at).unwrap_or_default();
                let left = (since + Duration::from_mins(1)).saturating_sub(self.clock.monotonic());
                self.clock.sleep(left).await;
                return Ok(reply(&format!("begun {id}"), Vec::new(), Finish::Stop));
            }
            "counted" if self.calls(&user) == 1 => {
                if number > 0 {
                    on_chunk(Chunk::Counted(Usage {
                        input_tokens: number,
                        output_tokens: 1,
                        ..Usage::default()
                    }));
                }
                on_chunk(Chunk::Hidden("{\"path\": \"half of a call"));
                return Err(Error::Unavailable {
                    message: "scripted".into(),
                    retry_after: None,
                });
            }
            "break" if self.calls(&user) <= number as usize => {
                on_chunk(Chunk::Text("half of an answer"));
                self.clock.sleep(Duration::from_secs(1)).await;
                return Err(Error::Unavailable {
                    message: "scripted".into(),
                    retry_after: None,
                });
            }
            "break" => {
                on_chunk(Chunk::Text("another half"));
                self.clock.sleep(Duration::from_mins(1)).await;
            }
            "crash" => {
                on_chunk(Chunk::Text("some words of an answer"));
                self.clock.sleep(Duration::from_secs(5)).await;
                panic!("scripted");
            }
            "fail" if self.calls(&user) <= number as usize => {
                return Err(Error::Unavailable {
                    message: "scripted".into(),
                    retry_after: None,
                });
            }
            "fail-late" if self.calls(&user) <= number as usize => {
                let retry_after = Some(Duration::from_mins(1));
                return Err(Error::RateLimited {
                    message: "scripted".into(),
                    retry_after,
                });
            }
            "held" if self.calls(&user) <= number as usize => {
                return Err(Error::Held {
                    why: Hold::Outage,
                    wait: Duration::from_mins(1),
                });
            }
            "forbid" => {
                return Err(Error::Auth {
                    message: "scripted".into(),
                });
            }
            "panic" => panic!("scripted"),
            "empty" => return Ok(reply("", Vec::new(), Finish::Stop)),
            "refuse" => return Ok(reply("no", Vec::new(), Finish::Refused)),
            "tools" if rounds < number as usize => {
                let call = |name: &str| ToolCall::new("same", name, json!({ "round": rounds }));
                let calls = vec![call("one"), call("two")];
                return Ok(reply("calling", calls, Finish::ToolCalls));
            }
            "plan" => {
                // Anything else said in the same message follows an empty line.
                let own = argument.split("\n\n").next().unwrap_or_default();
                let plan: Vec<Value> = serde_json::from_str(own).expect("a plan is JSON");
                if let Some(calls) = plan.get(rounds) {
                    assert!(calls[0][0] != "panic", "scripted");
                    return Ok(reply("calling", planned(calls), Finish::ToolCalls));
                }
            }
            _ => {}
        }
        let text = format!("echo: {user}");
        on_chunk(Chunk::Text(&text));
        Ok(reply(&text, Vec::new(), Finish::Stop))
    }
}
