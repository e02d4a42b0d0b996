//! The table of keys: what each takes and between which bounds.

use std::time::Duration;

use mainspring_shared::time::Span;
use mainspring_shared::words::distance;
use toml::Value;

use super::environment::PREFIX;

/// What a key takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Secret,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A URL with one of these schemes; may carry a password.
    Url(&'static [&'static str]),
    /// `HOST:PORT`.
    Address,
    /// A list of texts; spelled with commas between them.
    List,
    Switch,
    Integer {
        min: i64,
        max: i64,
    },
    Span {
        min: Duration,
        max: Duration,
    },
}

/// A key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    /// Its place in the file, dotted.
    pub(super) path: &'static str,
    /// What it takes.
    pub(super) kind: Kind,
    /// Variables that count when ours is not set.
    pub(super) fallback: &'static [&'static str],
}

impl Key {
    const fn new(path: &'static str, kind: Kind) -> Self {
        Self {
            path,
            kind,
            fallback: &[],
        }
    }

    const fn or(path: &'static str, kind: Kind, fallback: &'static [&'static str]) -> Self {
        Self {
            path,
            kind,
            fallback,
        }
    }

    /// Its environment variable.
    pub(super) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.path.replace('.', "_").to_uppercase())
    }
}

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

const fn span(min: Duration, max: Duration) -> Kind {
    Kind::Span { min, max }
}

const fn integer(min: i64, max: i64) -> Kind {
    Kind::Integer { min, max }
}

const HTTP: Kind = Kind::Url(&["http", "https"]);

