//! `mainspring diff`: re-renders recorded rounds, and shows where requests start to differ.

use std::path::Path;
use std::sync::Arc;

use mainspring_runtime::Lifecycle;
use mainspring_shared::agent::AgentQuery;
use mainspring_shared::id::{SessionId, TenantId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store::{ListSends, Store};
use mainspring_shared::wording::plain;
use mainspring_tools::builtin;
use mainspring_worker::replay::{Other, Replayed, Replayer};
use serde_json::{Value, json};

use super::agents::read_one;
use crate::args::{DiffArgs, Format};
use crate::config::Config;
use crate::failure::{Exit, Failure, causes, usage_text};
use crate::{output, wiring};

/// The first agent, if one was named, and the second.
type Agents = (Option<Other>, Other);

/// Bytes shown before and after the first differing byte.
const AROUND: usize = 48;

pub(crate) async fn run(args: &DiffArgs, format: Format, config: &Config) -> Result<(), Failure> {
    let tenant = match &config.tenant {
        Some(id) => id
            .parse()
            .map_err(|error| usage_text(format!("--tenant {id}: {error}"), "name a tenant's id"))?,
        None => TenantId::DEFAULT,
    };
    let clock = wiring::clock();
    let entropy = wiring::entropy();
    let store = wiring::store_to_read(config).await?;
    let wires = wiring::local(&clock);
    let agents = match &args.agent {
        Some(text) => Some(agents(text, tenant, store.as_ref()).await?),
        None => None,
    };
    let background = builtin::Background {
        store: store.clone(),
        queue: wires.queue,
        bus: wires.bus,
        lifecycle: Lifecycle::new(),
    };
    let memories = Arc::new(wiring::memories(config, &store, &clock, &entropy)?);
    let tools = wiring::tools(config, &clock, &entropy, &background, &memories)?;
    let replayer = Replayer {
        store: store.clone(),
        providers: Arc::new(wiring::providers(config, &clock)?),
        tools: Arc::new(tools),
        clock,
    };
    let sends = sends(args, tenant, store.as_ref(), config).await?;
    let mut found = Found::default();
    for send in &sends {
        compare(&replayer, send, agents.as_ref(), &mut found).await;
    }
    found.print(format)
}

/// Parses `A..B`, or `B` alone, which is compared with the sessions' own agents.
async fn agents(text: &str, tenant: TenantId, store: &dyn Store) -> Result<Agents, Failure> {
    match text.split_once("..").filter(|(left, _)| !left.is_empty()) {
        // A path may start with two dots.
        Some((left, right)) if !right.starts_with('/') || Path::new(left).exists() => {
            let left = agent(left, tenant, store).await?;
            Ok((Some(left), agent(right, tenant, store).await?))
        }
        Some(_) | None => Ok((None, agent(text, tenant, store).await?)),
    }
}

/// The agent in a file, or a published one.
async fn agent(text: &str, tenant: TenantId, store: &dyn Store) -> Result<Other, Failure> {
    let hint = "name a file that holds an agent, or a published one: NAME, NAME@3 or NAME@ALIAS";
    if Path::new(text).exists() {
        let members = Value::Object(read_one(Path::new(text))?);
        let spec = serde_json::from_value(members);
        let spec = spec
            .map_err(|error| usage_text(format!("{text}: {}", plain(&error.to_string())), hint))?;
        return Ok(Other::Spec(Box::new(spec)));
    }
    let query: AgentQuery = text.parse().map_err(|_| {
        usage_text(
            format!("{text} is neither a file nor an agent's name"),
            hint,
        )
    })?;
    let found = store.find_agents(tenant, vec![query]).await;
    let found = found.map_err(|error| {
        Failure::new(
            Exit::Failure,
            format!("{text} could not be looked up: {error}"),
        )
    })?;
    let version = found.into_iter().next().flatten().ok_or_else(|| {
        let message = format!("no file or published agent {text}");
        Failure::new(Exit::NotFound, message).next("`mainspring agents list` shows the agents")
    })?;
    Ok(Other::Version(Box::new(version)))
}

async fn sends(
    args: &DiffArgs,
    tenant: TenantId,
    store: &dyn Store,
    config: &Config,
) -> Result<Vec<SendRecord>, Failure> {
    let session: Option<SessionId> = args
        .session
        .as_deref()
        .map(|id| {
            id.parse()
                .map_err(|error| usage_text(format!("{id}: {error}"), "name a session"))
        })
        .transpose()?;
    let query = ListSends {
        tenant,
        session,
        status: None,
        before: None,
        limit: args.sample,
    };
    let page = store.list_sends(query).await;
    let page = page.map_err(|error| wiring::store_failure(config, &error))?;
    if let Some(session) = session
        && page.data.is_empty()
    {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{session} has no sends in {}", wiring::database(config)),
        )
        .next("`mainspring sessions list` shows the sessions"));
    }
    let begun = page.data.into_iter().filter(|send| send.rounds > 0);
    Ok(begun.collect())
}

