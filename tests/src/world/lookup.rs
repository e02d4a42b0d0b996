//! Looking up, and waiting for, what became of things.

use std::time::Duration;

use mainspring_shared::event::LiveKind;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store::Dump;

use super::World;

impl World {
    /// The live events of a session, in order.
    pub fn live(&self, key: SessionKey) -> Vec<LiveKind> {
        self.bus.live(key)
    }

    /// The session's steps that readers were notified of, in order.
    pub fn told(&self, key: SessionKey) -> Vec<i64> {
        self.bus.told(key)
    }

    /// The current record of a send.
    pub async fn record(&self, id: SendId) -> SendRecord {
        let read = self
            .store
            .get_sends(vec![(TenantId::DEFAULT, id)])
            .await
            .expect("never fails");
        read.into_iter().next().flatten().expect("the send exists")
    }

    /// Waits, in simulated time, until every given send is final.
    ///
    /// # Panics
    /// If that takes more than a simulated hour.
    pub async fn settle(&self, sends: &[SendId]) -> Vec<SendRecord> {
        let begun = self.clock.monotonic();
        loop {
            let mut records = Vec::new();
            for id in sends {
                records.push(self.record(*id).await);
            }
            if records.iter().all(|record| record.status.is_final()) {
                return records;
            }
            let waited = self.clock.monotonic().saturating_sub(begun);
            let limit = Duration::from_hours(1);
            assert!(waited < limit, "sends hang: {records:#?}");
            self.pass_before_look(begun).await;
        }
    }

    /// Waits before polling again something started at `begun`: the longer it takes, the longer the
    /// pause.
    pub async fn pass_before_look(&self, begun: Duration) {
        let waited = self.clock.monotonic().saturating_sub(begun);
        let pause = (waited / 5).max(Duration::from_millis(50));
        self.clock.sleep(pause).await;
    }

    /// Lets simulated time pass.
    pub async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    /// The entire contents of the store.
    pub async fn dump(&self) -> Dump {
        self.store.dump().await.expect("never fails")
    }
}
