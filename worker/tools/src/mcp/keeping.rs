//! The last list of a server, kept in the database: while the server is away, a worker that has just
//! started offers the same tools as all others, so that prompts stay the same.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::store::{MCP_LIST_BYTES_MAX, McpList};
use mainspring_shared::time::Clock;
use sha2::{Digest, Sha256};

use super::Kept;
use super::connection::Listing;
use super::listing::Described;
use super::settings::Transport;

/// How long the database may take; only the list's use by others is lost without it.
const WITHIN: Duration = Duration::from_secs(2);

/// Characters of a name, and hex digits of a digest, in the key of a list.
const NAME_CHARS_MAX: usize = 60;
const DIGEST_DIGITS: usize = 16;

/// Where the list of one server is kept.
#[derive(Debug)]
pub(super) struct Keeping {
    store: Kept,
    key: String,
    /// The digest of the list that was stored last.
    stored: Mutex<Option<String>>,
}

impl Keeping {
    pub(super) fn new(store: Kept, name: &str, transport: &Transport) -> Self {
        Self {
            store,
            key: key(name, transport),
            stored: Mutex::default(),
        }
    }

    /// Stores the list if it is not the one that was stored last.
    pub(super) async fn save(&self, name: &str, listing: &Listing, clock: &dyn Clock) {
        let Ok(tools) = serde_json::to_string(&**listing) else {
            return;
        };
        let digest = format!("{:x}", Sha256::digest(&tools));
        let is_stored = {
            let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
            stored.as_ref() == Some(&digest)
        };
        if is_stored || tools.len() > MCP_LIST_BYTES_MAX {
            return;
        }
        let list = McpList {
            server: self.key.clone(),
            tools,
        };
        let saved = tokio::select! {
            biased;
            saved = self.store.save_mcp_list(list) => saved.is_ok(),
            () = clock.sleep(WITHIN) => false,
        };
        if saved {
            *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest);
        } else {
            tracing::debug!(
                mcp.server = name,
                "could not store the list of an MCP server"
            );
        }
    }

    /// The list that was stored last, by whichever worker.
    pub(super) async fn read(&self, clock: &dyn Clock) -> Option<Listing> {
        let read = tokio::select! {
            biased;
            read = self.store.read_mcp_list(self.key.clone()) => read.ok()?,
            () = clock.sleep(WITHIN) => None,
        };
        // A list of another release that cannot be read is none.
        let tools: Vec<Described> = serde_json::from_str(&read?).ok()?;
        Some(tools.into())
    }
}

/// Tells servers of one name in different pools apart by what they are, without storing any of it.
fn key(name: &str, transport: &Transport) -> String {
    let is = match transport {
        Transport::Stdio { command, args, .. } => format!("{command}\n{}", args.join("\n")),
        Transport::Http { url, .. } => url.clone(),
    };
    let digest = format!("{:x}", Sha256::digest(is));
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    format!("{name}@{}", &digest[..DIGEST_DIGITS])
}
