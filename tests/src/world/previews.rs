//! Asking the workers of a world to preview a model call, and for vectors.

use bytes::Bytes;
use futures::StreamExt as _;
use mainspring_shared::agent::SendOptions;
use mainspring_shared::bus::{Bus as _, Notice, Topic};
use mainspring_shared::entropy::Entropy as _;
use mainspring_shared::id::{BootId, SessionKey, TenantId};
use mainspring_shared::memory::{VectorsAsk, VectorsMade};
use mainspring_shared::message::ContentPart;
use mainspring_shared::model::Digest;
use mainspring_shared::session::preview::{Answered, Ask};
use mainspring_shared::store::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::World;

impl World {
    /// The named worker's preview of a session's next model call, or of the call for a send with
    /// this input.
    ///
    /// # Panics
    /// If no such worker is alive.
    pub async fn preview(&self, worker: &str, key: SessionKey, input: Option<&str>) -> Answered {
        let input = input.map(|text| vec![ContentPart::text(text)]);
        self.preview_of(worker, key, input).await
    }

    /// Like `preview`, with any content parts, in the form in which schedulers send them.
    ///
    /// # Panics
    /// If no such worker is alive.
    pub async fn preview_of(
        &self,
        worker: &str,
        key: SessionKey,
        input: Option<Vec<ContentPart>>,
    ) -> Answered {
        let options = SendOptions::default();
        self.preview_with(worker, key, input, options).await
    }

    /// Like `preview_of`, for a send with these options.
    ///
    /// # Panics
    /// If no such worker is alive.
    pub async fn preview_with(
        &self,
        worker: &str,
        key: SessionKey,
        input: Option<Vec<ContentPart>>,
        options: SendOptions,
    ) -> Answered {
        let ask = Ask {
            id: self.entropy.random_id(),
            boot: self.boot_of(worker).await,
            key,
            input,
            options,
            content: Vec::new(),
            with_request: true,
        };
        self.answer(ask.id, &ask).await
    }

    /// The vectors of texts by the named worker, paid by the default tenant.
    ///
    /// # Panics
    /// If no such worker is alive.
    pub async fn vectors(&self, worker: &str, model: &str, texts: &[&str]) -> VectorsMade {
        let ask = VectorsAsk {
            id: self.entropy.random_id(),
            boot: self.boot_of(worker).await,
            tenant: TenantId::DEFAULT,
            model: model.to_owned(),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        };
        self.answer(ask.id, &ask).await
    }

    async fn boot_of(&self, worker: &str) -> BootId {
        let boots = self.store.list_boots().await.expect("never fails");
        let mut boots = boots.into_iter();
        let boot = boots.find(|boot| {
            boot.role == Role::Worker && boot.name == worker && boot.dead_at.is_none()
        });
        boot.expect("a worker").id
    }

    async fn answer<A: DeserializeOwned>(&self, id: Uuid, ask: &impl Serialize) -> A {
        let mut answers = self.bus.subscribe(Topic::Answers(id)).await;
        let json = serde_json::to_vec(ask).expect("a question is JSON");
        self.bus.publish(Topic::Asks, Bytes::from(json));
        match answers.next().await {
            Some(Notice::Payload(json)) => serde_json::from_slice(&json).expect("an answer"),
            other => panic!("no answer: {other:?}"),
        }
    }

    /// The request digests that the rounds of a session recorded, in order.
    ///
    /// # Panics
    /// Never: the store does not fail.
    pub async fn digests(&self, key: SessionKey) -> Vec<Digest> {
        let steps = self.store.read_steps(key, 0, 10_000).await;
        let steps = steps.expect("never fails").into_iter();
        steps.filter_map(|step| step.refs.round?.digest).collect()
    }
}
