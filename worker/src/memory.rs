//! The memory's providers, by the names that agents give them.
//!
//! `builtin` is kept in the store. A program may enter its own: an implementation of
//! [`Memory`] given to [`Memories::insert`].

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

/// Entries that a provider is asked for at once.
pub const ENTRIES_MAX: u32 = 50;

/// Characters of a text that are looked for in the memory.
pub(crate) const QUERY_CHARS_MAX: usize = 4_000;

/// The providers of a worker.
#[derive(Debug, Clone)]
pub struct Memories {
    named: BTreeMap<String, Arc<dyn Memory>>,
    builtin: Arc<Builtin>,
    clock: Arc<dyn Clock>,
}

impl Memories {
    /// The one in the store alone. `embedder` makes vectors of its entries and of questions; a
    /// question waits this long for its own.
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

    /// Enters a provider; one of the same name goes. `builtin` stays what it is.
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

    /// From now on vectors of questions are paid for from here.
    pub(crate) fn pay_from(&self, money: &Arc<Money>) {
        self.builtin.pay_from(money);
    }

    /// What makes vectors of the entries in the store.
    pub(crate) fn embedder(&self) -> Option<Arc<dyn Embedder>> {
        self.builtin.embedder()
    }

    /// Waits until an entry was saved in the store by this worker.
    pub(crate) async fn saved(&self) {
        self.builtin.saved().await;
    }

    /// Tells that an entry was saved in the store.
    pub(crate) fn has_saved(&self) {
        self.builtin.has_saved();
    }

    /// The names that agents may use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Asks a provider, no longer than this. One that panics fails only this call.
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
