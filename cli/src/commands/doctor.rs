//! `mainspring doctor`: reports what is wrong, one line per check.

mod providers;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Backend, Config, Migrate, Purpose};
use mainspring_providers::rules::Said;
use mainspring_queue_redis::{Fault, examine};
use mainspring_runtime::Secret;
use mainspring_shared::agent::{DEFAULT_POOL, Priority};
use mainspring_shared::error::Coded;
use mainspring_shared::model::FactsOverride;
use mainspring_shared::queue::Lane;
use mainspring_shared::store::{BootRecord, Role, SchemaObject, ServerInfo, Store};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_shared::tool::McpTools;
use serde_json::{Value, json};

use self::providers::providers;
use self::rules::pasteable_rules;
use crate::args::{DoctorArgs, Format};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure, causes, next_of};
use crate::{output, wiring};

/// Clock skew above which timestamps mislead people who compare them. Nothing else depends on it:
/// leases and due times use the database's clock.
const SKEW: Duration = Duration::from_secs(2);

/// How long a new connection to Redis may take to come up.
const REDIS: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// The result of one check.
struct Finding {
    status: Status,
    check: String,
    detail: String,
    /// What to do if something is wrong.
    next: Option<String>,
    /// What was found out about a model, under the name that the configuration uses.
    facts: Option<(String, FactsOverride)>,
    /// In what an endpoint differs from what is known of it, under the name of its table in the configuration.
    rules: Option<(String, Said)>,
}

/// The severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok,
    /// It works, but perhaps not as intended.
    Warning,
    Problem,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    fn good(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            status: Status::Ok,
            check: check.into(),
            detail: detail.into(),
            next: None,
            facts: None,
            rules: None,
        }
    }

    fn bad(check: impl Into<String>, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            status: Status::Problem,
            next: Some(next.into()),
            ..Self::good(check, detail)
        }
    }

    /// The same as a mere warning.
    fn only_a_warning(self) -> Self {
        Self {
            status: Status::Warning,
            ..self
        }
    }
}

pub(crate) async fn run(args: &DoctorArgs, format: Format, config: &Config) -> Result<(), Failure> {
    let clock = wiring::clock();
    let mut findings = configuration(config);
    let server = server(config).await;
    // With a server and nothing else, this machine has clients only.
    let has_clients_only =
        server.is_some() && config.database_url.is_none() && !config.data_dir.exists();
    findings.extend(server);
    if has_clients_only {
        let detail = "nothing else is checked: no database is configured here";
        findings.push(Finding::good("here", detail));
        return report(format, &findings);
    }
    findings.extend(database(config, clock.as_ref()).await);
    findings.extend(other_databases(config, clock.as_ref()).await);
    findings.extend(blobs(config).await);
    findings.extend(redis(config, &clock).await);
    findings.extend(providers(config, &clock, args).await);
    findings.extend(mcp_servers(config, &clock).await);
    report(format, &findings)
}

/// Prints the findings; fails if one of them is a problem.
fn report(format: Format, findings: &[Finding]) -> Result<(), Failure> {
    let rows: Vec<Value> = findings
        .iter()
        .map(|it| {
            let Finding {
                check,
                detail,
                next,
                status,
                facts,
                rules,
            } = it;
            let mut row = json!({
                "status": status.as_str(), "check": check, "detail": detail, "next": next,
            });
            if let Some((model, facts)) = facts {
                row["model"] = json!(model);
                row["facts"] = json!(facts);
            }
            if let Some((_, said)) = rules {
                row["rules"] = json!(said);
            }
            row
        })
        .collect();
    match format {
        Format::Table => findings.iter().try_for_each(|it| {
            let next = it
                .next
                .as_ref()
                .map_or(String::new(), |next| format!("; {next}"));
            output::line(&format!(
                "{:<8} {:<14} {}{next}",
                it.status.as_str(),
                it.check,
                it.detail
            ))?;
            it.facts.as_ref().map_or(Ok(()), pasteable)?;
            it.rules
                .as_ref()
                .map_or(Ok(()), |(table, said)| pasteable_rules(table, said))
        })?,
        Format::Json | Format::Jsonl => output::list(format, &[], &rows)?,
    }
    if findings.iter().any(|it| it.status == Status::Problem) {
        return Err(Failure::silent(Exit::Failure));
    }
    Ok(())
}

