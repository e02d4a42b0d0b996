//! All tools of a worker, in the order in which they depend on each other.

use std::sync::Arc;

use mainspring_shared::blob::Depot;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::time::Clock;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::{ToolSource, Tools, ToolsError};

use crate::agents::workflow;
use crate::builtin::{self, Background};
use crate::skills::Shelf;
use crate::{agents, memory, skills};

/// What the built-in tools and the sources of declared ones need.
#[derive(Debug)]
pub struct Families {
    /// How tools are made that agents declare: those behind a URL, those of MCP servers.
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// What tools may use that reach beyond the database. Its `skills` and `background` are set by [`register_all`].
    pub settings: builtin::Settings,
    /// What tools need that work beside calls.
    pub background: Background,
    /// Where long outputs are.
    pub blobs: Arc<Depot>,
    /// The memory providers.
    pub memories: Arc<Memories>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub entropy: Arc<dyn Entropy>,
}

/// Every tool that agents may name, and how the tools that they declare are called.
pub fn register_all(families: Families) -> Result<Tools, ToolsError> {
    let Families {
        background,
        clock,
        entropy,
        memories,
        ..
    } = families;
    let store = background.store.clone();
    let mut tools = Tools::default();
    for source in families.sources {
        tools.add_source(source);
    }
    agents::register(&mut tools)?;
    let shelf = Arc::new(Shelf::new(store.clone(), clock.clone()));
    let settings = builtin::Settings {
        background: Some(background.clone()),
        skills: Some(shelf.clone()),
        ..families.settings
    };
    builtin::register(settings, clock.clone(), &mut tools)?;
    skills::register(&shelf, &mut tools)?;
    memory::register(store.clone(), families.blobs, clock, &memories, &mut tools)?;
    builtin::register_wakeups(&store, &entropy, &mut tools)?;
    workflow::register(&store, &background.bus, &mut tools)?;
    Ok(tools)
}
