//! A fan-out with a budget of tokens, whose process is killed in the middle: the model bills no more than the budget.

use std::time::Duration;

use serde_json::{Value, json};

use super::asking::{ask, id};
use super::model::{Prompt, Reply};
use super::stage::Stage;
use crate::client::Request;
use crate::failure::Failure;

/// Items of the fan-out.
const ITEMS: usize = 40;

/// Leaves at the same time.
const AT_ONCE: usize = 6;

/// Tokens that the model bills for each leaf: what it read, and what it wrote.
const BILLED: (u64, u64) = (30, 270);

/// Tokens of an answer at most.
const ANSWER_MAX: u64 = 300;

/// The budget: half of what all items would take.
const BUDGET: u64 = 6_000;

fn script(_: &Prompt) -> Reply {
    Reply {
        delay: Duration::from_millis(200),
        usage: Some(BILLED),
        ..Reply::text("An estimate.")
    }
}

/// The workflow: one leaf for each item, some at the same time.
fn spec() -> Value {
    let leaf = json!({
        "type": "agent", "id": "estimate", "input": "Estimate {{item}}.",
        "spec": { "name": "estimator", "system_prompt": "Estimate.", "max_tokens": ANSWER_MAX },
    });
    json!({ "name": "estimates", "root": {
        "type": "foreach", "id": "all", "as": "item", "items_from": "input", "on_error": "continue",
        "max_concurrency": AT_ONCE, "body": leaf,
    } })
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let model = stage.model(script).await?;
    let mut server = stage.serve().await?;
    let items: Vec<String> = (0..ITEMS).map(|item| format!("item {item}")).collect();
    let mut body = json!({ "spec": spec(), "input": items });
    let each = BILLED.0 + BILLED.1;
    if stage.plants() {
        stage.say(&format!(
            "{ITEMS} leaves of {each} tokens, without a budget"
        ))?;
    } else {
        body["options"] = json!({ "max_tokens": BUDGET });
        stage.say(&format!(
            "{ITEMS} leaves of {each} tokens, with a budget of {BUDGET}"
        ))?;
    }
    let request = Request::post("/v1/runs").body(body);
    let key = server.client.fresh_key();
    let run = id(&ask(&server.client, &request.key(key)).await?);
    let is_amid = || model.count() >= AT_ONCE && model.is_answering();
    stage.until("leaves are under way", is_amid).await?;
    let in_flight = model.asked().iter().filter(|asked| !asked.is_over).count();
    server.kill().await;
    stage.again(&mut server).await?;
    stage.say(&format!(
        "killed the process with {in_flight} model calls in flight, and started it again"
    ))?;
    let path = format!("/v1/runs/{run}");
    let mut ended = Value::Null;
    for _ in 0..12 {
        let request = Request::get(path.clone()).wait(Duration::from_secs(5));
        ended = ask(&server.client, &request).await?;
        if ended["finished_at"].is_string() {
            break;
        }
    }
    let status = ended["status"].as_str().unwrap_or("?").to_owned();
    stage.say(&format!("the run is {status}"))?;
    stage.audit(vec![server]).await?;

    let billed: u64 = model.asked().iter().map(|asked| asked.billed).sum();
    let usage = &ended["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    let charged = count("input_tokens") + count("output_tokens");
    stage.beside(
        format!("the run is {status}, with {charged} tokens charged"),
        format!("{} calls, {billed} tokens billed", model.count()),
    );
    stage.beside(format!("budget: {BUDGET} tokens"), String::new());
    stage.figure("budget", BUDGET);
    stage.figure("billed_by_the_model", billed);
    stage.figure("charged_to_the_run", charged);
    stage.figure("calls", model.count());
    stage.figure("in_flight_when_killed", in_flight);
    stage.expect(billed <= BUDGET, || {
        format!("the model billed {billed} tokens, and the budget is {BUDGET}")
    });
    stage.expect(ended["finished_at"].is_string(), || {
        "the run did not end".to_owned()
    });
    // A budget that lets nothing happen is kept easily.
    stage.expect(billed * 2 > BUDGET, || {
        format!("only {billed} tokens were used of {BUDGET}")
    });
    Ok(())
}
