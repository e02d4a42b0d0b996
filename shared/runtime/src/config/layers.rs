//! Merging of the layers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::{Table, Value};

use super::keys::Keys;
use super::{Environment, Key, Problem, Problems, Settings, Values, print};

/// The source of default values.
pub const DEFAULTS: &str = "the defaults";

/// The layers, lowest precedence first.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The manual: a TOML text with a default for every key that needs one.
    pub defaults: &'a str,
    /// The configuration file, if the user named one.
    pub file: Option<&'a Path>,
    /// The environment.
    pub environment: &'a Environment,
    /// The values of flags, as text, by the paths of their keys.
    pub flags: &'a [(&'static str, String)],
}

/// Checked values by path, each with its origin.
#[derive(Debug)]
pub struct Layers {
    keys: Keys,
    values: BTreeMap<String, (Value, String)>,
    problems: Vec<Problem>,
    missing: Vec<Problem>,
}

impl Layers {
    /// Reads all layers and checks each value against its key.
    pub fn read(keys: Keys, sources: &Sources<'_>) -> Self {
        let mut layers = Self {
            keys,
            values: BTreeMap::new(),
            problems: Vec::new(),
            missing: Vec::new(),
        };
        layers.text(DEFAULTS, sources.defaults);
        if let Some(path) = sources.file {
            let origin = path.display().to_string();
            match std::fs::read_to_string(path) {
                Ok(text) => layers.text(&origin, &text),
                Err(error) => layers.problem("config.unreadable", &origin, error.to_string()),
            }
        }
        layers.environment(sources.environment);
        for (path, text) in sources.flags {
            let origin = format!("--{}", path.replace(['.', '_'], "-"));
            layers.set_from_text(path, text, &origin);
        }
        layers
    }

    /// The value at a path, with its origin.
    pub fn get(&self, path: &str) -> Option<&(Value, String)> {
        self.values.get(path)
    }

    /// The value at a path, if it is a text.
    pub fn text_at(&self, path: &str) -> Option<&str> {
        self.values.get(path)?.0.as_str()
    }

    /// Removes and returns the value at a path.
    pub fn take(&mut self, path: &str) -> Option<(Value, String)> {
        self.values.remove(path)
    }

    /// Copies the value and origin of `from` to `path` if `path` has no value.
    pub fn inherit(&mut self, path: &str, from: &str) {
        if let (None, Some(value)) = (self.values.get(path), self.values.get(from)) {
            self.values.insert(path.to_owned(), value.clone());
        }
    }

    /// The values whose paths begin with this prefix, in order, by the rest of the path.
    pub fn below(&self, prefix: &str) -> impl Iterator<Item = (&str, &Value)> {
        let paths = self.values.range(prefix.to_owned()..);
        paths.map_while(move |(path, (value, _))| Some((path.strip_prefix(prefix)?, value)))
    }

    /// All values as a file would hold them, each with its origin. Secrets are hidden.
    pub fn print(&self) -> String {
        print::render(&self.keys, &self.values)
    }

    /// Records a problem.
    pub fn problem(&mut self, code: &'static str, origin: &str, detail: String) {
        self.problems.push(Problem {
            code,
            origin: origin.to_owned(),
            detail,
        });
    }

    fn text(&mut self, origin: &str, text: &str) {
        match text.parse::<Table>() {
            Ok(table) => self.table(origin, "", table),
            // Leave out the source line: it may hold a secret.
            Err(error) => {
                let line = error.span().map_or(0, |span| {
                    text.get(..span.start)
                        .map_or(0, |before| before.matches('\n').count() + 1)
                });
                let detail = format!("is not TOML at line {line}: {}", error.message());
                self.problem("config.unreadable", origin, detail);
            }
        }
    }

