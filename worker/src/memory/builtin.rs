//! The memory provider that keeps entries in the store.

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{MemoryId, SendId, TenantId};
use mainspring_shared::memory::{
    Account, Embedder, Embedding, Forget, Memory, MemoryError, PaidCall, Recall, Recalled,
    Remember, TEXT_CHARS_MAX,
};
use mainspring_shared::store::{
    self, NewMemory, SaveMemory, SaveMemoryOutcome, SearchMemories, Store,
};
use mainspring_shared::tenant::Amount;
use mainspring_shared::time::Clock;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::Parts;
use crate::llm::MONEY_IS_RESERVED;
use crate::money::{Cost, Money, NoMoney, ReservedMoney};

/// Memory in the store.
#[derive(Debug)]
pub struct Builtin {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The embedder, and how long a query waits for its vector.
    embedder: Option<(Arc<dyn Embedder>, Duration)>,
    saved: Notify,
    /// Pays for the vectors of queries; set by the worker that started last. Weak, because that
    /// worker holds this provider: with a strong reference neither would be dropped, nor the
    /// store's connections closed.
    money: RwLock<Weak<Money>>,
}

impl Builtin {
    /// Memory in this store. Without an embedder, entries are only found by their words.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        embedder: Option<(Arc<dyn Embedder>, Duration)>,
    ) -> Self {
        Self {
            store,
            clock,
            embedder,
            saved: Notify::new(),
            money: RwLock::default(),
        }
    }

    pub(super) fn pay_from(&self, money: &Arc<Money>) {
        let mut own = self.money.write().unwrap_or_else(PoisonError::into_inner);
        *own = Arc::downgrade(money);
    }

    fn money(&self) -> Option<Arc<Money>> {
        let money = self.money.read().unwrap_or_else(PoisonError::into_inner);
        money.upgrade()
    }

    pub(super) fn embedder(&self) -> Option<Arc<dyn Embedder>> {
        self.embedder.as_ref().map(|(embedder, _)| embedder.clone())
    }

    pub(super) async fn saved(&self) {
        self.saved.notified().await;
    }

    pub(super) fn has_saved(&self) {
        self.saved.notify_one();
    }

    /// The vector of a query. `None` if there is no embedder or it is unavailable; words are
    /// searched nevertheless.
    async fn embed(&self, tenant: TenantId, text: &str, account: &Account) -> Option<Embedding> {
        let (embedder, limit) = self.embedder.as_ref()?;
        let texts = vec![text.to_owned()];
        let expected = embedder.expected(&texts);
        let money = self.money();
        let own = match &money {
            Some(money) => embedder_of(money.parts(), tenant, embedder).await,
            None => Ok(Arc::clone(embedder)),
        };
        let embedder = match own {
            Ok(embedder) => embedder,
            Err(why) => return without_vector(why, account),
        };
        let aside = match &money {
            Some(money) => vectors_aside(money, tenant, &expected).await,
            None => Ok(None),
        };
        let mut aside = match aside {
            Ok(aside) => aside,
            Err(why) => return without_vector(why, account),
        };
        if let Some(aside) = &mut aside {
            aside.begin();
        }
        // The caller may stop waiting at any time; until the answer is here, the expected cost
        // counts.
        let call = account.open(expected);
        let made = tokio::select! {
            biased;
            made = embedder.embed(texts) => made,
            () = self.clock.sleep(*limit) => {
                let why = "the embedding provider did not respond in time";
                return without_vector(why, account);
            }
        };
        if let (Some(aside), Some(money)) = (aside, money) {
            aside
                .settle(money.parts(), amount(made.paid.as_ref()))
                .await;
        }
        call.close(made.paid);
        match made.vectors {
            Ok(vectors) if vectors.is_empty() => without_vector("no vector was made", account),
            Ok(vectors) => vectors.into_iter().next(),
            Err(error) => without_vector(error, account),
        }
    }
}

/// The embedder for a tenant: with its own key, if it has set one for the provider.
pub(super) async fn embedder_of(
    parts: &Parts,
    tenant: TenantId,
    shared: &Arc<dyn Embedder>,
) -> Result<Arc<dyn Embedder>, MemoryError> {
    let Some(keyed) = shared.keyed() else {
        return Ok(Arc::clone(shared));
    };
    let provider = Arc::from(keyed.provider());
    let ports = (&*parts.store, &*parts.clock);
    let keys = parts.providers.embedder_keys();
    let own = keys.model(ports, (tenant, &provider), shared, false).await;
    own.map_err(|error| MemoryError::Unavailable {
        why: error.to_string(),
    })
}

