//! The process's environment, read once.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::keys::Keys;

/// The prefix of all our variables.
pub(super) const PREFIX: &str = "MAINSPRING_";

/// The configuration file's path.
const FILE: &str = "MAINSPRING_CONFIG";

/// Prefixes of our variables that are not keys: the file's path, the call id that an agent's
/// command is given, and those of the tests.
const NOT_KEYS: [&str; 4] = [
    FILE,
    "MAINSPRING_CALL_ID",
    "MAINSPRING_TEST_",
    "MAINSPRING_FAULT_",
];

/// A snapshot of environment variables. Empty ones count as unset.
#[derive(Clone, Default)]
pub struct Environment {
    set: BTreeMap<String, String>,
    /// The names of variables whose values are not text.
    unreadable: Vec<String>,
}

impl Environment {
    /// The process's own environment; the one place that reads it.
    pub fn read() -> Self {
        Self::from_raw(std::env::vars_os())
    }

    /// An environment made of what the system has, which need not be text.
    fn from_raw(raw: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut unreadable = Vec::new();
        let pairs = raw.into_iter().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let Ok(value) = value.into_string() else {
                unreadable.push(name);
                return None;
            };
            Some((name, value))
        });
        let read = Self::from_pairs(pairs);
        Self { unreadable, ..read }
    }

    /// An environment made of pairs.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let set = pairs
            .into_iter()
            .filter(|(_, value)| !value.trim().is_empty());
        Self {
            set: set.collect(),
            unreadable: Vec::new(),
        }
    }

    /// Variables with our prefix whose values are not text in UTF-8.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = &str> {
        let names = self.unreadable.iter().map(String::as_str);
        names.filter(|name| name.starts_with(PREFIX))
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.set.get(name).map(String::as_str)
    }

    /// The configuration file that the environment names.
    pub fn config_file(&self) -> Option<&str> {
        self.get(FILE)
    }

    /// Variables with our prefix that are not known. Those that Kubernetes sets for a service
    /// called `mainspring` are left out.
    pub(super) fn unknown(&self, keys: &Keys) -> Vec<&str> {
        let ours = self
            .set
            .keys()
            .map(String::as_str)
            .filter(|name| name.starts_with(PREFIX));
        let strange = ours.filter(|name| {
            !NOT_KEYS.iter().any(|known| name.starts_with(known))
                && !keys.single().any(|key| key.variable() == *name)
                && !is_service_link(name)
        });
        strange.collect()
    }
}

/// Whether Kubernetes sets a variable of this name for a service: `…_SERVICE_HOST`,
/// `…_PORT_7464_TCP`, ….
fn is_service_link(name: &str) -> bool {
    name.contains("_SERVICE_") || name.ends_with("_PORT") || name.contains("_PORT_")
}

impl std::fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.set.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_variable_of_ours_that_is_not_text_is_told() {
        use std::os::unix::ffi::OsStringExt as _;

        let odd = || OsString::from_vec(vec![0xff]);
        let names = ["MAINSPRING_TENANT", "OTHER"].map(OsString::from);
        let env = Environment::from_raw(names.map(|name| (name, odd())));
        let told: Vec<_> = env.unreadable().collect();
        assert_eq!(told, ["MAINSPRING_TENANT"]);
    }

    #[test]
    fn strange_variables_of_ours_are_found_but_not_those_of_a_cluster() {
        let pairs = [
            ("MAINSPRING_LISTN", "x"),
            ("MAINSPRING_LISTEN", "x:1"),
            ("MAINSPRING_TEST_POSTGRES_URL", "x"),
            ("MAINSPRING_SERVICE_HOST", "10.0.0.1"),
            ("MAINSPRING_PORT_7464_TCP", "tcp://10.0.0.1:7464"),
            ("OTHER", "x"),
        ];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = Environment::from_pairs(pairs);
        let keys = Keys::new(vec![Key::address("listen")], &[]);
        assert_eq!(env.unknown(&keys), ["MAINSPRING_LISTN"]);
    }
}