/// The server that client commands use, if one is named, and whether it takes the key.
async fn server(config: &Config) -> Option<Finding> {
    if config.server == Config::default().server && config.api_key.is_none() {
        return None;
    }
    let shown = Secret::new(config.server.clone()).redacted_url();
    let asked = async {
        let client = Client::new(config)?;
        let info = client.ask(Request::get("/v1/info")).await?;
        // What a key may do, only requests tell.
        let sessions = Request::get("/v1/sessions").query("limit", Some(1));
        client.ask(sessions).await?;
        let version = info["version"]
            .as_str()
            .unwrap_or("of an unknown version")
            .to_owned();
        Ok::<_, Failure>(version)
    };
    Some(match asked.await {
        Ok(version) => {
            let key = match &config.api_key {
                Some(_) => "with this key",
                None => "without a key",
            };
            let detail = format!("{shown}: Mainspring {version} answers {key}");
            Finding::good("server", detail)
        }
        Err(failure) => {
            let next = failure.next.unwrap_or_default();
            Finding::bad("server", failure.message, next)
        }
    })
}

fn configuration(config: &Config) -> Vec<Finding> {
    // Without a database server, this machine runs `dev`.
    let purpose = match config.backend() {
        Backend::Sqlite => Purpose::Dev,
        Backend::Postgres | Backend::Mysql => Purpose::Scheduler,
    };
    let problems = config.validate(purpose);
    if problems.is_empty() {
        return vec![Finding::good("configuration", "all values are valid")];
    }
    let findings = problems.into_iter().map(|problem| {
        let detail = format!("{} {}", problem.origin, problem.detail);
        Finding::bad(
            "configuration",
            detail,
            "`--print-config` shows the effective settings",
        )
    });
    findings.collect()
}

async fn database(config: &Config, clock: &dyn Clock) -> Vec<Finding> {
    let bad = |failure: Failure| {
        let next = failure.next.unwrap_or_default();
        vec![Finding::bad("database", failure.message, next)]
    };
    let store = match wiring::store_to_read(config).await {
        Ok(store) => store,
        Err(failure) => return bad(failure),
    };
    let before = clock.now();
    match store.check().await {
        Err(error) => bad(wiring::store_failure(config, &error)),
        Ok(info) => {
            let database = format!("{}: {}", wiring::database(config), info.server);
            let short = info.connections_short.map(too_few_connections);
            let info = match info.writable() {
                Ok(info) => info,
                Err(error) => return bad(wiring::store_failure(config, &error)),
            };
            let mut findings = vec![
                Finding::good("database", database),
                schema(store.as_ref(), info.schema).await,
                skew(before, info.now, clock.now()),
            ];
            // An embedded database is used by one process, which has its own worker.
            if config.backend() != Backend::Sqlite {
                findings.push(workers(store.as_ref(), info.now).await);
            }
            findings.extend(short);
            findings
        }
    }
}

/// The server allows fewer connections than a process like this may open.
fn too_few_connections((allowed, needed): (u32, u32)) -> Finding {
    let detail = format!("{allowed} connections are allowed, and each process may open {needed}");
    let next = "raise max_connections and the limits of the user and the database, or lower \
                database_writers, database_claimers, database_streamers and database_readers";
    Finding::bad("database", detail, next).only_a_warning()
}

/// The databases besides the home database, each checked on its own.
async fn other_databases(config: &Config, clock: &dyn Clock) -> Vec<Finding> {
    if config.databases.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (name, store) in wiring::other_databases(config, Migrate::Verify).await {
        let before = clock.now();
        let info = match &store {
            Ok(store) => store
                .check()
                .await
                .and_then(ServerInfo::writable)
                .map_err(|error| wiring::store_failure(config, &error)),
            Err(failure) => Err(Failure::new(failure.exit, failure.message.clone())),
        };
        match info {
            Ok(info) => {
                let detail = format!("{name}: {}, schema {}", info.server, info.schema);
                findings.push(Finding::good("database", detail));
                findings.push(skew(before, info.now, clock.now()));
            }
            Err(failure) => {
                let next = "its tenants wait; the others do not";
                findings.push(Finding::bad("database", failure.message, next));
            }
        }
    }
    findings
}

