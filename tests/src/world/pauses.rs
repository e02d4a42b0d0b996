//! Pausing parts of a world, as a scheduler does.

use bytes::Bytes;
use mainspring_shared::bus::{Bus as _, Topic};
use mainspring_shared::pause::PauseKey;
use mainspring_shared::store::NewPause;

use super::World;

impl World {
    /// Pauses a key and notifies the workers.
    pub async fn hold_back(&self, key: &PauseKey) {
        let item = NewPause {
            key: key.clone(),
            reason: None,
        };
        self.store.pause(item).await.expect("never fails");
        self.bus.publish(Topic::Pauses, Bytes::new());
    }

    /// Lifts a pause and notifies the workers.
    pub async fn let_go(&self, key: &PauseKey) {
        self.store.resume(key.clone()).await.expect("never fails");
        self.bus.publish(Topic::Pauses, Bytes::new());
    }
}
