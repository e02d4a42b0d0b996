//! Whole outputs of calls, stored as blobs.

use super::{Depot, Error};
use crate::id::SessionKey;
use crate::message::{ContentPart, plain_text};
use crate::store::FindMessages;
use crate::tool::{CallResult, name_whole, named_whole};

/// The media type of a whole output.
const TEXT: &str = "text/plain";

impl Depot {
    /// Stores the large parts of a call's result as blobs and refers to them instead: images,
    /// files, and the whole of an output that the model is shown in part. If this fails, the
    /// remaining parts are unchanged.
    pub async fn spill_result(
        &self,
        session: SessionKey,
        call_id: &str,
        result: &mut CallResult,
    ) -> Result<(), Error> {
        let SessionKey { tenant, session } = session;
        // Blobs that a tool found elsewhere, such as in a child's transcript, are now referred to
        // by this session.
        let named = result.content.iter().filter_map(ContentPart::blob);
        let named = named.collect();
        self.hold(tenant, session.into(), named).await?;
        self.spill(tenant, session.into(), &mut result.content)
            .await?;
        let whole = result.whole.as_ref();
        let Some(whole) = whole.filter(|whole| whole.len() > self.spill_bytes()) else {
            return Ok(());
        };
        if whole.len() > self.bytes_max() {
            return Ok(());
        }
        let data = whole.clone().into_bytes().into();
        let stored = self.put(tenant, Some(session.into()), TEXT, data).await?;
        name_whole(&mut result.content, call_id, stored.blob.sha256);
        result.whole_blob = Some(stored.blob);
        result.whole = None;
        Ok(())
    }

    /// The whole output of a call, if it is stored; otherwise what the model was shown of it.
    /// `None` if the session has no result of such a call.
    ///
    /// A copied session, and one whose old calls were pruned, finds what was stored for the
    /// original session.
    pub async fn output(&self, key: SessionKey, call_id: &str) -> Result<Option<String>, Error> {
        let ids = vec![(key.tenant, call_id.to_owned())];
        let call = self.rows.get_calls(ids).await?.pop().flatten();
        let call = call.filter(|call| call.session == key.session);
        if let Some(result) = call.and_then(|call| call.result) {
            let named = result.whole_blob.as_ref().map(|blob| blob.sha256);
            let whole = match named {
                Some(sha256) => self.text(key, sha256).await?,
                None => None,
            };
            return Ok(Some(whole.unwrap_or_else(|| result.whole_text())));
        }
        let query = FindMessages {
            key,
            send: None,
            call: Some(call_id.to_owned()),
            after: 0,
            before: i64::MAX,
            limit: 1,
        };
        let Some(message) = self.rows.find_messages(query).await?.pop() else {
            return Ok(None);
        };
        let whole = match named_whole(&message.content, call_id) {
            Some(sha256) => self.text(key, sha256).await?,
            None => None,
        };
        Ok(Some(whole.unwrap_or_else(|| plain_text(&message.content))))
    }

    async fn text(
        &self,
        key: SessionKey,
        sha256: super::BlobHash,
    ) -> Result<Option<String>, Error> {
        let data = self.read(key.tenant, sha256).await?;
        Ok(data.map(|data| String::from_utf8_lossy(&data).into_owned()))
    }
}