/// The schema's version, and whether the schema is complete.
async fn schema(store: &dyn Store, version: i64) -> Finding {
    match store.schema_faults().await {
        Ok(faults) => match faults.first() {
            None => Finding::good("schema", format!("version {version}")),
            Some(first) => {
                let SchemaObject { kind, name, .. } = &first.needed;
                let detail = format!(
                    "version {version}, but {} objects differ, first the {kind} {name}",
                    faults.len()
                );
                Finding::bad(
                    "schema",
                    detail,
                    "`mainspring migrate --verify` prints what is missing",
                )
            }
        },
        Err(error) => Finding::bad(
            "schema",
            causes(&error),
            "the user has to see the catalog of the database",
        ),
    }
}

/// Writes, reads and removes a blob in the blob store, if that is not the database.
async fn blobs(config: &Config) -> Option<Finding> {
    let store = match wiring::blob_store(config) {
        Ok(store) => store?,
        Err(failure) => return Some(Finding::bad("blobs", failure.message, "see [blobs]")),
    };
    Some(match store.check().await {
        Ok(()) => Finding::good("blobs", store.describe()),
        Err(error) => {
            let detail = format!("{}: {}", store.describe(), causes(&error));
            Finding::bad(
                "blobs",
                detail,
                "see [blobs]: the place, and the right to write there",
            )
        }
    })
}

/// The live workers, by pool.
async fn workers(store: &dyn Store, now: Timestamp) -> Finding {
    let boots = match store.list_boots().await {
        Ok(boots) => boots,
        Err(error) => return Finding::bad("workers", causes(&error), next_of(error.code())),
    };
    let mut pools: BTreeMap<String, usize> = BTreeMap::new();
    let mut protocols: BTreeMap<u32, usize> = BTreeMap::new();
    let alive = |boot: &BootRecord| boot.dead_at.is_none() && boot.lease_until > now;
    for boot in boots.into_iter().filter(alive) {
        *protocols.entry(boot.protocol).or_default() += 1;
        if boot.role == Role::Worker {
            *pools.entry(boot.pool).or_default() += 1;
        }
    }
    if pools.is_empty() {
        let next = "`mainspring worker` starts one; sends wait until then";
        return Finding::bad("workers", "none is alive", next).only_a_warning();
    }
    if let Some(mixed) = mixed(&protocols) {
        return mixed;
    }
    let pools = pools
        .iter()
        .map(|(pool, count)| format!("{count} in pool {pool}"));
    Finding::good("workers", pools.collect::<Vec<_>>().join(", "))
}

/// Reports two releases running side by side, as in the middle of an upgrade.
fn mixed(protocols: &BTreeMap<u32, usize>) -> Option<Finding> {
    if protocols.len() < 2 {
        return None;
    }
    let counts = protocols
        .iter()
        .map(|(protocol, count)| format!("{count} speak protocol {protocol}"));
    let detail = format!("of the processes {}", counts.collect::<Vec<_>>().join(", "));
    let next =
        "an upgrade is under way, or was not finished: `mainspring workers` names the old ones";
    Some(Finding::bad("workers", detail, next).only_a_warning())
}

/// Starts each MCP server as a worker here would, and lists its tools.
async fn mcp_servers(config: &Config, clock: &Arc<dyn Clock>) -> Vec<Finding> {
    if config.mcp.is_empty() {
        return Vec::new();
    }
    let pool = match wiring::mcp_servers(config, clock) {
        Ok(pool) => pool,
        Err(failure) => {
            let next = failure.next.unwrap_or_default();
            return vec![Finding::bad("mcp", failure.message, next)];
        }
    };
    let all = config.mcp.keys().map(async |name| {
        let wanted = McpTools {
            resources: false,
            prompts: false,
            server: name.clone(),
            tools: None,
            prefix: String::new(),
            approval: false,
            pool: None,
            extra: mainspring_shared::stored::Extra::default(),
        };
        match pool.tools(&wanted).await {
            Ok(tools) => Finding::good("mcp", format!("{name}: {} tools", tools.len())),
            Err(error) => {
                let next = format!("see [mcp.{name}]: its command or url, as this user and host");
                Finding::bad("mcp", causes(&error), next)
            }
        }
    });
    futures::future::join_all(all).await
}

