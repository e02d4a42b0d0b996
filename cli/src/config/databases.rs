//! The databases of an installation that has more than one.

use mainspring_runtime::Secret;
use mainspring_shared::store::placements::HOME;

use super::{Backend, Config};

/// A database besides the home database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Database {
    /// Its name in the catalogue.
    pub(crate) name: String,
    /// Its URL, without the name.
    pub(crate) url: Secret,
}

impl Config {
    /// The databases besides `database_url`, which is the home database.
    pub(crate) fn other_databases(&self) -> Vec<Database> {
        let all = self.databases.iter().filter_map(|url| {
            let (url, name) = url.reveal().rsplit_once('#')?;
            Some(Database {
                name: name.to_owned(),
                url: Secret::new(url),
            })
        });
        all.collect()
    }

    /// What is wrong with `databases`.
    pub(super) fn wrong_databases(&self) -> Option<&'static str> {
        if self.databases.is_empty() {
            return None;
        }
        if self.backend() != Backend::Postgres {
            return Some(
                "are several Postgres servers: leave it out, or use postgres:// for database_url",
            );
        }
        let others = self.other_databases();
        if others.len() < self.databases.len() {
            return Some("name each database behind its URL: postgres://USER@HOST/NAME#b");
        }
        let is_name = |name: &str| {
            let mut letters = name.chars();
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !name.is_empty() && name.len() <= 63 && letters.all(plain) && name != HOME
        };
        if !others.iter().all(|it| is_name(&it.name)) {
            return Some(
                "have names of small letters, digits and dashes behind the #, and none is called home",
            );
        }
        let mut names: Vec<_> = others.iter().map(|it| &it.name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some("have a name of their own each");
        }
        None
    }
}
