//! Tools on the files of a session's workspace. No path that a model gives leads out of it, whatever links
//! say.

pub(crate) mod apply_patch;
pub(crate) mod change;
pub(crate) mod diff;
pub(crate) mod edit_file;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod list_dir;
pub(crate) mod page;
pub(crate) mod read_file;
pub(crate) mod stamps;
pub(crate) mod text;
pub(crate) mod walk;
pub(crate) mod work;
pub(crate) mod workspace;
pub(crate) mod write_file;