/// Compares the database's clock with two readings of ours, before and after.
fn skew(before: Timestamp, theirs: Timestamp, after: Timestamp) -> Finding {
    let apart = before.since(theirs).max(theirs.since(after));
    let detail = format!("{} ms apart from the database's", apart.as_millis());
    if apart <= SKEW {
        return Finding::good("clock", detail);
    }
    Finding::bad(
        "clock",
        detail,
        "set the time on one of the two (NTP); only shown times suffer",
    )
}

/// Whether Redis does what it is needed for, and will: what a probe of its connection cannot tell.
async fn redis(config: &Config, clock: &Arc<dyn Clock>) -> Vec<Finding> {
    let Some(url) = &config.redis_url else {
        return Vec::new();
    };
    let (shown, next) = (url.redacted_url(), "set MAINSPRING_REDIS_URL");
    let bad = |failure: Failure| vec![Finding::bad("redis", failure.message, next)];
    let address = match wiring::redis_address(config) {
        Ok(address) => address,
        Err(failure) => return bad(failure),
    };
    let lane = Lane {
        pool: DEFAULT_POOL.to_owned(),
        priority: Priority::High,
    };
    let faults = match examine(&address, &lane).await {
        Ok(faults) => faults,
        Err(error) => return vec![Finding::bad("redis", error.to_string(), next)],
    };
    let finding = |Fault {
                       is_grave,
                       cause,
                       cure,
                   }| {
        let cause = if is_grave {
            format!("{cause}; workers poll the database meanwhile")
        } else {
            cause
        };
        let finding = Finding::bad("redis", cause, cure);
        if is_grave {
            finding
        } else {
            finding.only_a_warning()
        }
    };
    let mut findings: Vec<_> = faults.into_iter().map(finding).collect();
    if findings.iter().any(|it| it.status == Status::Problem) {
        return findings;
    }
    match waiting(config, clock, &lane).await {
        Ok(Some(depth)) => {
            let detail = format!("{shown}: {depth} jobs wait in pool {DEFAULT_POOL}");
            findings.insert(0, Finding::good("redis", detail));
        }
        Ok(None) => {
            let detail = format!("{shown} does not answer");
            let next = "is it running, and is the address right?";
            findings.push(Finding::bad("redis", detail, next));
        }
        Err(failure) => return bad(failure),
    }
    findings
}

/// How many jobs wait in a lane. `None` if Redis does not tell in time.
async fn waiting(
    config: &Config,
    clock: &Arc<dyn Clock>,
    lane: &Lane,
) -> Result<Option<u64>, Failure> {
    let wires = wiring::redis(config, clock, &wiring::entropy())?;
    let start = clock.monotonic();
    loop {
        let depth = wires.queue.depth(lane).await;
        if depth.is_some() || clock.monotonic().saturating_sub(start) > REDIS {
            return Ok(depth);
        }
        clock.sleep(LOOK).await;
    }
}

/// Prints facts in the form in which the configuration takes them.
fn pasteable((model, facts): &(String, FactsOverride)) -> Result<(), Failure> {
    if *facts == FactsOverride::default() {
        return Ok(());
    }
    output::line(&format!("\n[models.{}]", Value::from(model.as_str())))?;
    // Each value is a number, a string, a boolean or a list of strings, which look the same in TOML
    // and JSON.
    let members = serde_json::to_value(facts).unwrap_or_default();
    for (name, value) in members.as_object().into_iter().flatten() {
        output::line(&format!("{name} = {value}"))?;
    }
    output::line("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_two_releases_are_told() {
        assert!(mixed(&BTreeMap::from([(1, 3)])).is_none());
        let found = mixed(&BTreeMap::from([(0, 1), (1, 3)])).expect("there are two");
        let told = "of the processes 1 speak protocol 0, 3 speak protocol 1";
        assert_eq!(
            (found.detail.as_str(), found.status),
            (told, Status::Warning)
        );
    }

    #[test]
    fn clocks_are_compared_but_for_the_time_that_the_question_took() {
        let at = Timestamp;
        assert!(skew(at(1_000), at(4_000), at(5_000)).next.is_none());
        assert!(skew(at(10_000), at(9_000), at(10_001)).next.is_none());
        assert!(skew(at(10_000), at(7_000), at(10_001)).next.is_some());
        assert!(skew(at(10_000), at(12_500), at(10_001)).next.is_some());
    }
}