/// The result of the comparison.
#[derive(Default)]
struct Found {
    rows: Vec<Value>,
    same: usize,
    differ: usize,
    /// Rounds without a recorded digest that are not compared with another agent.
    unknown: usize,
    skipped: usize,
}

async fn compare(
    replayer: &Replayer,
    send: &SendRecord,
    agents: Option<&Agents>,
    found: &mut Found,
) {
    let left = match agents {
        None => replayer.again(send).await,
        Some((left, _)) => replayer.rounds(send, left.as_ref()).await,
    };
    let left = match left {
        Ok(left) => left,
        Err(error) => return found.skip(send, &causes(&error)),
    };
    let Some((_, agent)) = agents else {
        return left.iter().for_each(|round| found.recorded(send, round));
    };
    match replayer.rounds(send, Some(agent)).await {
        Ok(right) => {
            for (left, right) in left.iter().zip(&right) {
                found.pair(send, left, right);
            }
        }
        Err(error) => found.skip(send, &causes(&error)),
    }
}

impl Found {
    fn skip(&mut self, send: &SendRecord, why: &str) {
        self.skipped += 1;
        self.rows
            .push(json!({ "send": send.id, "result": "skipped", "detail": why }));
    }

    /// Compares a round with its recorded digest.
    fn recorded(&mut self, send: &SendRecord, round: &Replayed) {
        let now = round.request.digest();
        let result = match round.recorded {
            Some(then) if then == now => {
                self.same += 1;
                return;
            }
            Some(_) => "differs",
            None => "unknown",
        };
        match round.recorded {
            Some(_) => self.differ += 1,
            None => self.unknown += 1,
        }
        self.rows.push(json!({
            "send": send.id, "round": round.round, "result": result,
            "recorded": round.recorded, "now": now,
        }));
    }

    /// Compares a round's requests for two agents.
    fn pair(&mut self, send: &SendRecord, left: &Replayed, right: &Replayed) {
        let (a, b) = (left.request.canonical(), right.request.canonical());
        let Some(at) = first_difference(&a, &b) else {
            self.same += 1;
            return;
        };
        self.differ += 1;
        self.rows.push(json!({
            "send": send.id, "round": left.round, "result": "differs", "byte": at,
            "of": [a.len(), b.len()], "left": around(&a, at), "right": around(&b, at),
        }));
    }

    fn print(&self, format: Format) -> Result<(), Failure> {
        match format {
            Format::Json | Format::Jsonl => output::list(format, &[], &self.rows)?,
            Format::Table => self.rows.iter().try_for_each(print_row)?,
        }
        output::note(&format!(
            "{} rounds are the same, {} differ, {} recorded nothing, {} sends were skipped",
            self.same, self.differ, self.unknown, self.skipped
        ));
        if self.differ > 0 {
            return Err(Failure::silent(Exit::Failure));
        }
        Ok(())
    }
}

fn print_row(row: &Value) -> Result<(), Failure> {
    let text = |name: &str| match &row[name] {
        Value::String(text) => output::harmless(text),
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    };
    match row["result"].as_str() {
        Some("skipped") => output::line(&format!("{}: skipped: {}", text("send"), text("detail"))),
        _ if row["byte"].is_u64() => {
            output::line(&format!(
                "{} round {}: byte {} of {}",
                text("send"),
                text("round"),
                text("byte"),
                text("of")
            ))?;
            output::line(&format!("  - {}", text("left")))?;
            output::line(&format!("  + {}", text("right")))
        }
        _ => output::line(&format!(
            "{} round {}: recorded {}, now {}",
            text("send"),
            text("round"),
            text("recorded"),
            text("now")
        )),
    }
}

/// The position of the first differing byte, moved back to the start of its character.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return None;
    }
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b);
    let mut at = same.count();
    while !(a.is_char_boundary(at) && b.is_char_boundary(at)) {
        at -= 1;
    }
    Some(at)
}

/// The text around a position.
fn around(text: &str, at: usize) -> String {
    let begin = text.floor_char_boundary(at.saturating_sub(AROUND));
    let end = text.floor_char_boundary(at.saturating_add(AROUND).min(text.len()));
    text[begin..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found_between_characters() {
        assert_eq!(first_difference("same", "same"), None);
        assert_eq!(first_difference("same", "some"), Some(1));
        assert_eq!(first_difference("longer", "long"), Some(4));
        assert_eq!(first_difference("aä", "aö"), Some(1));
        assert_eq!(around("aäb", 1), "aäb");
    }
}
