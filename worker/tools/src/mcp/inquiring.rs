//! Questions of a server to a person: read, and answered from what is stored with the call.

use std::collections::BTreeMap;

use mainspring_shared::tool::{Form, INQUIRIES_MAX, INQUIRY_BYTES_MAX, Inquiry, Replies, Wants};
use mainspring_worker::tool::Inquiring;
use reqwest::Url;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::credentials::KnownSecrets;
use super::fault::Fault;
use mainspring_shared::error::Code;

/// The request with which a server asks.
pub(super) const ASKS: &str = "elicitation/create";

/// The member of a request's `_meta` that names the task for which it is made.
const OF_TASK: &str = "io.modelcontextprotocol/related-task";

/// Questions of one result.
const TOGETHER_MAX: usize = INQUIRIES_MAX;

/// What a person reads if the server gives no words.
const NO_WORDS: &str = "The tool asks for input.";

/// The question that the parameters of a request ask, with the server's secrets hidden, or what is wrong with it.
pub(super) fn read(params: &Value, secrets: &KnownSecrets) -> Result<Inquiry, String> {
    let word = |name: &str| params.get(name).and_then(Value::as_str);
    let message = word("message").unwrap_or_default();
    let message: String = message
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    if message.len() > INQUIRY_BYTES_MAX {
        return Err(format!(
            "the message has more than {INQUIRY_BYTES_MAX} bytes"
        ));
    }
    let message = if message.trim().is_empty() {
        NO_WORDS.to_owned()
    } else {
        secrets.hidden(&message)
    };
    let wants = match word("mode").unwrap_or("form") {
        "form" => {
            let schema = params.get("requestedSchema").unwrap_or(&Value::Null);
            Form::read(schema).map_err(|fault| format!("requestedSchema{fault}"))?;
            Wants::Form(schema.clone())
        }
        "url" => {
            let url = word("url").and_then(|url| Url::parse(url).ok());
            let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
            let url = url.filter(|url| url.as_str().len() <= INQUIRY_BYTES_MAX);
            Wants::Url(secrets.hidden(url.ok_or("url is no address of http or https")?.as_str()))
        }
        other => return Err(format!("the mode {other:.50?} is not known")),
    };
    Ok(Inquiry { message, wants })
}

/// The task that a request is made for.
pub(super) fn task(params: &Value) -> Option<&str> {
    params.get("_meta")?.get(OF_TASK)?.get("taskId")?.as_str()
}

/// What one attempt of a call may ask, and the answers that it gets.
#[derive(Debug)]
pub(super) struct Questions {
    replies: Replies,
    may_ask: bool,
    is_full: bool,
}

impl Questions {
    pub(super) fn of(inquiring: &Inquiring) -> Self {
        Self {
            replies: inquiring.replies(),
            may_ask: inquiring.may_ask(),
            is_full: inquiring.count() >= INQUIRIES_MAX,
        }
    }

    /// Whether there is anybody to ask.
    pub(super) fn reach_someone(&self) -> bool {
        self.may_ask || self.is_full
    }

    /// The stored answer; else how the call ends, which asks.
    pub(super) fn answer(&mut self, inquiry: &Inquiry) -> Result<Value, Fault> {
        if let Some(reply) = self.replies.take(inquiry) {
            return Ok(serde_json::to_value(reply).unwrap_or_default());
        }
        if self.is_full {
            let said = format!("it has asked {INQUIRIES_MAX} questions and asks on");
            return Err(Fault::Refused(Code::ToolFailed, said));
        }
        if !self.may_ask {
            let said = "it asks for input, and there is nobody to ask here";
            return Err(Fault::Refused(Code::ToolFailed, said.to_owned()));
        }
        Err(Fault::Asks(Box::new(inquiry.clone())))
    }

    /// The answers to all requests for input in a result or a task, by the server's names for them.
    pub(super) fn answers(
        &mut self,
        requests: &JsonObject,
        secrets: &KnownSecrets,
    ) -> Result<JsonObject, Fault> {
        if requests.len() > TOGETHER_MAX {
            let said = format!("it asks {} questions together", requests.len());
            return Err(Fault::Refused(Code::ToolFailed, said));
        }
        // In a fixed order, so that a repeated call meets its answers in it.
        let requests: BTreeMap<&String, &Value> = requests.iter().collect();
        let mut answers = JsonObject::new();
        for (name, request) in requests {
            if request.get("method").and_then(Value::as_str) != Some(ASKS) {
                let said = "it asks for something else than an answer of a person";
                return Err(Fault::Refused(Code::ToolFailed, said.to_owned()));
            }
            let params = request.get("params").unwrap_or(&Value::Null);
            let inquiry = read(params, secrets).map_err(|why| {
                Fault::Refused(
                    Code::ToolFailed,
                    format!("its question cannot be shown: {why}"),
                )
            })?;
            answers.insert(name.clone(), self.answer(&inquiry)?);
        }
        Ok(answers)
    }
}

