//! Tools that read the web.
//!
//! | tool | needs |
//! |---|---|
//! | `web_fetch` | nothing; it reaches public addresses only, and those that the operator allows |
//! | `web_search` | a search engine that the operator names |

mod charset;
mod fetch;
mod readable;
mod robots;
mod search;
#[cfg(test)]
mod site;

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::entropy::Entropy;
use mainspring_shared::time::Clock;
use mainspring_worker::tool::{Tool, Tools, ToolsError};
use serde::{Deserialize, Serialize};

use crate::catalogue::{Listed, NOTHING, SEARCH, insert_all, tool};
pub(crate) use fetch::Fetch;
use search::WebSearch;
pub use search::{Engine, SearchSettings};

/// The name of the tool that reads pages.
pub(crate) const FETCH: &str = "web_fetch";

pub(crate) const FETCHES: [Listed<Arc<Fetch>>; 1] = [tool(
    FETCH,
    NOTHING,
    "reads a page of the web as text",
    |fetch| fetch.clone(),
)];

pub(crate) const SEARCHES: [Listed<Arc<WebSearch>>; 1] =
    [tool("web_search", SEARCH, "searches the web", |search| {
        search.clone()
    })];

/// How pages are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebSettings {
    /// Non-public addresses that may be read: CIDRs or single addresses.
    pub allow_private: Vec<String>,
    /// Whether the rules that sites have for robots are followed.
    pub robots: bool,
    /// How long reading a page may take, redirects and rules included.
    pub timeout: Duration,
    /// Bytes of a page that are read; the rest is cut off.
    pub bytes_max: usize,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            robots: true,
            timeout: Duration::from_secs(30),
            // More than nearly all pages have, and little enough to be read within a fraction of a second.
            bytes_max: 5 << 20,
        }
    }
}

/// Registers the search of the web by this engine. It runs in the worker for isolated agents, too: whom it asks, and
/// with which key, is the operator's choice.
pub fn register_search(
    settings: &SearchSettings,
    (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>),
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    let search = WebSearch::new(settings, clock, entropy);
    let search = search.map_err(|detail| ToolsError::Settings { detail })?;
    insert_all(&SEARCHES, &Arc::new(search), tools)
}

/// The tool that reads pages.
pub(crate) fn fetch(
    settings: &WebSettings,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Tool>, ToolsError> {
    let fetch = Fetch::new(settings, clock.clone());
    let fetch = fetch.map_err(|detail| ToolsError::Settings { detail })?;
    Ok(Arc::new(fetch))
}
