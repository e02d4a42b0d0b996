//! What goes wrong.

use mainspring_shared::store;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL is neither `sqlite:FILE` nor `postgres://…`.
    #[error(
        "{shown} is not the URL of a database: write sqlite:FILE or postgres://USER:PASSWORD@HOST/NAME"
    )]
    Url {
        /// The URL without its password.
        shown: String,
    },
    /// The database cannot be opened or used.
    #[error("{shown}: the database cannot be used")]
    Store {
        /// The URL without its password.
        shown: String,
        /// Why.
        #[source]
        source: store::Error,
    },
    /// Tools, providers, hooks or keys cannot be used as they are given.
    #[error("{0}")]
    Setup(String),
    /// A request was refused, or what it was about ended otherwise than well.
    #[error(transparent)]
    Client(#[from] mainspring_client::Error),
    /// Not everything could be finished in time. Nothing that was accepted is lost: another process, or the next one, goes on.
    #[error("not everything could be finished")]
    Unfinished,
}

impl Error {
    pub(crate) fn setup(error: impl std::fmt::Display) -> Self {
        Self::Setup(error.to_string())
    }
}
