//! A world whose providers are emulators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainspring_providers::rules::RuleSettings;
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_runtime::Lifecycle;
use mainspring_shared::agent::{AgentSpec, OnBusy, SendOptions};
use mainspring_shared::budget::Price;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::{ContentPart, ImageSource};
use mainspring_shared::model::FactsOverride;
use mainspring_shared::retry::Policy;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::Store;
use mainspring_tests::world::World;
use mainspring_vendors::rules::Protocol;
use mainspring_vendors::{Laboratory, Rules, Verdict, catalogue};
use mainspring_worker::WorkerConfig;
use mainspring_worker::llm::Secret;
use serde_json::{Value, json};

use super::scenes::{Act, Scene};

/// Tokens of every model's window.
const WINDOW: u64 = 100_000;

/// How long a scene may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// The names that operators give to vendors, by the emulators' names.
const VENDORS: &[(&str, &str)] = &[
    ("openai-chat", "openai"),
    ("openai-responses", "openai"),
    ("gemini", "google"),
    ("kimi", "moonshot"),
    ("glm", "zai"),
    ("qwen", "dashscope"),
];

/// The smallest picture.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// Emulators on a socket, and a world that calls them.
pub(super) struct Bench {
    pub(super) world: World,
    pub(super) laboratory: Laboratory,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Bench {
    pub(super) async fn of(names: &[&str]) -> Self {
        // Fails if a test before this one did it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let laboratory = Laboratory::of(names, None).unwrap();
        let served = laboratory.clone();
        let server = tokio::spawn(async move {
            let _ = served.serve(listener).await;
        });
        let mut world = World::new().await;
        for name in names {
            let rules = catalogue::load(name).unwrap();
            world
                .providers
                .push(provider(&rules, &format!("http://{address}")));
            for model in &rules.model {
                world
                    .facts
                    .insert(format!("{name}/{}", model.name), facts(model));
            }
        }
        Self {
            world,
            laboratory,
            server,
        }
    }

    /// A vendor's models, as agents name them.
    pub(super) fn models(&self, vendor: &str) -> Vec<String> {
        let emulator = self.laboratory.emulator(vendor).unwrap();
        let models = emulator.rules().model.iter();
        models
            .map(|model| format!("{vendor}/{}", model.name))
            .collect()
    }

    pub(super) fn worker(&self) -> Lifecycle {
        self.worker_over(self.world.store.clone())
    }

    pub(super) fn worker_over(&self, store: Arc<dyn Store>) -> Lifecycle {
        let config = WorkerConfig {
            retry: Policy {
                base: Duration::from_millis(5),
                cap: Duration::from_millis(50),
                retry_after_max: Duration::from_millis(50),
                ..Policy::default()
            },
            ..WorkerConfig::default()
        };
        self.world.worker_with(config, store)
    }

    /// Plays a scene with a model, and says what did not end as it should.
    pub(super) async fn play(&self, model: &str, scene: &Scene) -> Vec<String> {
        let name = format!("{} with {model}", scene.name);
        let spec = agent(model, &scene.agent);
        let key = self.world.session(spec).await;
        let mut faults = Vec::new();
        for (place, act) in scene.acts.iter().enumerate() {
            let text = format!("{name}, part {place}\n{}", act.text());
            let ended = tokio::time::timeout(PATIENCE, self.act(key, text, act)).await;
            let Ok(record) = ended else {
                faults.push(format!("{name}, part {place}: hangs"));
                break;
            };
            let good = record.status == SendStatus::Completed && record.error.is_none();
            if !good {
                faults.push(format!(
                    "{name}, part {place}: {:?} {:?}",
                    record.status, record.error
                ));
            }
        }
        faults
    }

    async fn act(&self, key: SessionKey, text: String, act: &Act) -> SendRecord {
        let world = &self.world;
        match act {
            Act::Send(_, options) => {
                let options: SendOptions = serde_json::from_value(options.clone()).unwrap();
                let id = world.send_with(key, &text, options).await;
                self.ended(id).await
            }
            Act::Pictures(_, count) => {
                let picture = ContentPart::Image {
                    source: ImageSource::Base64 {
                        media_type: "image/png".to_owned(),
                        data: PIXEL.to_owned(),
                    },
                };
                let mut input = vec![ContentPart::text(text)];
                input.extend(vec![picture; *count]);
                let id = world.send_parts(key, input, SendOptions::default()).await;
                self.ended(id).await
            }
            Act::Meanwhile(_, said, interrupts) => {
                let id = world.send(key, &text).await;
                world.pass(Duration::from_millis(150)).await;
                let mode = if *interrupts {
                    OnBusy::Interrupt
                } else {
                    OnBusy::Steer
                };
                world.deliver(key, said, mode).await;
                self.ended(id).await
            }
        }
    }

    /// Waits for the end of a send, without the growing pauses of simulated time.
    pub(super) async fn ended(&self, id: SendId) -> SendRecord {
        loop {
            let record = self.world.record(id).await;
            if record.status.is_final() {
                return record;
            }
            self.world.pass(Duration::from_millis(20)).await;
        }
    }

    /// Requests that a vendor would not have taken, or not gladly.
    pub(super) fn breaches(&self) -> Vec<String> {
        let judged = self
            .laboratory
            .emulators()
            .flat_map(|emulator| emulator.judgements());
        let mut breaches: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for judged in judged {
            if !matches!(judged.verdict, Verdict::Refused | Verdict::Harmful) {
                continue;
            }
            let what = format!(
                "{} {}: {:?} {:?}",
                judged.vendor, judged.model, judged.verdict, judged.rules
            );
            let example = format!(
                "{} at {} said to {:?}",
                judged.answer, judged.at, judged.said
            );
            breaches.entry(what).or_insert((0, example)).0 += 1;
        }
        let told = breaches.into_iter();
        told.map(|(what, (count, example))| format!("{count} x {what}: {example}"))
            .collect()
    }
}

fn provider(rules: &Rules, address: &str) -> ProviderSettings {
    let kind = match rules.protocol {
        Protocol::Chat => Kind::OpenAi,
        Protocol::Messages => Kind::Anthropic,
        Protocol::Responses => Kind::OpenAiResponses,
    };
    let name = rules.name.as_str();
    let known = VENDORS.iter().find(|(emulator, _)| *emulator == name);
    let version = if kind == Kind::Anthropic { "" } else { "/v1" };
    ProviderSettings {
        base_url: format!("{address}/{name}{version}"),
        api_key: Secret::new("sk-test-0123456789abcdef"),
        rules: RuleSettings {
            vendor: Some(known.map_or(name, |(_, vendor)| vendor).to_owned()),
            ..RuleSettings::default()
        },
        ..ProviderSettings::new(name, kind)
    }
}

/// What is needed to fold and to count money; all else is for the product to know.
fn facts(model: &mainspring_vendors::rules::Model) -> FactsOverride {
    let price = Price {
        input: model.price.input,
        output: model.price.output,
        cache_read: model.price.read,
        cache_write: model.price.write,
        long: None,
    };
    FactsOverride {
        window: Some(WINDOW),
        price: Some(price),
        ..FactsOverride::default()
    }
}

fn agent(model: &str, more: &Value) -> AgentSpec {
    let mut spec = json!({
        "model": model,
        "system_prompt": "You do what you are told.",
        "tools": ["look"],
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}
