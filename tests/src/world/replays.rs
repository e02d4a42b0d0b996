//! Re-rendering the requests that were made in a world.

use std::sync::Arc;

use mainspring_providers::{Kind, ProviderSettings};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::model::FactsOverride;
use mainspring_shared::store::ListSends;
use mainspring_worker::llm::Providers;
use mainspring_worker::replay::{ReplayError, Replayer};

use super::World;
use super::script::AskedBy;

/// The outcome of re-rendering the rounds of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replays {
    /// Rounds whose request matches the recorded one.
    pub same: usize,
    /// Rounds whose request differs.
    pub differ: Vec<(SendId, i32)>,
    /// Sends that cannot be re-rendered, and why.
    pub skipped: Vec<(SendId, String)>,
}

impl World {
    /// The providers of a worker.
    pub(super) fn providers(&self, worker: &str) -> Providers {
        // `open` needs a provider of this name, which is then replaced by the script.
        let named = ["script", "demo"].map(|name| ProviderSettings::new(name, Kind::Demo));
        let settings: Vec<_> = named
            .into_iter()
            .chain(self.providers.iter().cloned())
            .collect();
        let asked = AskedBy {
            script: self.script.clone(),
            worker: worker.to_owned(),
        };
        let mut providers = mainspring_providers::open(&settings, "script", &self.clock)
            .expect("the settings are complete");
        providers
            .insert("script", Arc::new(asked), "model")
            .expect("a good name");
        // A window larger than any real one, for tests of other limits.
        let roomy = FactsOverride {
            window: Some(1_000_000_000),
            ..FactsOverride::default()
        };
        // A model that accepts only text.
        let blind = FactsOverride {
            input: Some(Vec::new()),
            ..FactsOverride::default()
        };
        let mut facts = self.facts.clone();
        facts.extend([("roomy".to_owned(), roomy), ("blind".to_owned(), blind)]);
        providers.with_facts(facts)
    }

    /// Re-renders the rounds of a session's sends and compares them with what was recorded.
    ///
    /// # Panics
    /// If a send cannot be re-rendered although everything it was shown still exists.
    pub async fn replayed(&self, key: SessionKey) -> Replays {
        let replayer = Replayer {
            store: self.store.clone(),
            providers: Arc::new(self.providers("replay")),
            tools: self.tools.clone(),
            clock: self.clock.clone(),
        };
        let query = ListSends {
            tenant: key.tenant,
            session: Some(key.session),
            status: None,
            before: None,
            limit: 1_000,
        };
        let sends = self.store.list_sends(query).await.expect("never fails");
        let mut replays = Replays::default();
        for send in sends.data.into_iter().filter(|send| send.rounds > 0) {
            match replayer.again(&send).await {
                Ok(rounds) => {
                    for round in rounds {
                        if round.recorded == Some(round.request.digest()) {
                            replays.same += 1;
                        } else if round.recorded.is_some() {
                            replays.differ.push((send.id, round.round));
                        }
                    }
                }
                Err(why @ (ReplayError::Pruned | ReplayError::Changed(_))) => {
                    replays.skipped.push((send.id, why.to_string()));
                }
                Err(error) => panic!("{}: {error}", send.id),
            }
        }
        replays
    }
}
