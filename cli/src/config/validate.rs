//! Checks whether the values make sense together for what a command does with them.

use mainspring_runtime::Problem;
use mainspring_shared::budget::Price;

use super::{Config, Provider, extra};

/// What a configuration is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Both roles in one process, for trying things out.
    Dev,
    /// Both roles in one process, for users who expect a real model.
    Serve,
    /// The API and the background loops.
    Scheduler,
    /// Running sends.
    Worker,
    /// Reading or preparing a database.
    Database,
}

/// The databases that a URL may select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// PostgreSQL.
    Postgres,
    /// SQLite, embedded.
    Sqlite,
    /// MySQL or MariaDB.
    Mysql,
}

/// Parameters of libpq that protect connections or choose servers and that the driver does not know, with the values
/// that ask for nothing.
const LOST: [(&str, &[&str]); 8] = [
    ("channel_binding", &["prefer", "disable"]),
    ("gssencmode", &["prefer", "disable"]),
    ("require_auth", &[]),
    ("sslcrl", &[]),
    ("sslcrldir", &[]),
    ("ssl_max_protocol_version", &[]),
    ("ssl_min_protocol_version", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("target_session_attrs", &["any"]),
];

impl Config {
    /// The kind of database according to the URL's scheme; SQLite if there is no URL.
    pub(crate) fn backend(&self) -> Backend {
        let url = self
            .database_url
            .as_ref()
            .map_or("sqlite:", |url| url.reveal());
        match url.split(':').next().unwrap_or_default() {
            "postgres" | "postgresql" => Backend::Postgres,
            "mysql" => Backend::Mysql,
            _ => Backend::Sqlite,
        }
    }

    /// Every provider, with the name of its section.
    fn all_providers(&self) -> impl Iterator<Item = (String, &Provider)> {
        let default = std::iter::once(("llm".to_owned(), &self.llm));
        let named = self.providers.iter();
        default.chain(named.map(|(name, provider)| (format!("providers.{name}"), provider)))
    }

    /// A parameter of the database's URL that asks for something which connections would silently lack.
    fn lost_parameter(&self) -> Option<String> {
        let url = self.database_url.as_ref()?.reveal();
        if self.backend() != Backend::Postgres {
            return None;
        }
        let (_, query) = url.rsplit_once('?')?;
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let lost = |(name, value): &(&str, &str)| {
            let harmless = LOST.iter().find(|(lost, _)| lost == name);
            harmless.is_some_and(|(_, harmless)| !harmless.contains(value))
        };
        let (name, value) = pairs.into_iter().find(lost)?;
        Some(format!(
            "has {name}={value}, which connections of this program would not heed: leave it out"
        ))
    }

    /// Every problem that prevents `purpose`; empty if there is none.
    pub(crate) fn validate(&self, purpose: Purpose) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |code, origin: &str, detail: &str| {
            let (origin, detail) = (origin.to_owned(), detail.to_owned());
            problems.push(Problem {
                code,
                origin,
                detail,
            });
        };
        let distributed = matches!(purpose, Purpose::Scheduler | Purpose::Worker);
        match self.backend() {
            Backend::Sqlite if distributed && self.database_url.is_none() => {
                let detail = "a database is needed: --database-url postgres://USER@HOST/NAME or \
                              MAINSPRING_DATABASE_URL (or run `mainspring dev`, which needs none)";
                add("config.missing", "database_url", detail);
            }
            Backend::Sqlite if distributed => {
                let detail = "SQLite supports one process only, but a scheduler and its workers \
                              are several: run `mainspring serve`, or use postgres:// or mysql://";
                add("config.unsupported", "database_url", detail);
            }
            Backend::Postgres | Backend::Mysql if distributed && self.redis_url.is_none() => {
                let detail = "a queue is needed: --redis-url redis://HOST:6379 or MAINSPRING_REDIS_URL \
                              (or run `mainspring serve`, which needs none)";
                add("config.missing", "redis_url", detail);
            }
            Backend::Postgres | Backend::Sqlite | Backend::Mysql => {}
        }
        if let Some(detail) = self.lost_parameter() {
            add("config.unsupported", "database_url", &detail);
        }
        if let Some((code, detail)) = self.wrong_schema() {
            add(code, "database_schema", detail);
        }
        if !is_prefix(&self.redis_prefix) {
            let detail = "takes 1 to 64 letters, digits, `_`, `.` and `-`";
            add("config.invalid_value", "redis_prefix", detail);
        }
        if self.row_security && self.backend() != Backend::Postgres {
            let detail = "only works with Postgres: unset it, or use postgres://";
            add("config.unsupported", "row_security", detail);
        }
        if let Some(detail) = self.wrong_databases() {
            add("config.unsupported", "databases", detail);
        }
        if self.retry.base > self.retry.cap {
            add(
                "config.invalid_value",
                "retry.base",
                "must not be longer than retry.cap",
            );
        }
        for entry in &self.prices {
            if Price::parse_entry(entry).is_none() {
                let detail = "takes entries like gpt-5-mini=0.25/2/0.025: a model, and US dollars \
                              per million input, output and cached tokens";
                add("config.invalid_value", "prices", detail);
            }
        }
        for (section, provider) in self.all_providers() {
            if let Err(fault) = extra(provider) {
                let origin = format!("{section}.request_extra");
                add("config.invalid_value", &origin, &fault.to_string());
            }
        }
        if let Some((origin, detail)) = self.blobs.missing() {
            add("config.missing", origin, detail);
        }
        if self.scheduler.sweep_interval > self.lease_ttl {
            let detail = "must not be longer than lease_ttl";
            add("config.invalid_value", "sweep_interval", detail);
        }
        // The built-in demo model is for trying things out, not for users who expect a real model.
        if matches!(purpose, Purpose::Worker | Purpose::Serve) && self.has_no_provider() {
            let detail = "a model provider is required: set OPENAI_API_KEY, ANTHROPIC_API_KEY or \
                          MAINSPRING_LLM_BASE_URL; --provider demo answers without a model";
            add("config.missing", "llm", detail);
        }
        if matches!(purpose, Purpose::Dev | Purpose::Worker | Purpose::Serve) {
            for (section, provider) in self.all_providers() {
                if provider.needs_key() {
                    let usual = provider.kind.key_variable().unwrap_or_default();
                    let detail = if section == "llm" {
                        format!(
                            "a key is needed: set {usual} or MAINSPRING_LLM_API_KEY (or base_url, \
                             MAINSPRING_LLM_BASE_URL, for your own endpoint)"
                        )
                    } else {
                        format!(
                            "a key is needed: set {usual}, or api_key or api_key_env there (or \
                             base_url for your own endpoint)"
                        )
                    };
                    add("config.missing", &section, &detail);
                }
            }
        }
        problems
    }

    /// What is wrong with the schema's name, and the error code.
    fn wrong_schema(&self) -> Option<(&'static str, &'static str)> {
        let schema = self.database_schema.as_deref()?;
        if self.backend() != Backend::Postgres {
            let detail = "only works with Postgres: unset it; with MySQL name another database in database_url, \
                          with SQLite another file";
            return Some(("config.unsupported", detail));
        }
        let detail = "must be a name of lower-case letters, digits and `_`, at most 63, that does not begin \
                      with a digit or `pg_`";
        (!is_identifier(schema)).then_some(("config.invalid_value", detail))
    }
}

/// Whether a text can be a prefix of names in Redis: it must not contain a separator.
fn is_prefix(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=64).contains(&text.len()) && text.chars().all(plain)
}

/// Whether a text is a valid unquoted Postgres identifier that is not reserved.
fn is_identifier(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins_well = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    begins_well && text.len() <= 63 && text.chars().all(plain) && !text.starts_with("pg_")
}
