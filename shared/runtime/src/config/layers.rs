//! Puts the layers on top of each other.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::{Config, Environment, Problem, Problems, keys, print, provider};

/// What values are said to come from that nobody set.
pub(super) const DEFAULTS: &str = "the defaults";

/// Where values come from, lowest first.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The manual: a TOML text that gives every key that needs one its default.
    pub defaults: &'a str,
    /// The file that the user named.
    pub file: Option<&'a Path>,
    /// The environment.
    pub environment: &'a Environment,
    /// Paths of keys with what the flags say, as text.
    pub flags: &'a [(&'static str, String)],
}

/// Checked values by path, each with where it came from.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) values: BTreeMap<String, (Value, String)>,
    pub(super) problems: Vec<Problem>,
}

impl Config {
    /// Reads all layers. Either everything is well-formed, or every problem is returned at once.
    /// Whether the values make sense together depends on the command: see [`Config::validate`].
    pub fn load(sources: &Sources<'_>) -> Result<Self, Problems> {
        let mut layers = Layers::default();
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
            layers.spelled(path, text, &origin);
        }
        provider::resolve(&mut layers, sources.environment);
        layers.finish()
    }
}

impl Layers {
    pub(super) fn problem(&mut self, code: &'static str, origin: &str, detail: String) {
        self.problems.push(Problem {
            code,
            origin: origin.to_owned(),
            detail,
        });
    }

    fn text(&mut self, origin: &str, text: &str) {
        match text.parse::<Table>() {
            Ok(table) => self.table(origin, "", table),
            // The message without the source line: a line may hold a secret.
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
            match (keys::find(&path), value) {
                (None, Value::Table(inner)) => self.table(origin, &path, inner),
                (None, _) => {
                    let hint = keys::nearest(&path)
                        .map_or(String::new(), |near| format!("; did you mean {near}?"));
                    let detail = format!("{path} is not a key{hint}");
                    self.problem("config.unknown_key", origin, detail);
                }
                // An empty text takes a key's value away, as an empty variable does.
                (Some(_), Value::String(text)) if text.is_empty() => {
                    self.values.remove(&path);
                }
                (Some(key), value) => self.put(&path, key.kind.check(value), origin),
            }
        }
    }

    fn environment(&mut self, environment: &Environment) {
        for key in keys::KEYS {
            let names = std::iter::once(key.variable());
            let mut names = names.chain(key.fallback.iter().map(|name| (*name).to_owned()));
            let found = names.find_map(|name| Some((environment.get(&name)?, name)));
            if let Some((text, name)) = found {
                self.spelled(key.path, text, &name);
            }
        }
        // A key may be kept under any name that the configuration mentions.
        let mentioned = |name: &str| {
            self.values.iter().any(|(path, (value, _))| {
                path.ends_with(".api_key_env") && value.as_str() == Some(name)
            })
        };
        let strange: Vec<&str> = environment
            .unknown()
            .into_iter()
            .filter(|name| !mentioned(name))
            .collect();
        for name in strange {
            let hint = keys::nearest_variable(name)
                .map_or(String::new(), |near| format!("; did you mean {near}?"));
            let detail = format!("is not a variable of Mainspring{hint}");
            self.problem("config.unknown_key", name, detail);
        }
    }

    pub(super) fn spelled(&mut self, path: &str, text: &str, origin: &str) {
        if let Some(key) = keys::find(path) {
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

    fn finish(mut self) -> Result<Config, Problems> {
        let printed = print::render(&self.values);
        let provider = self.values.get("llm.provider");
        let provider_by_default = provider.is_none_or(|(_, origin)| origin == DEFAULTS);
        let mut root = Table::new();
        for (path, (value, _)) in std::mem::take(&mut self.values) {
            let mut table = &mut root;
            let mut names = path.split('.').peekable();
            while let Some(name) = names.next() {
                if names.peek().is_none() {
                    table.insert(name.to_owned(), value);
                    break;
                }
                let inner = table
                    .entry(name)
                    .or_insert_with(|| Value::Table(Table::new()));
                let Value::Table(inner) = inner else { break };
                table = inner;
            }
        }
        match root.try_into::<Config>() {
            _ if !self.problems.is_empty() => Err(Problems(self.problems)),
            Ok(config) => Ok(Config {
                printed,
                provider_by_default,
                ..config
            }),
            Err(error) => {
                self.problem(
                    "config.missing",
                    "the configuration",
                    error.message().to_owned(),
                );
                Err(Problems(self.problems))
            }
        }
    }
}
