//! What must hold when nothing goes on any more.

use mainspring_shared::send::SendView;
use mainspring_shared::store::AuditOptions;

use super::World;

impl World {
    /// Fails unless every invariant holds.
    ///
    /// # Panics
    /// When one does not.
    pub async fn audit(&self) {
        let found = self
            .store
            .audit(AuditOptions::default())
            .await
            .expect("never fails");
        assert!(found.is_empty(), "{found:#?}");
        self.audit_notices().await;
    }

    /// A send that came with the notice of its end is the one that is read later.
    async fn audit_notices(&self) {
        let (ids, told): (Vec<_>, Vec<SendView>) = self.bus.ended().into_iter().unzip();
        let stored = self.store.get_sends(ids).await.expect("never fails");
        for (told, stored) in told.into_iter().zip(stored) {
            // It may have been removed since.
            if let Some(stored) = stored {
                assert_eq!(told, SendView::from(stored));
            }
        }
    }
}
