//! Opening a store for one test, and closing it however the test ends.

use std::panic::{AssertUnwindSafe, resume_unwind};

use async_trait::async_trait;
use futures::FutureExt;
use mainspring_shared::store::Store;

/// An empty store of one test's own.
#[async_trait]
pub trait Opened: Send {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// Removes it with all that it holds.
    async fn close(self);
}

/// Runs a case on a store of its own, which is removed even when the case panics. Does nothing
/// without a store: the backend's own test says that it was skipped.
pub async fn run<O: Opened>(opened: Option<O>, case: impl AsyncFnOnce(&dyn Store)) {
    let Some(opened) = opened else {
        return;
    };
    let outcome = AssertUnwindSafe(case(opened.store())).catch_unwind().await;
    opened.close().await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// A variable of the environment, which only says which servers a test may use.
#[expect(
    clippy::disallowed_methods,
    reason = "what servers exist is not configuration of the product"
)]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
