//! Configuration: flag over environment over file over defaults.
//!
//! Each component declares its settings with [`settings!`](crate::settings): a struct whose fields
//! have their defaults and, if users may set them, their [`Key`]. The name of the environment
//! variable follows from the key's path (`worker.concurrency` is `MAINSPRING_WORKER_CONCURRENCY`).
//! Each layer is checked key by key, so that all problems are reported at once, each with its
//! origin.

mod environment;
mod keys;
mod layers;
mod print;
mod secret;
mod settings;

pub use environment::Environment;
pub use keys::{Key, Keys, Kind};
pub use layers::{DEFAULTS, Layers, Sources};
pub use secret::Secret;
pub use settings::{Choice, Named, Setting, Settings, Values};

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The stable kind of problem: `config.unknown_key`, `config.invalid_value`, `config.missing`,
    /// `config.unsupported` or `config.unreadable`.
    pub code: &'static str,
    /// The flag, variable or file that caused it.
    pub origin: String,
    /// What is wrong and what to write instead. Never contains a secret.
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} [{}]", self.origin, self.detail, self.code)
    }
}

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Problems(pub Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
