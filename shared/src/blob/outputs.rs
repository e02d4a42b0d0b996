//! Outputs of calls, whole.

use super::{Depot, Error};
use crate::id::SessionKey;
use crate::message::{ContentPart, plain_text};
use crate::store::FindMessages;
use crate::tool::{CallResult, name_whole, named_whole};

/// What the whole of an output is.
const TEXT: &str = "text/plain";

impl Depot {
    /// Stores what is large of a call's result, and names it instead: pictures, files, and the whole of an
    /// output that the model is shown in part. Where that fails, the rest stays as it is.
    pub async fn spill_result(
        &self,
        session: SessionKey,
        call_id: &str,
        result: &mut CallResult,
    ) -> Result<(), Error> {
        let SessionKey { tenant, session } = session;
        // What a tool found elsewhere, as in a child's transcript, this session names from now on.
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

    /// The output of a call, whole, where it is kept; else what the model was shown of it. None when the
    /// session has no result of such a call. A copy finds what was stored for the session that it was
    /// copied from, and so does a session whose old calls were removed.
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
