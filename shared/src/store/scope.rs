//! The tenant on whose behalf a store is called, for databases that isolate tenants themselves.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

use crate::id::TenantId;

thread_local! {
    static SCOPE: Cell<Option<TenantId>> = const { Cell::new(None) };
}

/// Runs a future on behalf of one tenant.
///
/// If the database isolates tenants itself, the future's own steps read and write only that
/// tenant's rows; other tenants' rows are invisible. Steps that it shares with others, and tasks
/// that it spawns, are not restricted.
pub async fn scoped<F: Future>(tenant: TenantId, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| in_scope(tenant, || future.as_mut().poll(context))).await
}

/// Runs a function on behalf of one tenant: like [`scoped`], for callers that poll by hand.
pub fn in_scope<T>(tenant: TenantId, run: impl FnOnce() -> T) -> T {
    /// Restores the previous scope, even if the function panics.
    struct Before(Option<TenantId>);
    impl Drop for Before {
        fn drop(&mut self) {
            SCOPE.set(self.0);
        }
    }
    let _before = Before(SCOPE.replace(Some(tenant)));
    run()
}

/// The tenant on whose behalf the store is currently called; `None` for the system itself, which
/// sees all tenants.
pub fn scope() -> Option<TenantId> {
    SCOPE.get()
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::future::join;

    use super::*;

    async fn yield_once() {
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
    }

    #[test]
    fn futures_of_one_task_keep_their_scopes_apart() {
        let seen = |tenant| {
            scoped(TenantId(tenant), async {
                let before = scope();
                yield_once().await;
                (before, scope())
            })
        };
        let (one, two) = block_on(join(seen(1), seen(2)));
        assert_eq!(one, (Some(TenantId(1)), Some(TenantId(1))));
        assert_eq!(two, (Some(TenantId(2)), Some(TenantId(2))));
        assert_eq!(scope(), None);
    }

    #[test]
    fn a_scope_ends_with_its_function_also_when_that_panics() {
        let panicked = std::panic::catch_unwind(|| in_scope(TenantId(1), || panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(scope(), None);
        let inner = in_scope(TenantId(1), || (in_scope(TenantId(2), scope), scope()));
        assert_eq!(inner, (Some(TenantId(2)), Some(TenantId(1))));
    }
}
