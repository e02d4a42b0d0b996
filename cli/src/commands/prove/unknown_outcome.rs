//! A process dies with two calls under way: the one that must not be repeated is not, and the model is told so.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::asking::{accept, id, settled};
use super::model::{Prompt, Reply};
use super::stage::{Stage, times};
use crate::failure::Failure;

/// How long each call takes: long enough to die in the middle of it.
const TAKES: Duration = Duration::from_secs(2);

/// What the model is told of a call that may have been made.
fn unknown() -> String {
    let result = mainspring_shared::tool::unknown_outcome();
    mainspring_shared::message::texts(&result.content).collect()
}

fn script(prompt: &Prompt) -> Reply {
    if prompt.results.is_empty() {
        let what = json!({ "what": "order 7" });
        return Reply {
            calls: vec![("charge", what.clone()), ("record", what)],
            ..Reply::default()
        };
    }
    let unknown = unknown();
    let is_unknown = prompt.results.iter().any(|text| text.contains(&unknown));
    Reply::text(if is_unknown {
        "Whether the card was charged is unknown: look before you try again."
    } else {
        "The card was charged."
    })
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let tools = stage.tools(TAKES).await?;
    let model = stage.model(script).await?;
    let mut server = stage.serve().await?;
    stage.say("started a model, a server of tools, and Mainspring")?;
    let repeat = if stage.plants() { "safe" } else { "once" };
    let agent = json!({
        "system_prompt": "You charge cards.",
        "tools": [tools.declared("charge", repeat), tools.declared("record", "keyed")],
    });
    let session = stage.session(&server.client, &agent).await?;
    let body = json!({ "input": "Charge order 7." });
    let accepted = accept(&server.client, &session, &body).await?;
    let under_way = || !tools.of("charge").is_empty() && !tools.of("record").is_empty();
    stage.until("both tools are called", under_way).await?;
    stage.say(&format!(
        "the model asked for `charge` ({repeat}) and `record` (keyed), and both were called"
    ))?;
    server.kill().await;
    stage.say("killed the process with signal 9 in the middle of both calls")?;
    stage.again(&mut server).await?;
    stage.say("started it again")?;
    let send = settled(&server.client, &id(&accepted)).await?;
    stage.say("the send ended")?;
    stage.audit(vec![server]).await?;

    let (charged, recorded) = (tools.of("charge"), tools.of("record"));
    let keys: BTreeSet<&str> = recorded.iter().map(|called| called.key.as_str()).collect();
    let last = model.asked().pop().map(|asked| asked.body);
    let told_model = last.is_some_and(|body| body.contains(&unknown()));
    let output = send["output_text"].as_str().unwrap_or_default();
    stage.beside(
        format!("the send is {}", send["status"].as_str().unwrap_or("?")),
        format!("`charge` was called {}", times(charged.len())),
    );
    stage.beside(
        format!("“{output}”"),
        format!(
            "`record` was called {} under {} key",
            times(recorded.len()),
            keys.len()
        ),
    );
    let told = if told_model { "told" } else { "not told" };
    stage.beside(
        "",
        format!("the model was {told} that the outcome is unknown (tool.unknown_outcome)"),
    );
    stage.figure("calls_of_charge", charged.len());
    stage.figure("calls_of_record", recorded.len());
    stage.expect(charged.len() == 1, || {
        let count = times(charged.len());
        format!("`charge` acted {count}: it must not be called again after a crash")
    });
    stage.expect(told_model, || {
        "the model was not told that the outcome of a call that may have been made is unknown"
            .to_owned()
    });
    stage.expect(recorded.len() == 2 && keys.len() == 1, || {
        let (count, keys) = (times(recorded.len()), keys.len());
        format!("`record` was called {count} under {keys} keys, not twice under one")
    });
    stage.expect(send["status"] == "completed", || {
        format!("the send is {}, not completed", send["status"])
    });
    // Two rounds, and neither is asked for twice: the crash was between them.
    stage.expect(model.count() == 2, || {
        format!("the model was asked {}, not twice", times(model.count()))
    });
    Ok(())
}
