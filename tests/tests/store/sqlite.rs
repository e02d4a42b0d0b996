//! The SQLite store, with a file of its own per test.

mod audit;
mod file;
mod kill;
mod load;
mod migration;
mod opened;
mod path;
mod spoilt;
mod statements;
mod steps;
mod stopped;
mod tenant_tables;
mod unreadable;
mod went_back;

/// The schema version of the newest migration.
pub(crate) fn newest() -> i64 {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/sqlite");
    let files = std::fs::read_dir(folder).expect("the migrations are here");
    let names = files.map(|file| file.expect("can be read").file_name());
    let versions = names.map(|name| name.to_string_lossy()[..4].parse().expect("begins with it"));
    versions.max().expect("there is one")
}
