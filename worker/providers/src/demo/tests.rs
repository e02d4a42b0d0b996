use super::*;
use std::sync::Mutex;

use mainspring_shared::agent::OutputSpec;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{FileSource, ImageSource, NewMessage};
use mainspring_shared::time::Timestamp;
use serde_json::json;

/// A clock on which sleeping takes no time but is recorded.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<Duration>>);

#[async_trait]
impl Clock for Notes {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, duration: Duration) {
        self.0.lock().expect("nobody panicked").push(duration);
    }
}

fn message(role: Role, text: &str, name: Option<&str>) -> Arc<Message> {
    let new = NewMessage {
        role,
        name: name.map(Into::into),
        ..NewMessage::user(vec![ContentPart::text(text)], 0)
    };
    Arc::new(new.at(1, SendId(uuid::Uuid::nil()), Timestamp(0), 1))
}

struct Heard {
    reply: Result<Reply, Error>,
    chunks: Vec<String>,
    slept: Vec<Duration>,
}

fn ask(messages: Vec<Arc<Message>>) -> Heard {
    ask_for(messages, None)
}

fn ask_for(messages: Vec<Arc<Message>>, output: Option<Arc<OutputSpec>>) -> Heard {
    let clock = Arc::new(Notes::default());
    let demo = Demo::new(clock.clone());
    let request = Request {
        model: "demo".into(),
        system: Some("be brief".into()),
        messages,
        max_tokens: 100,
        output,
        ..Request::default()
    };
    let mut chunks = Vec::new();
    let mut hear = |chunk: Chunk<'_>| match chunk {
        Chunk::Text(text) | Chunk::Reasoning(text) => chunks.push(text.to_owned()),
        Chunk::Hidden(_) | Chunk::Counted(_) | Chunk::Background(_) => {}
    };
    let reply = futures::executor::block_on(demo.complete(&request, &mut hear));
    let slept = clock.0.lock().expect("nobody panicked").clone();
    Heard {
        reply,
        chunks,
        slept,
    }
}

fn text(reply: &Reply) -> String {
    plain_text(&reply.content)
}

#[test]
fn the_last_user_text_comes_back_with_its_words_counted() {
    let heard = ask(vec![
        message(Role::User, "first", None),
        message(Role::User, "hello there", None),
    ]);
    let reply = heard.reply.expect("an answer");
    assert_eq!(text(&reply), "hello there");
    assert_eq!(heard.chunks, ["hello there"]);
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (5, 2)
    );
    assert!(!reply.usage.estimated);
    assert_eq!(reply.finish, Finish::Stop);
}

#[test]
fn tools_are_called_and_then_told() {
    let asked = message(Role::User, "!tool add {\"a\":1}", None);
    let reply = ask(vec![asked.clone()]).reply.expect("an answer");
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!(reply.tool_calls[0].arguments, json!({"a": 1}));
    assert!(reply.content.is_empty());
    let results = vec![
        asked,
        message(Role::Assistant, "", None),
        message(Role::Tool, "3", Some("add")),
        message(Role::Tool, "4", Some("sub")),
    ];
    let reply = ask(results).reply.expect("an answer");
    assert_eq!(text(&reply), "add answered: 3\nsub answered: 4");
    assert!(reply.tool_calls.is_empty());
}

#[test]
fn a_stream_has_as_many_chunks_as_asked_for_also_when_the_text_is_short() {
    for text in [
        "!stream 20x10ms",
        "a long text of more than twenty characters !stream 20x10ms",
    ] {
        let heard = ask(vec![message(Role::User, text, None)]);
        assert_eq!(heard.chunks.len(), 20);
        assert!(heard.chunks.iter().all(|chunk| !chunk.is_empty()));
        assert_eq!(heard.slept, [Duration::from_millis(10); 19]);
        assert_eq!(
            plain_text(&heard.reply.expect("an answer").content),
            heard.chunks.concat()
        );
    }
}

#[test]
fn a_shape_is_answered_with_a_value_also_in_a_stream_and_after_tools() {
    let asked =
        json!({"type": "object", "required": ["said"], "properties": {"said": {"type": "string"}}});
    let (spec, schema) = OutputSpec::read(&asked).expect("a schema");
    let spec = Arc::new(spec);
    let question = message(Role::User, "!stream 100x1ms !tool add {}", None);
    let calls = ask_for(vec![question.clone()], Some(spec.clone()));
    assert_eq!(calls.reply.expect("an answer").finish, Finish::ToolCalls);
    let messages = vec![
        question,
        message(Role::Assistant, "", None),
        message(Role::Tool, "3", Some("add")),
    ];
    let heard = ask_for(messages, Some(spec));
    assert_eq!(heard.chunks.len(), 100);
    let value = serde_json::from_str(&heard.chunks.concat()).expect("JSON");
    assert_eq!(schema.faults(&value), Vec::<String>::new());
    assert_eq!(value, json!({"said": "add answered: 3"}));
}

/// A user message with these parts.
fn said(content: Vec<ContentPart>) -> Arc<Message> {
    let new = NewMessage::user(content, 0);
    Arc::new(new.at(1, SendId(uuid::Uuid::nil()), Timestamp(0), 1))
}

#[test]
fn where_the_user_said_nothing_it_names_what_there_was() {
    let image = || ContentPart::Image {
        source: ImageSource::Url {
            url: "https://example.test/cat.png".to_owned(),
        },
    };
    let file = || ContentPart::File {
        name: "notes.txt".to_owned(),
        source: FileSource::Text {
            text: "words".to_owned(),
        },
    };
    for (content, expected) in [
        (vec![image()], "[image]"),
        (vec![image(), file()], "[image] [file]"),
        (vec![ContentPart::text(" \n"), file()], "[file]"),
        (vec![ContentPart::text("  ")], "(no text)"),
        (vec![ContentPart::text("look"), image()], "look"),
    ] {
        let heard = ask(vec![said(content)]);
        assert_eq!(text(&heard.reply.expect("an answer")), expected);
        assert_eq!(heard.chunks, [expected]);
    }
}

#[test]
fn it_fails_and_sleeps_as_told() {
    let heard = ask(vec![message(Role::User, "!sleep 200ms !fail 429 2s", None)]);
    assert_eq!(heard.slept, [Duration::from_millis(200)]);
    let error = heard.reply.expect_err("a failure");
    assert_eq!(error.code(), Code::LlmRateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
    for (word, code) in [
        ("401", Code::LlmAuth),
        ("500", Code::LlmUnavailable),
        ("timeout", Code::LlmTimeout),
        ("refused", Code::LlmRefused),
        ("overflow", Code::LlmContextOverflow),
        ("garbage", Code::LlmBadResponse),
    ] {
        let heard = ask(vec![message(Role::User, &format!("!fail {word}"), None)]);
        assert_eq!(heard.reply.expect_err("a failure").code(), code, "{word}");
        assert!(heard.chunks.is_empty());
    }
}

#[test]
fn an_answer_that_was_cut_goes_on_where_it_stops() {
    let asked = "!stream 8x10ms abcdefghijklmnop";
    let whole = ask(vec![message(Role::User, asked, None)]);
    let begun = whole.chunks[..6].concat();
    let rest = ask(vec![
        message(Role::User, asked, None),
        message(Role::Assistant, &begun, None),
        message(Role::User, GO_ON, None),
    ]);
    assert_eq!(rest.chunks.len(), 2, "{:?}", rest.chunks);
    assert_eq!(rest.chunks.concat(), whole.chunks[6..].concat());
    let said = rest.reply.expect("an answer").content;
    assert_eq!(plain_text(&said), whole.chunks[6..].concat());
}
