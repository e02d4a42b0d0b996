//! Fifty messages to one session at random moments, under every policy, over both protocols: each
//! has one fate, and the provider accepts every request that the model gets.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mainspring_benches::process::Program;
use mainspring_tests::fake_model::{FakeModel, Options};
use mainspring_tests::faults::{
    RetryingClient, any_of, beside, between, binary, blocking, monotonic, pause,
};
use mainspring_tests::pairing;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const POLICIES: [&str; 5] = ["enqueue", "coalesce", "steer", "interrupt", "reject"];

const MESSAGES: usize = 50;

/// A message that takes a while, with or without tool calls.
fn words(mark: &str) -> String {
    let does = [
        "",
        "[[tool current_time {}]] [[tool current_time {}]]",
        "[[tool current_time {}]] [[tool nobody {}]] [[rounds 2]]",
        "[[stream 5x20ms]]",
        "[[delay 60ms]] [[tool current_time {}]]",
    ];
    format!("{} <{mark}>", does[any_of(does.len())])
}

/// Sends fifty messages, each with the policy, or with a random one if none is given. Returns the
/// session, and whether each message was accepted, by its mark.
async fn talk(
    url: String,
    policy: Option<&'static str>,
) -> Result<(String, BTreeMap<String, bool>)> {
    let mut caller = RetryingClient::new(vec![url], 0);
    let name = policy.unwrap_or("any");
    let agent = json!({ "agent": { "tools": ["current_time"] } });
    let made = caller.post("/v1/sessions", &agent, name).await?.json()?;
    let session = made["id"].as_str().context("an id")?.to_owned();
    let path = format!("/v1/sessions/{session}/sends");
    let mut accepted = BTreeMap::new();
    let mut sends = Vec::new();
    for n in 0..MESSAGES {
        let mark = format!("{name}-{n}");
        let on_busy = policy.unwrap_or_else(|| POLICIES[any_of(POLICIES.len())]);
        let body = json!({ "input": words(&mark), "options": { "on_busy": on_busy } });
        let answer = caller.post(&path, &body, &mark).await?;
        match answer.status {
            200 | 202 => sends.push(answer.json()?),
            409 if on_busy == "reject" => {
                let refused = answer.json()?;
                ensure!(refused["code"] == "session.busy", "{refused}");
            }
            status => bail!("{mark}: {status} {:?}", answer.body),
        }
        accepted.insert(mark, answer.status != 409);
        pause(between(Duration::ZERO, Duration::from_millis(80))).await;
    }
    settled(&mut caller, &sends).await?;
    // A message too late for the last send is delivered with the next.
    let mark = format!("{name}-end");
    let end = json!({ "input": format!("<{mark}>") });
    let last = caller.post(&path, &end, &mark).await?.json()?;
    accepted.insert(mark, true);
    settled(&mut caller, &[last]).await?;
    Ok((session, accepted))
}

async fn settled(caller: &mut RetryingClient, sends: &[Value]) -> Result<()> {
    let end = monotonic() + Duration::from_mins(1);
    for send in sends {
        let path = format!(
            "/v1/sends/{}?wait=10s",
            send["id"].as_str().context("an id")?
        );
        loop {
            let send = caller.get(&path).await?;
            if send["finished_at"].is_string() {
                ensure!(send["status"] == "completed", "{send}");
                break;
            }
            ensure!(monotonic() < end, "it hangs: {send}");
        }
    }
    Ok(())
}

/// Asserts that each accepted message is in the transcript once, no refused one is, and every inbox
/// item says where it went.
async fn fates(
    caller: &mut RetryingClient,
    session: &str,
    accepted: &BTreeMap<String, bool>,
) -> Result<()> {
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    let said: String = messages
        .iter()
        .filter(|message| message["role"] == "user")
        .map(|message| message["content"].to_string())
        .collect();
    for (mark, accepted) in accepted {
        let times = said.matches(&format!("<{mark}>")).count();
        ensure!(
            times == usize::from(*accepted),
            "{mark} is there {times} times"
        );
    }
    let items = caller.all(&format!("/v1/sessions/{session}/inbox")).await?;
    for item in &items {
        ensure!(item["fate"] == "delivered", "{item}");
        // An item that joined a send before it started is part of its first message.
        let joined = item["seq"].is_null() && item["mode"] == "coalesce";
        let place = messages.iter().find(|message| {
            if joined {
                message["send_id"] == item["send_id"] && message["role"] == "user"
            } else {
                message["seq"] == item["seq"]
            }
        });
        let place = place.with_context(|| format!("it has no place: {item}"))?;
        let text = item["content"][0]["text"].to_string();
        ensure!(
            place["content"].to_string().contains(&text),
            "{item} is not {place}"
        );
    }
    Ok(())
}

async fn fifty(protocol: &str, judge: fn(&Value) -> Result<(), String>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let model = FakeModel::start(Options {
        keep_bodies: true,
        ..Options::default()
    })?;
    let data = dir.path().join("data");
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: [
            ("MAINSPRING_LLM_PROVIDER", protocol),
            ("MAINSPRING_LLM_BASE_URL", &model.base_url()),
            ("MAINSPRING_LLM_API_KEY", "a-key-of-the-tests"),
            ("MAINSPRING_LLM_MODEL", "fake"),
            ("MAINSPRING_DATA_DIR", data.to_str().context("UTF-8")?),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
    };
    let dev = blocking(|| program.dev("dev", &data))?;
    blocking(|| dev.wait_until_ready())?;
    let mut talks = JoinSet::new();
    for policy in POLICIES.map(Some).into_iter().chain([None]) {
        talks.spawn(talk(dev.url(), policy));
    }
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    while let Some(talked) = talks.join_next().await {
        let (session, accepted) = talked??;
        fates(&mut caller, &session, &accepted).await?;
    }
    let calls = model.ledger().entries();
    ensure!(calls.len() > 2 * MESSAGES, "{} calls", calls.len());
    for call in &calls {
        let body: Value = serde_json::from_str(call.body.as_deref().context("a body")?)?;
        judge(&body).map_err(|why| anyhow::anyhow!("call {}: {why}\n{body:#}", call.n))?;
    }
    drop(dev);
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "{out}{err}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_messages_have_one_fate_each_in_chat_completions() -> Result<()> {
    let _turn = beside()?;
    fifty("openai", pairing::openai).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_messages_have_one_fate_each_in_messages() -> Result<()> {
    let _turn = beside()?;
    fifty("anthropic", pairing::anthropic).await
}
