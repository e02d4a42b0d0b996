//! The holders of blobs, and the rows that name them.

use mainspring_shared::blob::{BlobOwner, NamedBlobs};
use mainspring_shared::invariants::NAMED;
use mainspring_shared::store::{BlobState, Dump};
use serde_json::json;

use super::Findings;

/// Every blob with a holder is stored. A dump has no holds of blobs without a row.
pub(super) fn held(findings: &mut Findings, dump: &Dump) {
    for blob in &dump.blobs {
        if blob.state != BlobState::Stored && !blob.owners.is_empty() {
            let (tenant, sha256) = (blob.place.tenant, blob.place.sha256);
            let row = json!({ "tenant": tenant, "sha256": sha256 });
            findings.entry("blob.held").or_default().push(row);
        }
    }
}

/// Every blob that a row of a session or timer names is held for it.
pub(super) fn named(findings: &mut Findings, dump: &Dump) {
    let mut named = NamedBlobs::default();
    let sessions = dump.sessions.iter();
    for session in sessions.filter(|session| session.agent_version.is_some()) {
        let key = session.key;
        session.sends.iter().for_each(|send| named.send(send));
        for message in &session.messages {
            named.message(key, message);
        }
        session.calls.iter().for_each(|call| named.call(key, call));
        session.inbox.iter().for_each(|item| named.item(key, item));
    }
    dump.timers.iter().for_each(|(timer, _)| named.timer(timer));
    for blob in &dump.blobs {
        for owner in &blob.owners {
            named.held(blob.place.tenant, *owner, blob.place.sha256);
        }
    }
    for (tenant, owner, sha256) in named.into_rest() {
        let row =
            json!({ "tenant": tenant, "owner": BlobOwner::to_string(&owner), "sha256": sha256 });
        findings.entry(NAMED).or_default().push(row);
    }
}
