//! The memory providers, by the names that agents use.
//!
//! `builtin` is kept in the store. An embedding program may add its own: an implementation of
//! [`Memory`] that is passed to [`Memories::insert`].

mod builtin;
pub(crate) mod embedding;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use mainspring_shared::agent::memory::BUILTIN;
use mainspring_shared::memory::{Embedder, Memory, MemoryError};
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;

use crate::money::Money;

pub use builtin::Builtin;
pub(crate) use builtin::entry_id;

/// Maximum number of entries requested from a provider at once.
pub const ENTRIES_MAX: u32 = 50;

/// Maximum number of characters of a query text.
pub(crate) const QUERY_CHARS_MAX: usize = 4_000;

/// The memory providers of a worker.
#[derive(Debug, Clone)]
pub struct Memories {
    named: BTreeMap<String, Arc<dyn Memory>>,
    builtin: Arc<Builtin>,
    clock: Arc<dyn Clock>,
}

impl Memories {
    /// Only the provider in the store. `embedder` computes the vectors of its entries and queries;
    /// a query waits at most the given time for its vector.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        embedder: Option<(Arc<dyn Embedder>, Duration)>,
    ) -> Self {
        let builtin = Arc::new(Builtin::new(store, clock.clone(), embedder));
        Self {
            named: BTreeMap::from([(BUILTIN.to_owned(), builtin.clone() as _)]),
            builtin,
            clock,
        }
    }

    /// Adds a provider, replacing one of the same name. `builtin` cannot be replaced.
    pub fn insert(&mut self, name: impl Into<String>, memory: Arc<dyn Memory>) {
        let name = name.into();
        if name != BUILTIN {
            self.named.insert(name, memory);
        }
    }

    /// The provider with this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Memory>, MemoryError> {
        self.named.get(name).cloned().ok_or_else(|| {
            let why = format!("this worker has no memory named {name:?}");
            MemoryError::Unavailable { why }
        })
    }

    /// Sets the account that pays for vectors of queries from here on.
    pub(crate) fn pay_from(&self, money: &Arc<Money>) {
        self.builtin.pay_from(money);
    }

    /// The embedder of entries in the store.
    pub(crate) fn embedder(&self) -> Option<Arc<dyn Embedder>> {
        self.builtin.embedder()
    }

    /// Waits until this worker saves an entry in the store.
    pub(crate) async fn saved(&self) {
        self.builtin.saved().await;
    }

    /// Signals that an entry was saved in the store.
    pub(crate) fn has_saved(&self) {
        self.builtin.has_saved();
    }

    /// The names that agents may use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Makes a provider call with a timeout. A panic of the provider fails only this call.
    pub async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, MemoryError>> + Send,
    ) -> Result<T, MemoryError> {
        let call = std::panic::AssertUnwindSafe(call).catch_unwind();
        tokio::select! {
            biased;
            answer = call => answer.unwrap_or_else(|_| unavailable("its provider crashed")),
            () = self.clock.sleep(limit) => unavailable(format_args!(
                "it did not answer within {} ms", limit.as_millis()
            )),
        }
    }
}

fn unavailable<T>(why: impl fmt::Display) -> Result<T, MemoryError> {
    Err(MemoryError::Unavailable {
        why: why.to_string(),
    })
}