/// Every key but those of `[providers.NAME]` and `[mcp.NAME]`.
pub(super) const KEYS: &[Key] = &[
    Key::new("server", HTTP),
    Key::or("database_url", DATABASE, &["DATABASE_URL"]),
    Key::new("database_writers", integer(1, 1_000)),
    Key::new("database_claimers", integer(1, 1_000)),
    Key::new("database_streamers", integer(1, 1_000)),
    Key::new("database_readers", integer(1, 1_000)),
    Key::or("redis_url", Kind::Url(&["redis", "rediss"]), &["REDIS_URL"]),
    Key::new("redis_ca_file", Kind::Text),
    Key::new("data_dir", Kind::Text),
    Key::new("listen", Kind::Address),
    Key::new("ops_listen", Kind::Address),
    Key::new("name", Kind::Text),
    Key::new("migrate", Kind::Choice(&["create", "verify"])),
    Key::new("lease_ttl", span(SECOND, HOUR)),
    Key::new("sweep_interval", span(Duration::from_millis(10), HOUR)),
    Key::new("log", Kind::Text),
    Key::new("log_format", Kind::Choice(&["pretty", "json"])),
    Key::or("otlp_endpoint", HTTP, &["OTEL_EXPORTER_OTLP_ENDPOINT"]),
    Key::new("scheduler.sweep_age", span(Duration::ZERO, HOUR)),
    Key::new("scheduler.sweep_depth_low", integer(0, 2_000)),
    Key::new("scheduler.sweep_depth_high", integer(1, 2_000)),
    Key::new(
        "scheduler.alarm_interval",
        span(Duration::from_millis(10), HOUR),
    ),
    Key::new(
        "scheduler.timer_interval",
        span(Duration::from_millis(10), HOUR),
    ),
    Key::new(
        "scheduler.timer_keep",
        span(HOUR, Duration::from_hours(87_600)),
    ),
    Key::new(
        "scheduler.retention_interval",
        span(SECOND, Duration::from_hours(24)),
    ),
    Key::new(
        "scheduler.idempotency_keep",
        span(Duration::from_hours(24), Duration::from_hours(8_760)),
    ),
    Key::new(
        "scheduler.send_keep",
        span(Duration::from_hours(24), Duration::from_hours(87_600)),
    ),
    Key::new(
        "scheduler.run_keep",
        span(Duration::from_hours(24), Duration::from_hours(87_600)),
    ),
    Key::new("scheduler.allowed_hosts", Kind::List),
    Key::new("scheduler.allowed_origins", Kind::List),
    Key::new("scheduler.connections_max", integer(1, 10_000_000)),
    Key::new("scheduler.head_timeout", span(SECOND, HOUR)),
    Key::new("scheduler.head_bytes_max", integer(8_192, 1 << 20)),
    Key::new("scheduler.write_timeout", span(SECOND, HOUR)),
    Key::new("scheduler.bodies_bytes_max", integer(1_024, 1 << 31)),
    Key::new("scheduler.body_bytes_max", integer(1_024, 1 << 30)),
    Key::new("scheduler.batch_bytes_max", integer(1_024, 1 << 30)),
    Key::new("scheduler.body_timeout", span(SECOND, HOUR)),
    Key::new("scheduler.page_bytes_max", integer(1_024, 1 << 30)),
    Key::new("scheduler.batch_sends_max", integer(1, 1_000)),
    Key::new("scheduler.batch_group_max", integer(1, 1_000)),
    Key::new("scheduler.group_bytes_max", integer(1_024, 1 << 30)),
    Key::new("scheduler.wait_max", span(SECOND, HOUR)),
    Key::new("scheduler.requests_max", integer(1, 1_000_000)),
    Key::new("scheduler.waiters_max", integer(1, 1_000_000)),
    Key::new("scheduler.accepting_max", integer(1, 1_000_000)),
    Key::new("scheduler.queued_max", integer(1, 1_000_000_000)),
    Key::new("scheduler.leaves_max", integer(0, 1_000_000)),
    Key::new("scheduler.heartbeat", span(SECOND, HOUR)),
    Key::new("scheduler.drain_timeout", span(Duration::ZERO, HOUR)),
    Key::new("worker.concurrency", integer(1, 100_000)),
    Key::new("worker.pool", Kind::Text),
    Key::new("worker.drain_timeout", span(Duration::ZERO, HOUR)),
    Key::new(
        "worker.poll_interval",
        span(Duration::from_millis(10), HOUR),
    ),
    Key::new("worker.hold_max", span(Duration::ZERO, HOUR)),
    Key::new("worker.crashes_max", integer(1, 1_000)),
    Key::new("worker.attempts_max", integer(1, 1_000_000)),
    Key::new("worker.sends_in_a_row_max", integer(1, 1_000_000)),
    Key::new("worker.group_bytes_max", integer(1_024, 1 << 30)),
    Key::new("worker.cache_bytes_max", integer(0, 1 << 40)),
    Key::new("retry.attempts_max", integer(1, 100)),
    Key::new("retry.base", span(MS, HOUR)),
    Key::new("retry.cap", span(MS, HOUR)),
    Key::new("retry.after_max", span(MS, Duration::from_hours(24))),
    Key::new("llm.provider", PROVIDER),
    Key::new("llm.base_url", HTTP),
    Key::new("llm.api_key", Kind::Secret),
    Key::new("llm.api_key_env", Kind::Text),
    Key::new("llm.model", Kind::Text),
    Key::new("llm.stream", Kind::Switch),
    Key::new("llm.native_schema", Kind::Switch),
    Key::new("llm.connect_timeout", TIMEOUT),
    Key::new("llm.first_byte_timeout", TIMEOUT),
    Key::new("llm.idle_timeout", TIMEOUT),
    Key::new("llm.attempt_timeout", TIMEOUT),
    Key::new("tools.workspace", Kind::Text),
    Key::new("tools.workspace_shared", Kind::Switch),
    Key::new("tools.shell", Kind::Choice(&["off", "local", "template"])),
    Key::new("tools.shell_template", Kind::List),
    Key::new("tools.shell_cleanup", Kind::List),
    Key::new("prices", Kind::List),
    Key::new("hooks.before_model", Kind::List),
    Key::new("hooks.before_tool", Kind::List),
    Key::new("hooks.timeout", TIMEOUT),
    Key::new("hooks.limit", TIMEOUT),
    Key::new("tools.shell_environment", Kind::List),
    Key::new("tools.launcher", Kind::List),
    Key::new("tools.allow_private", Kind::List),
    Key::new("tools.signing_secret", Kind::Secret),
    Key::new("tools.signing_hosts", Kind::List),
    Key::new(
        "tools.answer_within",
        span(MS, Duration::from_hours(24 * 365)),
    ),
    Key::new("tools.timeout", TIMEOUT),
];

/// What `[mcp.NAME]` takes.
pub(super) const MCP: &[Key] = &[
    Key::new("mcp.command", Kind::Text),
    Key::new("mcp.args", Kind::List),
    Key::new("mcp.url", HTTP),
    Key::new("mcp.timeout", TIMEOUT),
    Key::new("mcp.start_timeout", TIMEOUT),
];

/// Variables and headers of an MCP server: any name, and values that may be secrets.
const MCP_VALUE: Key = Key::new("mcp.env", Kind::Secret);

const DATABASE: Kind = Kind::Url(&["postgres", "postgresql", "sqlite", "mysql"]);
const PROVIDER: Kind = Kind::Choice(&["openai", "anthropic", "demo"]);
const TIMEOUT: Kind = span(MS, Duration::from_hours(24));

