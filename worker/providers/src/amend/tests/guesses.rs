//! Parts that are left out because a provider refused a request without a reason.

use super::*;

/// A rule that refuses the first requests with tools, as many as this says, without a reason.
fn grudge(times: usize) -> Rule {
    let left = Mutex::new(times);
    Box::new(move |body| {
        let mut left = left.lock().expect("nobody panics");
        if *left == 0 || body.get("tools").is_none() {
            return None;
        }
        *left -= 1;
        Some((400, r#"{"error":{"message":"Bad Request"}}"#.to_owned()))
    })
}

#[tokio::test]
async fn a_refusal_for_no_reason_costs_a_part_for_minutes_and_not_for_ever() {
    for protocol in [Protocol::Chat, Protocol::Messages, Protocol::Responses] {
        let server = Server::new(protocol).await;
        let model = server.model(|_| {});
        server.rule(grudge(1));
        server
            .during(async {
                let request = rich(protocol);
                let whole = plain_body(&*server.model(|_| {}), &request);
                let guessed = repaired(&*model, &request).await.expect("it is taken");
                assert_eq!(guessed.len(), 1, "something was guessed");
                // For a while the guess holds, whatever it costs.
                assert_eq!(repaired(&*model, &request).await, Ok(Vec::new()));
                server.clock.pass(GUESS_FIRST);
                assert_eq!(repaired(&*model, &request).await, Ok(Vec::new()));
                let taken = server.taken.lock().expect("nobody panics").clone();
                assert_eq!(taken.len(), 3);
                assert_ne!(taken[0], whole);
                assert_eq!(taken[1], taken[0]);
                assert_eq!(taken[2], whole, "the part is sent again, and taken");
                // It is forgotten, not only tried once.
                assert_eq!(repaired(&*model, &request).await, Ok(Vec::new()));
                let taken = server.taken.lock().expect("nobody panics").clone();
                assert_eq!(taken[3], whole);
            })
            .await;
    }
}

#[tokio::test]
async fn a_guess_that_is_confirmed_holds_for_longer_each_time() {
    let server = Server::new(Protocol::Chat).await;
    let model = server.model(|_| {});
    server.rule(Box::new(|body| {
        let body = body.to_string();
        let shows = body.contains(PICTURE) || body.contains(OTHER_PICTURE);
        shows.then(|| (400, r#"{"error":{"message":"Bad Request"}}"#.to_owned()))
    }));
    server
        .during(async {
            let request = rich(Protocol::Chat);
            let mut span = GUESS_FIRST;
            repaired(&*model, &request).await.expect("it is taken");
            for _ in 0..6 {
                // Shortly before its end it holds, and nothing is refused.
                server.clock.pass(span.mul_f64(0.9));
                let before = server.refused.lock().expect("nobody panics").len();
                assert_eq!(repaired(&*model, &later(&request)).await, Ok(Vec::new()));
                assert_eq!(server.refused.lock().expect("nobody panics").len(), before);
                server.clock.pass(span.mul_f64(0.2));
                let again = repaired(&*model, &request).await.expect("it is taken");
                assert!(!again.is_empty(), "it is refused and guessed again");
                span = span.saturating_mul(GUESS_TIMES).min(GUESS_MAX);
            }
            assert_eq!(span, GUESS_MAX);
        })
        .await;
}
