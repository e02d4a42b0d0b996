//! Policies that are notified.

use mainspring_shared::message::NewMessage;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold::{FoldKind, NewFold};

use super::*;

type Make = fn(&str, &str, &Caller) -> HttpPolicy;

fn fold() -> NewFold {
    NewFold {
        from_seq: 1,
        to_seq: 4,
        level: 0,
        kind: FoldKind::Summary,
        text: "They met.".to_owned(),
        model: None,
        tokens_before: 100,
        tokens_after: 4,
    }
}

/// The JSON body of a request to the service.
fn sent(request: &str) -> Value {
    let (_, body) = request.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("it is JSON")
}

#[tokio::test]
async fn each_point_is_told_of_its_own_moment_and_of_no_other() {
    let fold = fold();
    let message = NewMessage::user(vec![ContentPart::text("hi")], 0);
    let moments = || {
        [
            Moment::SendStarted,
            Moment::RoundStarted,
            Moment::MessagesStored {
                first_seq: 7,
                messages: std::slice::from_ref(&message),
            },
            Moment::FoldStored(&fold),
            Moment::SendEnded(SendStatus::Completed),
        ]
    };
    let points: [(&str, Make); 4] = [
        ("send_started", |name, url, by| {
            HttpPolicy::send_started(name, url, by)
        }),
        ("messages_stored", |name, url, by| {
            HttpPolicy::messages_stored(name, url, by)
        }),
        ("fold_stored", |name, url, by| {
            HttpPolicy::fold_stored(name, url, by)
        }),
        ("send_ended", |name, url, by| {
            HttpPolicy::send_ended(name, url, by)
        }),
    ];
    for (point, make) in points {
        // Whatever the service answers, or if it answers nothing at all.
        let (url, served) = service(vec!["noted"]).await;
        let policy = make("p", &url, &caller());
        assert!(!policy.traits().fails_closed, "{point}");
        for moment in moments() {
            policy.observe(place(), moment).await.expect("it is told");
        }
        let asked = served.await.expect("served");
        assert_eq!(asked.len(), 1, "{point}");
        let told = sent(&asked[0]);
        assert_eq!(told["name"], point);
        assert_eq!(told["kind"], "event", "{point}");
        let arguments = &told["arguments"];
        match point {
            "messages_stored" => {
                assert_eq!(arguments["messages"][0]["seq"], 7);
                assert_eq!(arguments["messages"][0]["content"][0]["text"], "hi");
            }
            "fold_stored" => assert_eq!(arguments["text"], "They met."),
            "send_ended" => assert_eq!(arguments["status"], "completed"),
            _ => assert_eq!(arguments["round"], 0),
        }
    }
}

#[tokio::test]
async fn a_service_that_is_told_and_does_not_answer_denies_nothing() {
    // Nothing listens on this port.
    let policy = HttpPolicy::send_started("p", "http://127.0.0.1:1/policy", &caller());
    let told = policy.observe(place(), Moment::SendStarted).await;
    assert!(told.is_err());
    let decided = policy.round_started(place()).await;
    assert_eq!(decided, Ok(Verdict::Go));
}