/// What a result asks for in place of an answer: the members with which the call is to be made again.
pub(super) fn wanted(
    result: &Value,
    questions: &mut Questions,
    secrets: &KnownSecrets,
) -> Result<Option<JsonObject>, Fault> {
    if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
        return Ok(None);
    }
    let none = JsonObject::new();
    let requests = result.get("inputRequests").and_then(Value::as_object);
    let answers = questions.answers(requests.unwrap_or(&none), secrets)?;
    let mut members =
        JsonObject::from_iter([("inputResponses".to_owned(), Value::Object(answers))]);
    if let Some(state) = result.get("requestState") {
        members.insert("requestState".to_owned(), state.clone());
    }
    Ok(Some(members))
}

/// The answer to a question that nobody is asked.
pub(super) fn nobody() -> Value {
    json!({ "action": "cancel" })
}

#[cfg(test)]
mod tests {
    use mainspring_shared::secrets::Secrets;
    use mainspring_shared::tool::{Asked, Reply};

    use super::*;

    fn form() -> Value {
        json!({"type": "object", "properties": {"sure": {"type": "boolean"}}})
    }

    fn asked(params: &Value) -> Result<Inquiry, String> {
        read(
            params,
            &KnownSecrets::new(Secrets::default().and("s3cret-token")),
        )
    }

    #[test]
    fn a_question_is_read_in_both_modes_without_secrets() {
        let shown = asked(
            &json!({"message": "Delete\u{1b} with s3cret-token?", "requestedSchema": form()}),
        );
        let expected = Inquiry {
            message: "Delete with [redacted]?".to_owned(),
            wants: Wants::Form(form()),
        };
        assert_eq!(shown, Ok(expected));
        let visit = asked(
            &json!({"mode": "url", "url": "https://a/b?t=s3cret-token", "elicitationId": "1"}),
        );
        let expected = Inquiry {
            message: NO_WORDS.to_owned(),
            wants: Wants::Url("https://a/b?t=[redacted]".to_owned()),
        };
        assert_eq!(visit, Ok(expected));
    }

    #[test]
    fn what_nobody_can_show_or_open_is_refused() {
        for params in [
            json!(null),
            json!({"message": "m"}),
            json!({"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}}),
            json!({"message": "m".repeat(INQUIRY_BYTES_MAX + 1), "requestedSchema": form()}),
            json!({"mode": "url", "message": "m", "url": "javascript:alert(1)"}),
            json!({"mode": "url", "message": "m", "url": "file:///etc/passwd"}),
            json!({"mode": "url", "message": "m"}),
            json!({"mode": "voice", "message": "m"}),
        ] {
            asked(&params).expect_err(&params.to_string());
        }
    }

    fn answered(messages: &[&str]) -> Inquiring {
        let asked = messages.iter().map(|message| Asked {
            inquiry: asked(&json!({"message": message, "requestedSchema": form()}))
                .expect("a question"),
            attempt: 1,
            reply: Some(Reply::Decline {}),
        });
        Inquiring::new(&asked.collect::<Vec<_>>())
    }

    #[test]
    fn a_result_that_wants_input_gets_all_of_it_or_asks_the_first_that_is_missing() {
        let request = |message: &str| json!({"method": ASKS, "params": {"message": message, "requestedSchema": form()}});
        let result = json!({"resultType": "input_required", "requestState": "s",
            "inputRequests": {"b": request("two"), "a": request("one")}});
        let none = KnownSecrets::default();
        let wanted = |messages: &[&str]| {
            let mut questions = Questions::of(&answered(messages));
            wanted(&result, &mut questions, &none)
        };
        let Err(Fault::Asks(open)) = wanted(&["two"]) else {
            panic!("a question");
        };
        assert_eq!(open.message, "one");
        let members = wanted(&["one", "two"]).expect("answers").expect("members");
        let decline = json!({"action": "decline"});
        let expected = json!({"inputResponses": {"a": decline, "b": decline}, "requestState": "s"});
        assert_eq!(Value::Object(members), expected);
        let plain = super::wanted(
            &json!({"content": []}),
            &mut Questions::of(&answered(&[])),
            &none,
        );
        assert_eq!(plain, Ok(None));
    }

    #[test]
    fn a_call_asks_only_so_much_and_only_where_somebody_is() {
        let inquiry = asked(&json!({"message": "once more?", "requestedSchema": form()}))
            .expect("a question");
        let many = vec!["again"; INQUIRIES_MAX];
        let over = Questions::of(&answered(&many)).answer(&inquiry);
        assert!(
            matches!(over, Err(Fault::Refused(Code::ToolFailed, _))),
            "{over:?}"
        );
        let alone = Questions::of(&Inquiring::default());
        assert!(!alone.reach_someone());
    }
}
