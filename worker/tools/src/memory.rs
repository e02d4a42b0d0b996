//! Lists that agents keep in the database: to-dos, notes, a board shared with other agents.
//!
//! | tools | list |
//! |---|---|
//! | `todo` | one per session, written as a whole |
//! | `note_add`, `note_update`, `note_delete`, `note_list` | one per session; shown to the model when a send starts |
//! | `read_output` | none: it reads the full output of a call of the session of which the model was shown only a part |
//! | `memory_search`, `memory_save`, `memory_forget` | none: they access the memory, which outlives sessions |
//! | `recall` | none: it reads the transcript, including what the model is no longer shown |
//! | `board_read`, `board_post`, `board_update`, `board_remove` | one per tree of sessions, or per board name |
//!
//! A write is identified by its call: repeated after a worker's death, it changes nothing.

mod board;
pub(crate) mod entries;
mod notes;
mod output;
mod recall;
mod remote;
mod shared;
mod todo;

use std::sync::Arc;

use mainspring_shared::blob::Depot;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;

use mainspring_worker::memory::Memories;
use mainspring_worker::tool::{Tools, ToolsError};

use self::board::Board;
use self::entries::Remembers;
use self::notes::Notes;
use self::shared::MemoryTools;
pub(crate) use self::shared::retry_while_unavailable;
use crate::catalogue::{Listed, NOTHING, insert_all, tool};

pub use self::remote::HttpMemory;

#[cfg(test)]
pub(crate) use self::notes::NOTE_TOOLS;

/// Registers the tools, which keep their lists in this store.
pub fn register(
    store: Arc<dyn Store>,
    blobs: Arc<Depot>,
    clock: Arc<dyn Clock>,
    memories: &Arc<Memories>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    let shared = Arc::new(MemoryTools {
        store,
        blobs,
        clock,
    });
    insert_all(&TOOLS, &shared, tools)?;
    let memories = memories.clone();
    insert_all(&entries::TOOLS, &Remembers { shared, memories }, tools)
}

pub(crate) const TOOLS: [Listed<Arc<MemoryTools>>; 11] = [
    tool(
        "read_output",
        NOTHING,
        "reads a truncated part of an output",
        |shared| {
            Arc::new(output::ReadOutput {
                shared: shared.clone(),
            })
        },
    ),
    tool(
        "recall",
        NOTHING,
        "reads earlier messages: by send, by number, by search, or of a child",
        |shared| {
            Arc::new(recall::Recall {
                shared: shared.clone(),
            })
        },
    ),
    tool(
        "todo",
        NOTHING,
        "maintains the session's to-do list",
        |shared| {
            Arc::new(todo::Todo {
                shared: shared.clone(),
            })
        },
    ),
    tool(
        "note_add",
        NOTHING,
        "saves a note for later sends of the session",
        |shared| Notes::with(shared, notes::Act::Add),
    ),
    tool("note_update", NOTHING, "updates a note", |shared| {
        Notes::with(shared, notes::Act::Update)
    }),
    tool("note_delete", NOTHING, "deletes a note", |shared| {
        Notes::with(shared, notes::Act::Delete)
    }),
    tool("note_list", NOTHING, "lists the notes", |shared| {
        Notes::with(shared, notes::Act::List)
    }),
    tool(
        "board_read",
        NOTHING,
        "reads the board shared by the agents of a tree",
        |shared| Board::with(shared, board::Act::Read),
    ),
    tool(
        "board_post",
        NOTHING,
        "adds an entry to the board",
        |shared| Board::with(shared, board::Act::Post),
    ),
    tool(
        "board_update",
        NOTHING,
        "updates an entry on the board",
        |shared| Board::with(shared, board::Act::Update),
    ),
    tool(
        "board_remove",
        NOTHING,
        "removes an entry from the board",
        |shared| Board::with(shared, board::Act::Remove),
    ),
];