/// Headers of a provider: any name, and values that may be secrets.
const HEADER: Key = Key::new("llm.headers", Kind::Secret);

/// The key at this path of `[mcp.NAME]`.
fn find_mcp(rest: &str) -> Option<Key> {
    let (_, field) = rest.split_once('.')?;
    if let Some((table, name)) = field.split_once('.') {
        return (matches!(table, "env" | "headers") && !name.is_empty()).then_some(MCP_VALUE);
    }
    let wanted = format!("mcp.{field}");
    MCP.iter().copied().find(|key| key.path == wanted)
}

/// The key at this path: one of the table, or a field of `[providers.NAME]`, which takes what the
/// same field of `[llm]` takes.
pub(super) fn find(path: &str) -> Option<Key> {
    if let Some(rest) = path.strip_prefix("mcp.") {
        return find_mcp(rest);
    }
    let wanted = match path.strip_prefix("providers.") {
        Some(rest) => format!("llm.{}", rest.split_once('.')?.1),
        None => path.to_owned(),
    };
    if wanted
        .strip_prefix(HEADER.path)
        .is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
    {
        return Some(HEADER);
    }
    KEYS.iter().copied().find(|key| key.path == wanted)
}

/// The known path that looks most like this one, when one does.
pub(super) fn nearest(path: &str) -> Option<&'static str> {
    let scored = KEYS.iter().map(|key| (distance(path, key.path), key.path));
    let (distance, nearest) = scored.min()?;
    (distance <= 3).then_some(nearest)
}

/// The known variable that looks most like this one, when one does.
pub(super) fn nearest_variable(name: &str) -> Option<String> {
    let scored = KEYS.iter().map(|key| {
        let variable = key.variable();
        (distance(name, &variable), variable)
    });
    let (distance, nearest) = scored.min()?;
    (distance <= 3).then_some(nearest)
}

impl Kind {
    /// Reads a value as a flag or a variable spells it.
    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let value = match self {
            Self::Integer { .. } => text.replace('_', "").parse().map(Value::Integer).ok(),
            Self::Switch => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(Value::Boolean(true)),
                "false" | "0" | "no" | "off" => Some(Value::Boolean(false)),
                _ => None,
            },
            Self::List => {
                let items = text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                let items = items.map(|item| Value::String(item.to_owned()));
                Some(Value::Array(items.collect()))
            }
            _ => Some(Value::String(text.to_owned())),
        };
        self.check(value.ok_or_else(|| self.wants())?)
    }

    /// Checks a value as a file holds it; returns it in its one form.
    pub(super) fn check(&self, value: Value) -> Result<Value, String> {
        let fits = match (self, &value) {
            (Self::Text | Self::Secret, Value::String(text)) => !text.trim().is_empty(),
            (Self::Choice(words), Value::String(text)) => words.contains(&text.as_str()),
            (Self::Url(schemes), Value::String(text)) => {
                text.split_once(':').is_some_and(|(scheme, rest)| {
                    schemes.contains(&scheme) && !rest.trim_start_matches('/').is_empty()
                })
            }
            (Self::Address, Value::String(text)) => text
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()),
            (Self::List, Value::Array(items)) => items.iter().all(Value::is_str),
            (Self::Switch, Value::Boolean(_)) => true,
            (Self::Integer { min, max }, Value::Integer(number)) => (min..=max).contains(&number),
            (Self::Span { min, max }, Value::String(text)) => text
                .parse::<Span>()
                .is_ok_and(|span| (*min..=*max).contains(&span.0)),
            _ => false,
        };
        if fits { Ok(value) } else { Err(self.wants()) }
    }

    /// Says what it takes. Never repeats what was given: it may be a secret in the wrong place.
    pub(super) fn wants(&self) -> String {
        match self {
            Self::Text | Self::Secret => "takes a text that is not empty".to_owned(),
            Self::Choice(words) => format!("takes one of: {}", words.join(", ")),
            Self::Url(schemes) => format!(
                "takes a URL that begins with {}://",
                schemes.join(":// or ")
            ),
            Self::Address => "takes HOST:PORT, like 127.0.0.1:7464".to_owned(),
            Self::List => "takes a list of texts, like [\"a\", \"b\"]".to_owned(),
            Self::Switch => "takes true or false".to_owned(),
            Self::Integer { min, max } => format!("takes a whole number from {min} to {max}"),
            Self::Span { min, max } => format!(
                "takes a duration from {} to {}, like 250ms or 30s",
                Span(*min),
                Span(*max)
            ),
        }
    }
}
