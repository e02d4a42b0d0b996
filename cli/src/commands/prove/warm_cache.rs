//! Each request to the model begins with the bytes of the one before it, also after a crash: so a provider's prompt cache
//! stays warm.

use std::time::Duration;

use serde_json::json;

use super::asking::{accept, id, settled};
use super::model::{Asked, Prompt, Reply};
use super::stage::{Stage, nth};
use crate::failure::Failure;

/// Sends of the conversation.
const SENDS: usize = 4;

/// The send in whose answer the process dies.
const DYING: usize = 3;

/// Rounds with a tool in each send.
const ROUNDS: usize = 2;

fn script(prompt: &Prompt) -> Reply {
    let round = prompt.results.len();
    if round < ROUNDS {
        return Reply {
            calls: vec![("look", json!({ "what": format!("place {round}") }))],
            ..Reply::default()
        };
    }
    let is_dying = prompt.input.starts_with(&format!("Question {DYING} ")) && prompt.before == 0;
    Reply {
        delay: Duration::from_secs(if is_dying { 10 } else { 0 }),
        ..Reply::text(format!("I looked at {round} places."))
    }
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let tools = stage.tools(Duration::ZERO).await?;
    let model = stage.model(script).await?;
    let mut server = stage.serve().await?;
    let agent = json!({
        "system_prompt": "You look at places.", "tools": [tools.declared("look", "safe")],
    });
    let session = stage.session(&server.client, &agent).await?;
    let mut told = Vec::new();
    for number in 1..=SENDS {
        let mut body = json!({ "input": format!("Question {number} is what is there.") });
        if stage.plants() {
            let prompt = format!("You look at places. This is question {number}.");
            body["options"] = json!({ "system_prompt": prompt });
        }
        let send = id(&accept(&server.client, &session, &body).await?);
        if number == DYING {
            let rounds = (DYING - 1) * (ROUNDS + 1) + ROUNDS + 1;
            let is_asked = || model.count() >= rounds && model.is_answering();
            stage.until("the model is asked", is_asked).await?;
            server.kill().await;
            stage.again(&mut server).await?;
            stage.say("killed the process in the middle of an answer, and started it again")?;
        }
        let ended = settled(&server.client, &send).await?;
        stage.say(&format!("the {} send ended", nth(number)))?;
        told.push(ended["output_text"].as_str().unwrap_or_default().to_owned());
    }
    stage.audit(vec![server]).await?;

    let asked = model.asked();
    let (mut same, mut bytes) = (0, 0);
    for (place, pair) in asked.windows(2).enumerate() {
        let continues = continues(&pair[0], &pair[1]);
        same += usize::from(continues.is_none());
        bytes += pair[0].body.len();
        stage.expect(continues.is_none(), || {
            let at = continues.unwrap_or_default();
            let tail = pair[1].body.get(at..).unwrap_or_default();
            let tail: String = tail.chars().take(40).collect();
            format!(
                "request {} differs from the one before it at byte {at}: {tail}",
                place + 2
            )
        });
    }
    for (number, text) in told.iter().enumerate() {
        let input = format!("Question {} ", number + 1);
        let of = asked.iter().filter(|asked| asked.input.starts_with(&input));
        let sizes: Vec<String> = of.map(|asked| asked.body.len().to_string()).collect();
        stage.beside(
            format!("“{text}”"),
            format!("requests of {} bytes", sizes.join(", ")),
        );
    }
    stage.figure("requests", asked.len());
    stage.figure("requests_that_continue_the_one_before", same);
    stage.figure("bytes_sent_again_unchanged", bytes);
    let rounds = SENDS * (ROUNDS + 1) + 1;
    stage.expect(asked.len() == rounds, || {
        format!("the model was asked {} times and not {rounds}", asked.len())
    });
    Ok(())
}

/// The byte at which a request does not continue the one before it; none if it does, or is the same.
fn continues(before: &Asked, after: &Asked) -> Option<usize> {
    let (Some(old), Some(new)) = (parts(&before.body), parts(&after.body)) else {
        return Some(0);
    };
    let common = before.body.bytes().zip(after.body.bytes());
    let common = common.take_while(|(old, new)| old == new).count();
    let is_same = old.0 == new.0 && new.1.starts_with(old.1) && old.2 == new.2;
    (!is_same).then_some(common)
}

/// A request's bytes up to its messages, the messages, and the rest.
fn parts(body: &str) -> Option<(&str, &str, &str)> {
    const NAME: &str = "\"messages\":[";
    let start = body.find(NAME)? + NAME.len();
    let (mut depth, mut is_text, mut is_escaped) = (0, false, false);
    for (at, byte) in body.bytes().enumerate().skip(start) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' if !is_text && depth == 0 => {
                return Some((&body[..start], &body[start..at], &body[at..]));
            }
            b']' | b'}' if !is_text => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: &str) -> Asked {
        Asked {
            body: body.to_owned(),
            input: String::new(),
            results: 0,
            billed: 0,
            is_over: true,
        }
    }

    #[test]
    fn a_request_continues_another_if_only_messages_were_added() {
        let first = asked(r#"{"model":"x","messages":[{"a":"]\"}"}],"tools":[1]}"#);
        let more = asked(r#"{"model":"x","messages":[{"a":"]\"}"},{"b":2}],"tools":[1]}"#);
        assert_eq!(continues(&first, &first), None);
        assert_eq!(continues(&first, &more), None);
        assert_ne!(continues(&more, &first), None);
        let other = asked(r#"{"model":"x","messages":[{"a":"]\"}"},{"b":2}],"tools":[2]}"#);
        assert_ne!(continues(&first, &other), None);
        let flipped = asked(r#"{"model":"x","messages":[{"a":"]\"!"},{"b":2}],"tools":[1]}"#);
        assert_eq!(continues(&first, &flipped), Some(34));
    }
}
