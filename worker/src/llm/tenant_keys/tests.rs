use async_trait::async_trait;
use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::store::{ProviderKeys as _, SetProviderKey};
use mainspring_store_model::ModelStore;

use super::*;
use crate::llm::{Chunk, Keyed, Reply, Request, bare_request};
use crate::manual_clock::ManualClock;

/// A model that knows its key and never answers.
#[derive(Debug)]
struct WithKey(Secret);

#[async_trait]
impl Model for WithKey {
    async fn complete(
        &self,
        _: &Request,
        _: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        // Reveals its key, as no real model may.
        Err(Error::InvalidRequest {
            message: self.0.expose().to_owned(),
        })
    }

    fn keyed(&self) -> Option<&dyn Keyed> {
        Some(self)
    }
}

impl Keyed for WithKey {
    fn with_key(&self, key: &Secret) -> Result<Arc<dyn Model>, Error> {
        Ok(Arc::new(Self(key.clone())))
    }
}

struct World {
    store: ModelStore,
    clock: ManualClock,
    sealer: Arc<Sealer>,
    keys: TenantKeys,
    shared: Arc<dyn Model>,
    provider: Arc<str>,
}

impl World {
    fn new() -> Self {
        let sealer = Sealer::parse(&Sealer::new_key(&OsEntropy)).expect("a key");
        let sealer = Arc::new(sealer);
        Self {
            store: ModelStore::open(Arc::new(SystemClock::new())),
            clock: ManualClock::default(),
            keys: TenantKeys::new(Some(Arc::clone(&sealer))),
            sealer,
            shared: Arc::new(WithKey(Secret::new("shared"))),
            provider: "main".into(),
        }
    }

    async fn set(&self, tenant: i32, key: &str) {
        let tenant = TenantId(tenant);
        let context = seal_context(tenant, "main");
        let item = SetProviderKey {
            tenant,
            provider: "main".to_owned(),
            sealed: self.sealer.seal(&OsEntropy, &context, key.as_bytes()),
            hint: String::new(),
        };
        self.store.set_provider_key(item).await.expect("it is set");
    }

    async fn ask(&self, keys: &TenantKeys, tenant: i32, anew: bool) -> Result<String, Error> {
        let whose = (TenantId(tenant), &self.provider);
        let ports = (&self.store as &dyn Store, &self.clock as &dyn Clock);
        let model = keys.model(ports, whose, &self.shared, anew).await?;
        let answer = model.complete(&bare_request(), &mut |_| {}).await;
        let Err(Error::InvalidRequest { message }) = answer else {
            panic!("it answers so only: {answer:?}");
        };
        Ok(message)
    }

    async fn key(&self, tenant: i32, anew: bool) -> String {
        let key = self.ask(&self.keys, tenant, anew).await;
        key.expect("it can be read")
    }

    fn later(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).expect("it is short");
        self.clock.pass(Duration::from_millis(ms));
    }
}

#[tokio::test]
async fn a_tenant_is_asked_with_its_own_key_and_others_are_not() {
    let world = World::new();
    world.set(2, "blue").await;
    world.set(3, "red").await;
    assert_eq!(world.key(1, false).await, "shared");
    assert_eq!(world.key(2, false).await, "blue");
    assert_eq!(world.key(3, false).await, "red");
    let known = |tenant| {
        let model = world
            .keys
            .known(TenantId(tenant), &world.provider, &world.shared);
        Arc::ptr_eq(&model, &world.shared)
    };
    assert!(known(1) && !known(2), "what was read is known");
}

#[tokio::test]
async fn a_change_is_seen_in_time_and_at_once_by_whoever_reads_anew() {
    let world = World::new();
    world.set(2, "old").await;
    assert_eq!(world.key(2, false).await, "old");
    world.set(2, "new").await;
    assert_eq!(world.key(2, false).await, "old");
    assert_eq!(world.key(2, true).await, "new");
    world.set(2, "newest").await;
    world.later(VALID);
    assert_eq!(world.key(2, false).await, "newest");
    let gone = world
        .store
        .delete_provider_key(TenantId(2), "main".to_owned());
    assert!(gone.await.expect("it is deleted"));
    world.later(VALID);
    assert_eq!(world.key(2, false).await, "shared");
}

#[tokio::test]
async fn the_same_key_is_the_same_model_with_what_it_learned() {
    let world = World::new();
    world.set(2, "blue").await;
    let model = async || {
        let whose = (TenantId(2), &world.provider);
        let ports = (&world.store as &dyn Store, &world.clock as &dyn Clock);
        let model = world.keys.model(ports, whose, &world.shared, false).await;
        model.expect("it can be read")
    };
    let first = model().await;
    world.later(VALID);
    assert!(Arc::ptr_eq(&first, &model().await));
}

#[tokio::test]
async fn a_key_that_cannot_be_opened_is_never_replaced_by_the_operators() {
    let world = World::new();
    world.set(2, "blue").await;
    let other = Sealer::parse(&Sealer::new_key(&OsEntropy)).expect("a key");
    for sealer in [None, Some(Arc::new(other))] {
        let keys = TenantKeys::new(sealer);
        let refused = world.ask(&keys, 2, false).await.expect_err("it is sealed");
        assert!(matches!(refused, Error::Auth { .. }), "{refused:?}");
        assert!(!refused.to_string().contains("blue"));
        let others = world.ask(&keys, 1, false).await;
        assert_eq!(
            others.as_deref(),
            Ok("shared"),
            "it concerns its tenant alone"
        );
    }
}

#[tokio::test]
async fn a_sealed_key_that_was_moved_to_another_tenant_does_not_open() {
    let world = World::new();
    world.set(2, "blue").await;
    let found = world
        .store
        .find_provider_key(TenantId(2), "main".to_owned());
    let record = found.await.expect("it is read").expect("it is there");
    let item = SetProviderKey {
        tenant: TenantId(3),
        provider: record.provider,
        sealed: record.sealed,
        hint: record.hint,
    };
    world.store.set_provider_key(item).await.expect("it is set");
    let refused = world.ask(&world.keys, 3, false).await;
    assert!(matches!(refused, Err(Error::Auth { .. })), "{refused:?}");
}
