//! Lists that agents keep in the database: things to do, notes, a board shared with other agents.
//!
//! | tools | list |
//! |---|---|
//! | `todo` | one of each session, written as a whole |
//! | `note_add`, `note_update`, `note_delete`, `note_list` | one of each session; the model is shown it when a send begins |
//! | `read_output` | none: it reads what a call of the session gave, where the model was shown a part |
//! | `memory_search`, `memory_save`, `memory_forget` | none: they reach the memory, which outlives sessions |
//! | `recall` | none: it reads the transcript, also what the model is not shown any more |
//! | `board_read`, `board_post`, `board_update`, `board_remove` | one of each tree of sessions, or of all agents that name the same |
//!
//! A write is known by its call: repeated after a worker's death it changes nothing.

mod board;
mod desk;
mod entries;
mod notes;
mod output;
mod recall;
mod remote;
mod todo;

use std::sync::Arc;

use mainspring_shared::blob::Depot;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;

use mainspring_worker::memory::Memories;
use mainspring_worker::tool::{Tools, ToolsError};

use self::desk::Desk;
pub(crate) use self::desk::patiently;

pub use self::remote::HttpMemory;

#[cfg(test)]
pub(crate) use self::notes::NOTE_TOOLS;

/// Enters the tools, which keep their lists in this store.
pub fn register(
    store: Arc<dyn Store>,
    blobs: Arc<Depot>,
    clock: Arc<dyn Clock>,
    memories: &Arc<Memories>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    let desk = Arc::new(Desk {
        store,
        blobs,
        clock,
    });
    let output = output::ReadOutput { desk: desk.clone() };
    tools.insert(Arc::new(output))?;
    tools.insert(Arc::new(recall::Recall { desk: desk.clone() }))?;
    tools.insert(Arc::new(todo::Todo { desk: desk.clone() }))?;
    for act in notes::Act::ALL {
        let desk = desk.clone();
        tools.insert(Arc::new(notes::Notes { desk, act }))?;
    }
    for act in entries::Act::ALL {
        let (desk, memories) = (desk.clone(), memories.clone());
        tools.insert(Arc::new(entries::Entries {
            desk,
            memories,
            act,
        }))?;
    }
    for act in board::Act::ALL {
        let desk = desk.clone();
        tools.insert(Arc::new(board::Board { desk, act }))?;
    }
    Ok(())
}
