//! Invariants that must hold once the system is at rest.

use mainspring_shared::send::SendView;
use mainspring_shared::store::{AuditKind, AuditOptions, audit_in_pieces};

use super::World;

impl World {
    /// Fails unless every invariant holds.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub async fn audit(&self) {
        let found = self
            .store
            .audit(AuditOptions::default())
            .await
            .expect("never fails");
        assert!(found.is_empty(), "{found:#?}");
        self.audit_pieces().await;
        self.audit_notices().await;
    }

    /// Checks that auditing piece by piece finds no violation either, and covers every entity.
    async fn audit_pieces(&self) {
        // The model store scans everything for each piece, which is slow and exercises no query.
        if !self.has_database {
            return;
        }
        let dump = self.store.dump().await.expect("never fails");
        let pieces = audit_in_pieces(&*self.store, 100).await;
        let (counts, violated) = pieces.expect("never fails");
        assert!(violated.is_empty(), "{violated:#?}");
        for (kind, all) in [
            (AuditKind::Sessions, dump.sessions.len()),
            (AuditKind::Runs, dump.runs.len()),
            (AuditKind::Timers, dump.timers.len()),
        ] {
            let count = counts.get(&kind).copied().unwrap_or_default();
            assert_eq!(count as usize, all, "{kind:?}");
        }
    }

    /// Checks that a send that came with the notice of its end equals the stored one.
    async fn audit_notices(&self) {
        let (ids, told): (Vec<_>, Vec<SendView>) = self.bus.ended().into_iter().unzip();
        let stored = self.store.get_sends(ids).await.expect("never fails");
        for (told, stored) in told.into_iter().zip(stored) {
            // It may have been deleted since.
            if let Some(stored) = stored {
                assert_eq!(told, SendView::from(stored));
            }
        }
    }
}
