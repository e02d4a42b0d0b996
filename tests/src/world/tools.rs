//! Tools that only record that they were called.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::blob::Depot;
use mainspring_shared::message::{ContentPart, ImageSource};
use mainspring_shared::store::{Inspect, Store};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{Inquiry, Repeat, Wants};
use mainspring_tools::{agents, memory};
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::{
    Concurrency, Invocation, OnInterrupt, Output, ProgressReport, Tool, ToolError, ToolSpec, Tools,
    Traits,
};

use serde_json::{Value, json};

/// The text repeated by a tool told to `lie`.
const LIE: &str = "\u{0}{\"role\": \"user\"}\u{fffe} é";

/// One tool execution, as the outside world saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// The tool.
    pub tool: &'static str,
    /// The call.
    pub call_id: String,
    /// The attempt number that the tool was given.
    pub attempt: i32,
    /// When it started.
    pub began: Duration,
}

/// All executions, in order.
#[derive(Debug, Default)]
pub struct Acts(Mutex<Vec<Act>>);

impl Acts {
    /// Every execution so far.
    pub fn all(&self) -> Vec<Act> {
        self.0.lock().expect("nobody panics under it").clone()
    }

    /// Executions of one tool.
    pub fn of(&self, tool: &str) -> Vec<Act> {
        self.all()
            .into_iter()
            .filter(|act| act.tool == tool)
            .collect()
    }
}

/// A tool that obeys its arguments: `ms` is how long it works; `fail` makes it fail; `abort` ends
/// the send; `panic` makes it panic; `deaf` makes it ignore a request to stop; `lie` makes it
/// return megabytes of nonsense; `image` a picture with that many characters of base64; `chars`
/// that many characters of text, which differs for each value of `n`; `handle` makes it keep a
/// handle, and take up the work that an earlier attempt left with one; `asks` is a list of what it
/// asks a person, one after the other, before it does anything.
#[derive(Debug)]
struct Fake {
    name: &'static str,
    traits: Traits,
    clock: Arc<dyn Clock>,
    acts: Arc<Acts>,
}

#[async_trait]
impl Tool for Fake {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.into(),
            description: format!("{:?}", self.traits.repeat),
            parameters: any_object(),
        }
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        self.acts
            .0
            .lock()
            .expect("nobody panics under it")
            .push(Act {
                tool: self.name,
                call_id: invocation.call_id.clone(),
                attempt: invocation.attempt,
                began: self.clock.monotonic(),
            });
        let number = |name: &str| invocation.arguments.get(name).and_then(Value::as_u64);
        let asked = |name: &str| invocation.arguments.get(name).is_some_and(|v| v == true);
        let questions = invocation.arguments.get("asks").and_then(Value::as_array);
        let mut replies = invocation.inquiring.replies();
        let mut answers = Vec::new();
        for message in questions.into_iter().flatten() {
            let inquiry = Inquiry {
                message: message.as_str().unwrap_or_default().to_owned(),
                wants: Wants::Form(
                    json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
                ),
            };
            let Some(reply) = replies.take(&inquiry) else {
                return Err(ToolError::Asks(Box::new(inquiry)));
            };
            answers.push(serde_json::to_string(&reply).expect("JSON"));
        }
        if !answers.is_empty() {
            return Ok(Output::text(answers.join(" ")));
        }
        if asked("handle") {
            if let Some(handle) = invocation.kept.handle() {
                return Ok(Output::text(format!("took up {handle}")));
            }
            let handle = json!(invocation.call_id);
            let kept = invocation.kept.keep(handle).await;
            invocation.progress.report(ProgressReport {
                progress: f64::from(u8::from(kept)),
                total: Some(1.0),
                message: Some("begun elsewhere".to_owned()),
            });
        }
        let work = self
            .clock
            .sleep(Duration::from_millis(number("ms").unwrap_or(0)));
        if asked("deaf") {
            work.await;
        } else {
            tokio::select! {
                () = work => {}
                () = invocation.stop.cancelled() => {
                    return Err(ToolError::reply("stopped half way"));
                }
            }
        }
        assert!(!asked("panic"), "scripted");
        if asked("abort") {
            return Err(ToolError::Abort {
                message: "the tool says that it makes no sense to go on".into(),
            });
        }
        if asked("fail") {
            return Err(ToolError::reply("scripted"));
        }
        if asked("lie") {
            return Ok(Output::text(LIE.repeat(500_000)));
        }
        if let Some(chars) = number("image") {
            let source = ImageSource::Base64 {
                media_type: "image/png".into(),
                data: "A".repeat(chars as usize / 4 * 4),
            };
            return Ok(Output {
                content: vec![ContentPart::Image { source }],
                ..Output::default()
            });
        }
        let n = number("n").unwrap_or(0);
        if let Some(chars) = number("chars") {
            let words = (0..=chars / 8).map(|word| format!("{n:03}.{word:03x} "));
            let mut text: String = words.collect();
            text.truncate(chars as usize);
            let digest = format!("{} gave {chars} characters of {n}", self.name);
            return Ok(Output::text(text).with_digest(digest));
        }
        Ok(Output::text(format!("{} did {n}", self.name)))
    }
}

/// The built-in test tools: `look` is safe, `put` is keyed, `act` may only be done once, `alone` is
/// safe and runs alone, `slow` is safe and stops when interrupted.
pub(super) fn tools(
    store: &Arc<dyn Inspect>,
    blobs: &Arc<Depot>,
    clock: &Arc<dyn Clock>,
    acts: &Arc<Acts>,
) -> Tools {
    let mut tools = Tools::default();
    for tool in fakes(clock, acts) {
        tools.insert(tool).expect("a new name");
    }
    agents::register(&mut tools).expect("new names");
    let store: Arc<dyn Store> = store.clone();
    let memories = Arc::new(Memories::new(store.clone(), clock.clone(), None));
    let blobs = blobs.clone();
    memory::register(store, blobs, clock.clone(), &memories, &mut tools).expect("new names");
    tools
}

/// The tools that only record their calls.
pub(crate) fn fakes(clock: &Arc<dyn Clock>, acts: &Arc<Acts>) -> Vec<Arc<dyn Tool>> {
    let alone = Traits {
        concurrency: Concurrency::Exclusive,
        ..Traits::new(Repeat::Safe)
    };
    let slow = Traits {
        on_interrupt: OnInterrupt::Stop,
        ..Traits::new(Repeat::Safe)
    };
    let kinds = [
        ("look", Traits::new(Repeat::Safe)),
        ("put", Traits::new(Repeat::Keyed)),
        ("act", Traits::new(Repeat::Once)),
        ("alone", alone),
        ("slow", slow),
    ];
    let fakes = kinds.into_iter().map(|(name, traits)| {
        let fake = Fake {
            name,
            traits,
            clock: clock.clone(),
            acts: acts.clone(),
        };
        Arc::new(fake) as Arc<dyn Tool>
    });
    fakes.collect()
}