    fn table(&mut self, origin: &str, prefix: &str, table: Table) {
        for (name, value) in table {
            let path = if prefix.is_empty() {
                name
            } else {
                format!("{prefix}.{name}")
            };
            match (self.keys.find(&path), value) {
                (None, Value::Table(inner)) => self.table(origin, &path, inner),
                (None, _) => {
                    let hint = self
                        .keys
                        .nearest(&path)
                        .map_or(String::new(), |near| format!("; did you mean {near}?"));
                    let detail = format!("{path} is not a key{hint}");
                    self.problem("config.unknown_key", origin, detail);
                }
                // An empty text removes a key's value, as an empty variable does.
                (Some(_), Value::String(text)) if text.is_empty() => {
                    self.values.remove(&path);
                }
                (Some(key), value) => self.put(&path, key.kind.check(value), origin),
            }
        }
    }

    fn environment(&mut self, environment: &Environment) {
        let single: Vec<Key> = self.keys.single().copied().collect();
        for key in single {
            let names = std::iter::once(key.variable());
            let mut names = names.chain(key.fallback.iter().map(|name| (*name).to_owned()));
            let found = names.find_map(|name| Some((environment.get(&name)?, name)));
            if let Some((text, name)) = found {
                self.set_from_text(key.path, text, &name);
            }
        }
        for name in environment.unreadable() {
            let detail = "is not text in UTF-8".to_owned();
            self.problem("config.invalid_value", name, detail);
        }
        // A provider's API key may be in any variable that the configuration names.
        let mentioned = |name: &str| {
            self.values.iter().any(|(path, (value, _))| {
                path.ends_with(".api_key_env") && value.as_str() == Some(name)
            })
        };
        let strange: Vec<&str> = environment
            .unknown(&self.keys)
            .into_iter()
            .filter(|name| !mentioned(name))
            .collect();
        for name in strange {
            let hint = self
                .keys
                .nearest_variable(name)
                .map_or(String::new(), |near| format!("; did you mean {near}?"));
            let detail = format!("is not a variable of Mainspring{hint}");
            self.problem("config.unknown_key", name, detail);
        }
    }

    /// Sets the value at a path, as given by a flag or a variable.
    pub fn set_from_text(&mut self, path: &str, text: &str, origin: &str) {
        if let Some(key) = self.keys.find(path) {
            self.put(path, key.kind.parse(text), origin);
        }
    }

    fn put(&mut self, path: &str, value: Result<Value, String>, origin: &str) {
        match value {
            Ok(value) => {
                self.values
                    .insert(path.to_owned(), (value, origin.to_owned()));
            }
            Err(wants) => {
                self.problem("config.invalid_value", origin, format!("{path} {wants}"));
            }
        }
    }

    /// Reads a component's settings.
    pub fn settings<T: Settings>(&mut self) -> T {
        T::read(&mut Values {
            layers: self,
            moved: None,
        })
    }

    /// Reads settings for each table below a path, by name. `declared` is the path at which their
    /// keys are declared.
    pub fn named<T: Settings>(&mut self, below: &str, declared: &str) -> BTreeMap<String, T> {
        let mut all = BTreeMap::new();
        for name in self.names(below) {
            let path = format!("{below}.{name}");
            let settings = T::read(&mut Values {
                layers: self,
                moved: Some((declared, &path)),
            });
            all.insert(name, settings);
        }
        all
    }

    /// The names of the tables below a path that have a value.
    pub fn names(&self, below: &str) -> BTreeSet<String> {
        let prefix = format!("{below}.");
        let paths = self.below(&prefix).map(|(path, _)| path);
        let names = paths.filter_map(|path| path.split_once('.'));
        names.map(|(name, _)| name.to_owned()).collect()
    }

    /// Records that a required key has no value.
    pub(super) fn missing(&mut self, path: &str) {
        let name = path.rsplit('.').next().unwrap_or_default();
        self.missing.push(Problem {
            code: "config.missing",
            origin: "the configuration".to_owned(),
            detail: format!("missing field `{name}`"),
        });
    }

    /// Returns what was made from the values, unless there were problems.
    pub fn finish<T>(self, made: T) -> Result<T, Problems> {
        // A value may only be missing because the given one was invalid.
        if !self.problems.is_empty() {
            return Err(Problems(self.problems));
        }
        if !self.missing.is_empty() {
            return Err(Problems(self.missing));
        }
        Ok(made)
    }
}
