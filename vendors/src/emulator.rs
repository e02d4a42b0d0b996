//! One vendor's endpoint: judges a request, and answers as the script says.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::answer::{self, Content, Formed, Made};
use crate::count::{self, Tokens};
use crate::judge::{self, Breach, Case};
use crate::ledger::{Judgement, Ledger, Row, Verdict};
use crate::memory::{Answer, Memory, Signed, digest, pieces, prefix};
use crate::refusal::render;
use crate::rules::{Model, Protocol, Refusal, Role, Rules, Thinks};
use crate::script::{self, Plan};
use crate::view::View;

/// The least tokens that a cache keeps.
const CACHED_MIN: u64 = 64;

/// One vendor's endpoint, without a socket.
#[derive(Debug)]
pub struct Emulator {
    rules: Rules,
    /// Tokens of every model's window, instead of its own.
    window: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    memory: Memory,
    ledger: Ledger,
    judgements: Vec<Judgement>,
}

/// What goes back.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: ReplyBody,
    /// The message that a client keeps of a good answer.
    pub message: Option<Value>,
}

/// The body of what goes back.
#[derive(Debug, Clone)]
pub enum ReplyBody {
    Whole(String),
    Stream {
        frames: Vec<String>,
        /// The connection is cut behind them.
        broken: bool,
    },
}

/// What a request turned out to be.
struct Asked<'a> {
    view: View<'a>,
    model: &'a Model,
    conversation: String,
    body: &'a Value,
}

