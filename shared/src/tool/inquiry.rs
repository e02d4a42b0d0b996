//! What a tool asks a person while its call is made.
//!
//! A call that asks waits like one for an approval: it is a row, without a worker or a connection. The answer is stored
//! with the call, which is then made again from its start, with all answers so far.

mod form;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use form::{Form, FormFault};

/// What one call may ask: more than any conversation with a person takes, and few enough that a tool that asks
/// something else each time comes to an end.
pub const INQUIRIES_MAX: usize = 16;

/// Bytes of a message, and of a form or an address.
pub const INQUIRY_BYTES_MAX: usize = 16 << 10;

/// Bytes of the content of an answer: with [`INQUIRIES_MAX`] of them, a call's row stays below what a result may take.
const CONTENT_BYTES_MAX: usize = 64 << 10;

/// One question of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inquiry {
    /// What the person reads.
    pub message: String,
    /// What is wanted.
    #[serde(flatten)]
    pub wants: Wants,
}

/// What a question wants of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wants {
    /// Values that fit this schema, which a [`Form`] can be read from.
    Form(Value),
    /// That the person opens this address, where everything else happens.
    Url(String),
}

/// The answer of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
pub enum Reply {
    /// The person agrees.
    Accept {
        /// The values, if any were wanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Map<String, Value>>,
    },
    /// The person refuses.
    Decline {},
    /// The person neither agrees nor refuses.
    Cancel {},
}

/// A question of a call, and its answer once there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The question.
    pub inquiry: Inquiry,
    /// Which start of the call asked it. Until the call is started again, it is not under way.
    pub attempt: i32,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
}

impl Inquiry {
    /// Whether a question that is asked again is this one: the same words, and the same form, or the same page; the
    /// query of an address may be made for one visit only.
    pub fn is_same(&self, other: &Self) -> bool {
        let page = |url: &str| url.split(['?', '#']).next().map(str::to_owned);
        self.message == other.message
            && match (&self.wants, &other.wants) {
                (Wants::Form(one), Wants::Form(other)) => one == other,
                (Wants::Url(one), Wants::Url(other)) => page(one) == page(other),
                (Wants::Form(_), Wants::Url(_)) | (Wants::Url(_), Wants::Form(_)) => false,
            }
    }

    /// Approximate size in bytes.
    pub fn weight(&self) -> usize {
        let wants = match &self.wants {
            Wants::Form(schema) => schema.to_string().len(),
            Wants::Url(url) => url.len(),
        };
        self.message.len() + wants
    }

    /// The answer that `given` is to this question, or what is wrong with it.
    pub fn answer(&self, given: &Value) -> Result<Reply, Vec<FormFault>> {
        let expected = match &self.wants {
            Wants::Form(_) => "{\"action\": \"accept\", \"content\": {…}}",
            Wants::Url(_) => "{\"action\": \"accept\"}",
        };
        let unclear = |_| {
            let detail = format!(
                "an answer is {expected}, {{\"action\": \"decline\"}} or {{\"action\": \"cancel\"}}"
            );
            vec![FormFault::at("", detail)]
        };
        let reply = Reply::deserialize(given).map_err(unclear)?;
        let Reply::Accept { content } = &reply else {
            return Ok(reply);
        };
        let nothing = Map::new();
        let given = content.as_ref().unwrap_or(&nothing);
        let faults = match &self.wants {
            Wants::Url(_) if content.is_some() => {
                vec![FormFault::at(
                    "/content",
                    "no values are asked for".to_owned(),
                )]
            }
            Wants::Url(_) => Vec::new(),
            Wants::Form(schema) => {
                // A form is stored only if it can be read.
                let form = Form::read(schema).map_err(|fault| vec![fault])?;
                form.faults(given)
            }
        };
        let is_large =
            content.is_some() && Value::from(given.clone()).to_string().len() > CONTENT_BYTES_MAX;
        match faults {
            _ if is_large => {
                let detail = format!("must have at most {CONTENT_BYTES_MAX} bytes");
                Err(vec![FormFault::at("/content", detail)])
            }
            faults if faults.is_empty() => Ok(reply),
            faults => Err(faults),
        }
    }
}

/// The answers to a call's earlier questions, given in their order as the call asks again.
#[derive(Debug, Clone, Default)]
pub struct Replies {
    left: Vec<(Inquiry, Reply)>,
}

impl Replies {
    /// The answers among these questions.
    pub fn of(asked: &[Asked]) -> Self {
        let answered = asked.iter().filter_map(|asked| {
            let reply = asked.reply.clone()?;
            Some((asked.inquiry.clone(), reply))
        });
        Self {
            left: answered.collect(),
        }
    }

