use uuid::Uuid;

use super::*;
use crate::agent::SendOptions;
use crate::error::Failure;
use crate::id::{SessionKey, TenantId};
use crate::send::StopReason;
use crate::usage::Usage;

const CHILD: SessionId = SessionId(Uuid::from_u128(0x5));
const SEND: SendId = SendId(Uuid::from_u128(0x1));

fn ended(status: SendStatus, stop_reason: StopReason) -> SendRecord {
    SendRecord {
        id: SEND,
        key: SessionKey {
            tenant: TenantId::DEFAULT,
            session: CHILD,
        },
        position: Some(1),
        status,
        waiting_on: None,
        stop_reason: Some(stop_reason),
        input: vec![ContentPart::text("go")],
        options: SendOptions::default(),
        agent_version: Some(1),
        output_text: None,
        output: None,
        error: None,
        held: crate::budget::Held::default(),
        usage: Usage::default(),
        rounds: 1,
        attempts: 0,
        counted: 0,
        not_failed: 0,
        shown: None,
        crashes: 0,
        cancel_requested: false,
        reports_to: Some("call_1".to_owned()),
        run: None,
        deadline_at: None,
        alarm_at: None,
        first_step: 1,
        created_at: Timestamp(1),
        started_at: Some(Timestamp(2)),
        finished_at: Some(Timestamp(3)),
    }
}

#[test]
fn a_child_that_answered_is_a_result_with_its_text_and_its_value() {
    let send = SendRecord {
        output_text: Some("done".to_owned()),
        output: Some(json!({ "n": 1 })),
        ..ended(SendStatus::Completed, StopReason::End)
    };
    let result = child_result(&send);
    let said = format!("the child {CHILD} answered: done");
    let digest = ContentPart::Digest { text: said };
    assert_eq!(result.content, [ContentPart::text("done"), digest]);
    assert!(!result.failed);
    let value = result.value.expect("it has a value");
    assert_eq!(value["session_id"], json!(CHILD));
    assert_eq!(value["send_id"], json!(SEND));
    assert_eq!(value["status"], json!("completed"));
    assert_eq!(value["output"], json!({ "n": 1 }));
    assert_eq!(value["usage"], json!(Usage::default()));
}

#[test]
fn a_child_that_said_nothing_still_has_a_text() {
    for output_text in [None, Some(String::new())] {
        let send = SendRecord {
            output_text,
            ..ended(SendStatus::Completed, StopReason::End)
        };
        let text = plain_text(&child_result(&send).content);
        assert_eq!(text, "the child ended without an answer");
    }
}

#[test]
fn a_child_that_did_not_answer_is_an_error_that_says_why() {
    let failed = SendRecord {
        error: Some(Failure::new(Code::LlmAuth, "the key is refused")),
        ..ended(SendStatus::Failed, StopReason::ProviderError)
    };
    let result = child_result(&failed);
    assert_eq!((result.failed, result.code), (true, Some(Code::ToolFailed)));
    let text = plain_text(&result.content);
    assert_eq!(
        text,
        "the child ended failed: provider_error: the key is refused"
    );
    let cancelled = child_result(&ended(SendStatus::Cancelled, StopReason::Cancelled));
    let text = plain_text(&cancelled.content);
    assert_eq!(text, "the child ended cancelled: cancelled");
}

#[test]
fn news_of_a_child_name_the_call_and_the_send() {
    let send = SendRecord {
        output_text: Some("done".to_owned()),
        ..ended(SendStatus::Completed, StopReason::End)
    };
    let (id, content) = child_item(&send, "call_1");
    assert_eq!(id, format!("child_{SEND}"));
    let texts = [
        ContentPart::text("The child of call_1 has ended."),
        ContentPart::text("done"),
    ];
    assert_eq!(content, texts);
}
