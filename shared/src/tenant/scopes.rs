//! What API keys allow: the scopes that they are given, and the rights that these consist of.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::named::named;

/// The prefix of stored scopes of a bound key.
const BOUND: &str = "bound:";

named! {
    /// What a key allows. `admin` includes the others, except `operate`.
    Scope {
        /// Read sessions, sends, runs, streams and everything else that only shows.
        Read = "read",
        /// Create sessions, sends, runs and timers with published agents, and cancel them.
        Use = "use",
        /// Define agents: publish them, define them inline, and change one for a send.
        Define = "define",
        /// `use` and `define` except publishing: the scope of keys made before there were these two.
        Send = "send",
        /// Answer questions, approvals and external tools; resume or abort an interrupted send.
        Answer = "answer",
        /// Change and delete sessions, agents, skills and memories.
        Manage = "manage",
        /// Everything in the tenant, its keys included.
        Admin = "admin",
        /// Operate the installation, with what the other scopes allow. Only for keys of the first tenant.
        Operate = "operate",
    }
}

/// Something that a request needs its key to allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// See what the tenant has.
    Read,
    /// Work with published agents.
    Use,
    /// Define an agent in a request, or change one for a send.
    Define,
    /// Publish an agent for everyone who uses it by name.
    Publish,
    /// Answer what waits for a person.
    Answer,
    /// Change and delete what the tenant has.
    Manage,
    /// Give and take keys.
    Administer,
}

impl Right {
    /// The scopes that include it, besides `admin`. The first is the one to ask for.
    pub const fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Read => &[Scope::Read],
            Self::Use => &[Scope::Use, Scope::Send],
            Self::Define => &[Scope::Define, Scope::Send, Scope::Manage],
            // Not `send`: a key must not gain rights over others' agents by an upgrade.
            Self::Publish => &[Scope::Define, Scope::Manage],
            Self::Answer => &[Scope::Answer],
            Self::Manage => &[Scope::Manage],
            Self::Administer => &[Scope::Admin],
        }
    }
}

/// The scopes of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scopes(pub BTreeSet<Scope>);

impl Scopes {
    /// Every right.
    pub fn all() -> Self {
        Self(BTreeSet::from([Scope::Admin, Scope::Operate]))
    }

    /// Whether they include `right`.
    pub fn allow(&self, right: Right) -> bool {
        let has = |scope| self.0.contains(scope);
        has(&Scope::Admin) || right.scopes().iter().any(has)
    }

    /// Whether they are an operator's, if the key belongs to the first tenant.
    pub fn operate(&self) -> bool {
        self.0.contains(&Scope::Operate)
    }

    /// The stored form: sorted names, separated by spaces.
    pub fn to_text(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|scope| scope.as_str()).collect();
        names.join(" ")
    }

    /// The stored form for a bound key. A release without support for bindings finds no known scope
    /// in it, so it refuses the key rather than allowing everything.
    pub fn to_bound_text(&self) -> String {
        let names = self.0.iter();
        let names: Vec<String> = names
            .map(|scope| format!("{BOUND}{}", scope.as_str()))
            .collect();
        names.join(" ")
    }

    /// Parses the output of [`Self::to_bound_text`].
    pub fn from_bound_text(text: &str) -> Self {
        let names = text.split(' ').filter_map(|name| name.strip_prefix(BOUND));
        Self(names.filter_map(Scope::parse).collect())
    }

    /// Parses the output of [`Self::to_text`]. Names that this release does not know are ignored,
    /// since it cannot tell what they allow.
    pub fn from_text(text: &str) -> Self {
        Self(text.split(' ').filter_map(Scope::parse).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_scope_allows() {
        let rights = [
            Right::Read,
            Right::Use,
            Right::Define,
            Right::Publish,
            Right::Answer,
            Right::Manage,
            Right::Administer,
        ];
        let allowed = |scope: Scope| {
            let scopes = Scopes(BTreeSet::from([scope]));
            let allowed = rights.into_iter().filter(|right| scopes.allow(*right));
            allowed.collect::<Vec<_>>()
        };
        assert_eq!(allowed(Scope::Read), [Right::Read]);
        assert_eq!(allowed(Scope::Use), [Right::Use]);
        assert_eq!(allowed(Scope::Define), [Right::Define, Right::Publish]);
        assert_eq!(allowed(Scope::Send), [Right::Use, Right::Define]);
        assert_eq!(allowed(Scope::Answer), [Right::Answer]);
        let manages = [Right::Define, Right::Publish, Right::Manage];
        assert_eq!(allowed(Scope::Manage), manages);
        assert_eq!(allowed(Scope::Admin), rights);
        // Operators are allowed what their other scopes allow, in the whole installation.
        assert_eq!(allowed(Scope::Operate), []);
    }

    #[test]
    fn nobody_becomes_an_operator_by_another_scope() {
        for scope in Scope::ALL {
            let operates = Scopes(BTreeSet::from([*scope])).operate();
            assert_eq!(operates, *scope == Scope::Operate, "{scope:?}");
        }
    }
}