    /// The first answer to this question that was not given yet.
    pub fn take(&mut self, inquiry: &Inquiry) -> Option<Reply> {
        let found = self
            .left
            .iter()
            .position(|(asked, _)| asked.is_same(inquiry))?;
        Some(self.left.remove(found).1)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asks(message: &str) -> Inquiry {
        Inquiry {
            message: message.to_owned(),
            wants: Wants::Form(json!({
                "type": "object",
                "properties": {"sure": {"type": "boolean"}, "why": {"type": "string"}},
                "required": ["sure"],
            })),
        }
    }

    fn visit(url: &str) -> Inquiry {
        Inquiry {
            message: "Sign in.".to_owned(),
            wants: Wants::Url(url.to_owned()),
        }
    }

    fn yes() -> Reply {
        let content = json!({"sure": true}).as_object().cloned();
        Reply::Accept { content }
    }

    #[test]
    fn an_answer_has_one_form_each_and_its_values_fit() {
        let (form, page) = (asks("sure?"), visit("https://a/b"));
        for (inquiry, given, expected) in [
            (
                &form,
                json!({"action": "accept", "content": {"sure": true}}),
                Ok(yes()),
            ),
            (&form, json!({"action": "decline"}), Ok(Reply::Decline {})),
            (&form, json!({"action": "cancel"}), Ok(Reply::Cancel {})),
            (&form, json!({"action": "accept"}), Err("/content/sure")),
            (
                &form,
                json!({"action": "accept", "content": {"sure": 1}}),
                Err("/content/sure"),
            ),
            (
                &form,
                json!({"action": "accept", "content": {"sure": true, "x": 1}}),
                Err("/content/x"),
            ),
            (&form, json!({"action": "decline", "content": {}}), Err("")),
            (&form, json!({"action": "maybe"}), Err("")),
            (&form, json!({"sure": true}), Err("")),
            (&form, json!("yes"), Err("")),
            (&form, json!(null), Err("")),
            (
                &page,
                json!({"action": "accept"}),
                Ok(Reply::Accept { content: None }),
            ),
            (
                &page,
                json!({"action": "accept", "content": {}}),
                Err("/content"),
            ),
        ] {
            let answer = inquiry.answer(&given);
            let place = answer.map_err(|faults| faults[0].pointer.clone());
            assert_eq!(place, expected.map_err(str::to_owned), "{given}");
        }
        let large =
            json!({"action": "accept", "content": {"sure": true, "why": "x".repeat(70_000)}});
        form.answer(&large).expect_err("too large");
    }

    #[test]
    fn answers_are_given_to_the_questions_that_they_are_to_in_their_order() {
        let asked = |message: &str, reply: Option<Reply>| Asked {
            inquiry: asks(message),
            attempt: 1,
            reply,
        };
        let mut replies = Replies::of(&[
            asked("first", Some(yes())),
            asked("again", Some(Reply::Decline {})),
            asked("again", Some(yes())),
            asked("open", None),
        ]);
        assert_eq!(replies.take(&asks("open")), None);
        assert_eq!(replies.take(&asks("again")), Some(Reply::Decline {}));
        assert_eq!(replies.take(&asks("first")), Some(yes()));
        assert_eq!(replies.take(&asks("first")), None, "each is given once");
        assert_eq!(replies.take(&asks("again")), Some(yes()));
    }

    #[test]
    fn a_page_is_the_same_with_another_query() {
        assert!(visit("https://a/b?state=1").is_same(&visit("https://a/b?state=2#x")));
        assert!(!visit("https://a/b").is_same(&visit("https://a/c")));
        assert!(!asks("sure?").is_same(&visit("https://a/b")));
    }

    #[test]
    fn what_is_stored_is_read_again() {
        for asked in [
            Asked {
                inquiry: asks("a"),
                attempt: 2,
                reply: Some(yes()),
            },
            Asked {
                inquiry: visit("https://a"),
                attempt: 1,
                reply: Some(Reply::Cancel {}),
            },
            Asked {
                inquiry: visit("https://a"),
                attempt: 1,
                reply: None,
            },
        ] {
            let text = serde_json::to_string(&asked).expect("JSON");
            assert_eq!(
                serde_json::from_str::<Asked>(&text).expect("the same"),
                asked
            );
        }
        let text = serde_json::to_string(&Asked {
            inquiry: visit("https://a"),
            attempt: 1,
            reply: Some(Reply::Decline {}),
        });
        let stored = r#"{"inquiry":{"message":"Sign in.","url":"https://a"},"attempt":1,"reply":{"action":"decline"}}"#;
        assert_eq!(text.expect("JSON"), stored);
    }
}