impl Emulator {
    /// An endpoint that nobody has asked yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            window: None,
            state: Mutex::default(),
        }
    }

    /// The same with windows of so many tokens.
    #[must_use]
    pub fn with_window(mut self, window: Option<u64>) -> Self {
        self.window = window;
        self
    }

    /// The rules that are kept.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Each request so far as it was judged.
    pub fn judgements(&self) -> Vec<Judgement> {
        self.state().judgements.clone()
    }

    /// Forgets the judgements so far; what was answered and counted stays.
    pub fn clear_judgements(&self) {
        self.state().judgements.clear();
    }

    /// What each conversation took.
    pub fn ledger(&self) -> Vec<Row> {
        self.state().ledger.rows(&self.rules.name)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request. Headers come with names in lower case.
    pub fn ask(&self, headers: &BTreeMap<String, String>, body: &[u8]) -> Reply {
        let Ok(body @ Value::Object(_)) = serde_json::from_slice(body) else {
            return self.refuse_early("json", "the body is not a JSON object", None);
        };
        let mut root = body.clone();
        root["header"] = json!(headers);
        let view = View::new(self.rules.protocol, &body);
        let name = view.model.to_owned();
        let Some(model) = self.model(&name) else {
            let gone = self.rules.errors.get("gone").cloned();
            return self.refuse_early("model", &name, gone);
        };
        let asked = Asked {
            conversation: conversation(&view),
            view,
            model,
            body: &body,
        };
        let mut state = self.state();
        let case = Case {
            root: &root,
            view: &asked.view,
            model: &model.name,
            conversation: &asked.conversation,
        };
        let breaches = judge::breaches(&self.rules, &case, &state.memory);
        if let Some(place) = breaches.iter().position(|breach| !breach.silent) {
            return self.refuse(&mut state, &asked, &breaches, place);
        }
        self.answer(&mut state, &asked, &breaches)
    }

    fn model(&self, name: &str) -> Option<&Model> {
        self.rules
            .model
            .iter()
            .find(|model| model.name == name || model.aliases.iter().any(|alias| alias == name))
    }

    fn refuse_early(&self, rule: &str, value: &str, refusal: Option<Refusal>) -> Reply {
        let refusal = refusal.unwrap_or_else(|| Refusal {
            message: Some(format!("{rule}: {value}")),
            ..Refusal::default()
        });
        let words = BTreeMap::from([("model", value.to_owned())]);
        let (status, body) = render(&self.rules.form, &refusal, &words);
        self.state().judgements.push(Judgement {
            vendor: self.rules.name.clone(),
            model: value.to_owned(),
            conversation: String::new(),
            said: String::new(),
            verdict: Verdict::Refused,
            rules: vec![rule.to_owned()],
            at: String::new(),
            status,
            answer: body.clone(),
        });
        whole(status, &refusal, body)
    }

    fn judged(
        &self,
        state: &mut State,
        asked: &Asked<'_>,
        verdict: Verdict,
        breaches: &[&Breach<'_>],
        reply: (u16, &str),
    ) {
        let at = breaches.first().and_then(|breach| breach.words.get("at"));
        state.judgements.push(Judgement {
            vendor: self.rules.name.clone(),
            model: asked.view.model.to_owned(),
            conversation: asked.conversation.clone(),
            said: said(&asked.view),
            verdict,
            rules: breaches
                .iter()
                .map(|breach| breach.rule.to_owned())
                .collect(),
            at: at.cloned().unwrap_or_default(),
            status: reply.0,
            answer: reply.1.to_owned(),
        });
    }

    fn refuse(
        &self,
        state: &mut State,
        asked: &Asked<'_>,
        breaches: &[Breach<'_>],
        place: usize,
    ) -> Reply {
        let breach = &breaches[place];
        let (status, body) = render(&self.rules.form, breach.answer, &breach.words);
        let others = breaches
            .iter()
            .filter(|other| !std::ptr::eq(*other, breach));
        let all: Vec<&Breach<'_>> = std::iter::once(breach).chain(others).collect();
        self.judged(state, asked, Verdict::Refused, &all, (status, &body));
        whole(status, breach.answer, body)
    }

    fn answer(&self, state: &mut State, asked: &Asked<'_>, breaches: &[Breach<'_>]) -> Reply {
        let step = script::step(&asked.view, &self.rules.name);
        let again = format!("{} {} {}", asked.conversation, step.number, step.text);
        // A vendor that cuts what is too long says nothing about it.
        let is_told = |kind: &str| {
            let silent = self.rules.overflow.as_ref().is_some_and(|it| it.silent);
            kind != "overflow" || !silent
        };
        if let Some((kind, times)) = &step.plan.error
            && is_told(kind)
            // Who cuts a conversation that is too long cuts its beginning, by which it is known.
            && state.memory.inject(format!("error {kind} {}", step.text), *times)
        {
            return self.inject(state, asked, kind);
        }
        let tokens = self.prompt(asked);
        if let Some(reply) = self.overflow(state, asked, tokens) {
            return reply;
        }
        let broken = step.plan.broken > 0
            && state
                .memory
                .inject(format!("break {again}"), step.plan.broken);
        let content = self.content(state, asked, step.plan, tokens);
        let formed = answer::form(&self.rules, &content);
        if !broken {
            state.ledger.add(
                &asked.conversation,
                &asked.model.name,
                content.tokens,
                asked.model.price,
            );
            self.remember(state, asked, &content, &formed);
        }
        let verdict = if breaches.is_empty() {
            Verdict::Kept
        } else {
            Verdict::Harmful
        };
        self.judged(
            state,
            asked,
            verdict,
            &breaches.iter().collect::<Vec<_>>(),
            (200, ""),
        );
        reply(&asked.view, formed, broken)
    }

    fn inject(&self, state: &mut State, asked: &Asked<'_>, kind: &str) -> Reply {
        let unknown = Refusal {
            status: Some(500),
            message: Some(format!("no error `{kind}` is known of this vendor")),
            ..Refusal::default()
        };
        let overflow = self.rules.overflow.as_ref().filter(|_| kind == "overflow");
        let refusal = self
            .rules
            .errors
            .get(kind)
            .or(overflow.map(|overflow| &overflow.answer))
            .unwrap_or(&unknown);
        let window = asked.model.window.to_string();
        let words = BTreeMap::from([
            ("model", asked.view.model.to_owned()),
            ("tokens", (asked.model.window + 1).to_string()),
            ("window", window.clone()),
            ("limit", window),
        ]);
        let (status, body) = render(&self.rules.form, refusal, &words);
        self.judged(state, asked, Verdict::Injected, &[], (status, &body));
        if refusal.in_stream && asked.view.stream {
            let frame = match self.rules.protocol {
                Protocol::Chat => format!("data: {body}\n\n"),
                Protocol::Messages => format!("event: error\ndata: {body}\n\n"),
                Protocol::Responses => format!("event: response.failed\ndata: {body}\n\n"),
            };
            return stream(vec![frame], false);
        }
        whole(status, refusal, body)
    }

    /// Tokens of the prompt; an endpoint that cuts silently counts what is left.
    fn prompt(&self, asked: &Asked<'_>) -> u64 {
        pieces(self.rules.protocol, asked.body)
            .iter()
            .map(count::value)
            .sum()
    }

    fn overflow(&self, state: &mut State, asked: &Asked<'_>, tokens: u64) -> Option<Reply> {
        let overflow = self
            .rules
            .overflow
            .as_ref()
            .filter(|overflow| !overflow.silent)?;
        let window = self.window.unwrap_or(asked.model.window);
        let limit = asked
            .view
            .limit
            .filter(|_| overflow.with_limit)
            .unwrap_or(0);
        if tokens + limit <= window {
            return None;
        }
        let words = BTreeMap::from([
            ("model", asked.view.model.to_owned()),
            ("tokens", tokens.to_string()),
            ("window", window.to_string()),
            ("limit", limit.to_string()),
            ("sum", (tokens + limit).to_string()),
        ]);
        let (status, body) = render(&self.rules.form, &overflow.answer, &words);
        self.judged(state, asked, Verdict::Overflow, &[], (status, &body));
        Some(whole(status, &overflow.answer, body))
    }

    fn content(&self, state: &mut State, asked: &Asked<'_>, plan: Plan, prompt: u64) -> Content {
        let Asked {
            view, model, body, ..
        } = asked;
        state.memory.count += 1;
        let seed = digest(&[
            &self.rules.name,
            &asked.conversation,
            &state.memory.count.to_string(),
        ]);
        let earlier = view
            .turns
            .iter()
            .map(|turn| turn.calls.len())
            .sum::<usize>();
        let think = (thinks(model, body) && !plan.empty).then(|| {
            plan.think
                .unwrap_or_else(|| format!("a thought of {} {}", self.rules.name, &seed[..6]))
        });
        let calls: Vec<Made> = plan
            .calls
            .into_iter()
            .enumerate()
            .map(|(place, (name, arguments))| Made {
                id: answer::id(&self.rules.answer.ids, &seed, &name, place, earlier + place),
                name,
                arguments,
            })
            .collect();
        // Something that no other answer says, so that it is known again.
        let say = match plan.say {
            Some(text) => Some(text),
            None if calls.is_empty() && !plan.empty => {
                Some(format!("{} answers {}", self.rules.name, &seed[..8]))
            }
            None => None,
        };
        let thinking = think.as_deref().map_or(0, count::text);
        let output = thinking
            + say.as_deref().map_or(0, count::text)
            + calls
                .iter()
                .map(|call| 4 + count::text(&call.arguments.to_string()))
                .sum::<u64>();
        let (cached, written) = self.cached(state, asked, prompt);
        Content {
            model: view.model.to_owned(),
            seed,
            think,
            say,
            calls,
            cut: plan.cut,
            tokens: Tokens {
                prompt,
                cached,
                written,
                output: output.max(1),
                thinking,
            },
        }
    }

    /// What of a prompt comes from a cache, and what is written to it: where the vendor tells it.
    fn cached(&self, state: &mut State, asked: &Asked<'_>, prompt: u64) -> (u64, u64) {
        let (marked, told) = match self.rules.protocol {
            Protocol::Messages => (asked.body.to_string().contains("cache_control"), true),
            Protocol::Chat => (true, self.rules.usage.cached.is_some()),
            Protocol::Responses => (true, true),
        };
        let hashed = pieces(self.rules.protocol, asked.body)
            .iter()
            .map(|piece| {
                let mut hash = DefaultHasher::new();
                piece.to_string().hash(&mut hash);
                (hash.finish(), count::value(piece))
            })
            .collect();
        let key = format!("{} {}", asked.conversation, asked.model.name);
        let common = state.memory.cached(&key, hashed);
        if !marked || !told {
            return (0, 0);
        }
        let cached = if common < CACHED_MIN { 0 } else { common };
        let writes = self.rules.protocol != Protocol::Chat || self.rules.usage.written.is_some();
        let priced = asked.model.price.write.is_some();
        let written = if writes && priced && prompt - cached >= CACHED_MIN {
            prompt - cached - 8
        } else {
            0
        };
        (cached, written)
    }

    fn remember(&self, state: &mut State, asked: &Asked<'_>, content: &Content, formed: &Formed) {
        let messages = asked.body["messages"].as_array().map_or(0, Vec::len);
        let prefix = match self.rules.protocol {
            Protocol::Messages => prefix(asked.body, messages),
            Protocol::Chat | Protocol::Responses => String::new(),
        };
        let mut before = last_signature(asked.body);
        for (signature, text) in &formed.signatures {
            state.memory.sign(
                signature.clone(),
                Signed {
                    model: asked.model.name.clone(),
                    prefix: prefix.clone(),
                    before: before.clone(),
                    text: text.clone(),
                },
            );
            before = Some(signature.clone());
        }
        let ids = content.calls.iter().map(|call| call.id.clone()).collect();
        let calls = content
            .calls
            .iter()
            .map(|call| (call.name.clone(), call.arguments.clone()))
            .collect();
        let answer = Answer {
            conversation: asked.conversation.clone(),
            model: asked.model.name.clone(),
            message: formed.message.clone(),
            calls,
        };
        state
            .memory
            .keep(answer, ids, content.say.as_deref().unwrap_or_default());
    }
}

/// The beginning of the text that a request is about.
fn said(view: &View<'_>) -> String {
    let users = view
        .turns
        .iter()
        .rev()
        .filter(|turn| turn.role == Role::User);
    let texts: Vec<&str> = users.flat_map(|turn| turn.texts.iter().copied()).collect();
    let scripted = texts.iter().find(|text| script::has_directives(text));
    let text = scripted.or(texts.first()).copied().unwrap_or_default();
    text.chars().take(100).collect()
}

fn last_signature(body: &Value) -> Option<String> {
    let messages = body["messages"].as_array()?;
    let blocks = messages
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let signature = blocks
        .filter_map(|block| block["signature"].as_str())
        .next_back()?;
    Some(signature.to_owned())
}

/// Conversations are told apart by the user's first text.
pub fn conversation(view: &View<'_>) -> String {
    let first = view
        .turns
        .iter()
        .find(|turn| turn.role == Role::User)
        .and_then(|turn| turn.texts.first());
    digest(&[first.unwrap_or(&"")])[..12].to_owned()
}

/// Whether a model thinks about a request.
fn thinks(model: &Model, body: &Value) -> bool {
    let thinking = body.pointer("/thinking/type").and_then(Value::as_str);
    let effort = body
        .get("reasoning_effort")
        .or_else(|| body.pointer("/reasoning/effort"))
        .and_then(Value::as_str);
    let enabled = body.get("enable_thinking").and_then(Value::as_bool);
    let off = matches!(thinking, Some("disabled" | "between_tools"))
        || effort == Some("none")
        || enabled == Some(false);
    let on = thinking.is_some() || effort.is_some() || enabled == Some(true);
    match model.thinks {
        Thinks::Never => false,
        Thinks::WhenAsked => on && !off,
        Thinks::ByItself => !off,
    }
}

fn whole(status: u16, refusal: &Refusal, body: String) -> Reply {
    Reply {
        status,
        headers: refusal.headers.clone(),
        body: ReplyBody::Whole(body),
        message: None,
    }
}

fn stream(frames: Vec<String>, broken: bool) -> Reply {
    Reply {
        status: 200,
        headers: BTreeMap::new(),
        body: ReplyBody::Stream { frames, broken },
        message: None,
    }
}

fn reply(view: &View<'_>, formed: Formed, broken: bool) -> Reply {
    let mut reply = if view.stream {
        let mut frames = formed.frames;
        if broken {
            frames.truncate(frames.len() / 2);
        }
        stream(frames, broken)
    } else {
        let mut body = formed.body.to_string();
        if broken {
            body.truncate(body.len() / 2);
        }
        whole(200, &Refusal::default(), body)
    };
    reply.message = Some(formed.message);
    reply
}