/// The multiple of an embedding call's expected cost that is reserved, because the number of tokens
/// of a text is only estimated.
const TIMES_EXPECTED: u64 = 2;

/// Reserves the most that an embedding call can cost, or says why there is no money for it. The
/// tenant pays, whoever makes the call, because its agents share the memory.
pub(super) async fn vectors_aside(
    money: &Money,
    tenant: TenantId,
    expected: &PaidCall,
) -> Result<Option<ReservedMoney>, &'static str> {
    let most = amount(Some(expected)).times(TIMES_EXPECTED);
    if most == Amount::default() {
        return Ok(None);
    }
    let cost = Cost { most, least: most };
    let aside = money.set_aside((tenant, None), cost).await;
    aside.map_err(|why| match why {
        NoMoney::Busy => MONEY_IS_RESERVED,
        NoMoney::Spent(..) => "what is left of the tenant's spending limit does not suffice",
        NoMoney::TokensSpent(..) => "what is left of the tenant's token limit does not suffice",
    })
}

/// The cost of an embedding call.
pub(super) fn amount(paid: Option<&PaidCall>) -> Amount {
    paid.map(|call| Amount::of(&call.usage)).unwrap_or_default()
}

fn without_vector(why: impl std::fmt::Display, account: &Account) -> Option<Embedding> {
    let why = format!("only words were searched: {why}");
    tracing::warn!(why, "a memory query has no vector");
    account.note(why);
    None
}

#[async_trait]
impl Memory for Builtin {
    async fn recall(&self, ask: Recall) -> Result<Vec<Recalled>, MemoryError> {
        let mut question = SearchMemories::new(ask.tenant, ask.namespace, &ask.query, ask.limit);
        question.embedding = self.embed(ask.tenant, &ask.query, &ask.account).await;
        let found = self
            .store
            .search_memories(question)
            .await
            .map_err(|error| away(&error))?;
        let recalled = found.into_iter().map(|entry| Recalled {
            id: entry.id.to_string(),
            text: entry.text,
            updated_at: Some(entry.updated_at),
        });
        Ok(recalled.collect())
    }

    async fn remember(&self, entry: Remember) -> Result<String, MemoryError> {
        let chars = entry.text.chars().count();
        if entry.text.trim().is_empty() || chars > TEXT_CHARS_MAX {
            let why = format!("a text of 1 to {TEXT_CHARS_MAX} characters is needed");
            return Err(MemoryError::Refused { why });
        }
        let id = entry_id(&entry.key, entry.source.map(|source| source.send_id));
        let item = SaveMemory {
            tenant: entry.tenant,
            entry: NewMemory {
                id,
                namespace: entry.namespace,
                text: entry.text,
                metadata: entry.metadata,
                source: entry.source,
                expires_at: None,
            },
            idempotency: None,
        };
        match self
            .store
            .save_memory(item)
            .await
            .map_err(|error| away(&error))?
        {
            SaveMemoryOutcome::Saved(_) => {
                self.has_saved();
                Ok(id.to_string())
            }
            SaveMemoryOutcome::Known(_) => Ok(id.to_string()),
            SaveMemoryOutcome::Gone | SaveMemoryOutcome::Mismatch => Err(MemoryError::Refused {
                why: "this was saved before and has been deleted since".to_owned(),
            }),
        }
    }

    async fn forget(&self, entry: Forget) -> Result<bool, MemoryError> {
        let Ok(id) = entry.id.parse::<MemoryId>() else {
            return Ok(false);
        };
        let deleted = self
            .store
            .delete_memory(entry.tenant, Some(entry.namespace), id);
        deleted.await.map_err(|error| away(&error))
    }
}

/// The id of the entry with this key. Its timestamp is that of the send, so that lists stay
/// ordered.
pub(crate) fn entry_id(key: &str, send: Option<SendId>) -> MemoryId {
    let hash = Sha256::digest(format!("memory {key}"));
    let mut bytes = send.map_or([0; 16], |send| *send.0.as_bytes());
    for (byte, drawn) in bytes.iter_mut().skip(6).zip(hash.iter()) {
        *byte = *drawn;
    }
    let id: Uuid = uuid::Builder::from_bytes(bytes)
        .with_version(uuid::Version::SortRand)
        .with_variant(uuid::Variant::RFC4122)
        .into_uuid();
    MemoryId(id)
}

fn away(error: &store::Error) -> MemoryError {
    tracing::debug!(%error, "a memory request to the database failed");
    let why = match error {
        store::Error::Unavailable { .. } => "the database is unavailable",
        _ => "the database refused it",
    };
    MemoryError::Unavailable {
        why: why.to_owned(),
    }
}
