//! Why a source cannot be read.

use std::io;

/// Why a source, or one conversation of it, cannot be read. Messages name tables and files, never content or secrets.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be opened or does not answer.
    #[error("the database cannot be read")]
    Database(#[source] sqlx::Error),
    /// The file cannot be read.
    #[error("the file cannot be read")]
    File(#[source] io::Error),
    /// The address is of a kind that is not supported.
    #[error("{0}")]
    Address(String),
    /// It is readable, but is not what it should be.
    #[error("{0}")]
    Shape(String),
}

impl Error {
    pub(crate) fn shape(what: impl Into<String>) -> Self {
        Self::Shape(what.into())
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}
