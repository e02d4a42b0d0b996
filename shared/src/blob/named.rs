//! Which blobs rows refer to, and for which owners they must be held.

use std::collections::BTreeSet;

use super::{BlobHash, BlobOwner};
use crate::id::{SessionKey, TenantId};
use crate::inbox::InboxItem;
use crate::message::{ContentPart, Message};
use crate::send::SendRecord;
use crate::timer::{TimerRecord, TimerStatus, TimerTarget};
use crate::tool::{CallRecord, named_whole};

/// A blob and an owner that must hold it.
type Named = (TenantId, BlobOwner, BlobHash);

/// The blobs that rows refer to, collected row by row. Those known to be held are removed, and an
/// audit reports the rest. A blob that several rows of a session refer to is included once.
#[derive(Debug, Default)]
pub struct NamedBlobs(BTreeSet<Named>);

impl NamedBlobs {
    /// Adds the blobs in a send's input. The input of a final send is in the transcript.
    pub fn send(&mut self, send: &SendRecord) {
        if !send.status.is_final() {
            self.parts(send.key, &send.input);
        }
    }

    /// Adds the blobs in a message. A copied one, of epoch 0, may refer to blobs that never existed here.
    pub fn message(&mut self, key: SessionKey, message: &Message) {
        if message.epoch > 0 {
            self.all(key, of_message(message));
        }
    }

    /// Adds the blobs in a call's result.
    pub fn call(&mut self, key: SessionKey, call: &CallRecord) {
        if let Some(result) = &call.result {
            self.parts(key, &result.content);
            self.all(key, result.whole_blob.iter().map(|blob| blob.sha256));
        }
    }

    /// Adds the blobs in an inbox item.
    pub fn item(&mut self, key: SessionKey, item: &InboxItem) {
        self.parts(key, &item.content);
    }

    /// Adds the blobs in what a timer will send.
    pub fn timer(&mut self, timer: &TimerRecord) {
        let is_live = matches!(timer.state.status, TimerStatus::Armed | TimerStatus::Paused);
        if let (true, TimerTarget::Send { input, .. }) = (is_live, &timer.target) {
            let owner = BlobOwner::Timer(timer.id);
            let named = input.iter().filter_map(ContentPart::blob);
            self.0
                .extend(named.map(|sha256| (timer.tenant, owner, sha256)));
        }
    }

    /// Removes a blob that is held for this owner.
    pub fn held(&mut self, tenant: TenantId, owner: BlobOwner, sha256: BlobHash) {
        self.0.remove(&(tenant, owner, sha256));
    }

    /// Whether no blobs are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The remaining blobs, in order.
    pub fn into_rest(self) -> impl Iterator<Item = (TenantId, BlobOwner, BlobHash)> {
        self.0.into_iter()
    }

    fn parts(&mut self, key: SessionKey, parts: &[ContentPart]) {
        self.all(key, parts.iter().filter_map(ContentPart::blob));
    }

    fn all(&mut self, key: SessionKey, named: impl Iterator<Item = BlobHash>) {
        let owner = BlobOwner::from(key.session);
        self.0
            .extend(named.map(|sha256| (key.tenant, owner, sha256)));
    }
}

/// The blobs that a message refers to: images, files, and an output that it shows in part.
pub fn of_message(message: &Message) -> impl Iterator<Item = BlobHash> {
    let whole = message.tool_call_id.as_deref();
    let whole = whole.and_then(|call_id| named_whole(&message.content, call_id));
    let parts = message.content.iter().filter_map(ContentPart::blob);
    parts.chain(whole)
}
