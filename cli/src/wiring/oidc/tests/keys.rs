//! Keys are rotated, and the issuer may be unavailable.

use super::super::keys::PATIENCE;
use super::*;

#[tokio::test]
async fn a_new_key_is_found_and_a_withdrawn_one_forgotten() {
    let (one, two) = (Signer::rsa("one", ONE), Signer::rsa("two", TWO));
    let world = World::new(&[&one], |_| {}).await;
    world.accepts(&one.sign(&world.claims())).await;
    world.publish(&[&one, &two]);
    // Made-up key IDs cause no requests.
    for _ in 0..20 {
        let token = two.sign(&world.claims());
        world.refuses(&token, "its issuer has no such key").await;
    }
    assert_eq!(world.asked(), 1);
    world.clock.pass(Duration::from_secs(20));
    world.accepts(&two.sign(&world.claims())).await;
    assert_eq!(world.asked(), 2);
    world.publish(&[&two]);
    world.clock.pass(Duration::from_mins(11));
    // This triggers another fetch in the background.
    world.accepts(&two.sign(&world.claims())).await;
    for _ in 0..200 {
        if world
            .verifier
            .verify(&one.sign(&world.claims()))
            .await
            .is_err()
        {
            break;
        }
        SystemClock::new().sleep(Duration::from_millis(20)).await;
    }
    let token = one.sign(&world.claims());
    world.refuses(&token, "its issuer has no such key").await;
}

#[tokio::test]
async fn a_withdrawn_key_is_not_believed_after_a_long_silence() {
    let (one, two) = (Signer::rsa("one", ONE), Signer::rsa("two", TWO));
    let world = World::new(&[&one], |_| {}).await;
    let token = one.sign(&world.claims());
    world.accepts(&token).await;
    world.publish(&[&two]);
    world.clock.pass(Duration::from_hours(23));
    world.refuses(&token, "its issuer has no such key").await;
    assert_eq!(world.asked(), 2);
}

#[tokio::test]
async fn while_the_issuer_is_away_its_known_keys_are_used_for_a_day() {
    let (one, two) = (Signer::rsa("one", ONE), Signer::rsa("two", TWO));
    let world = World::new(&[&one], |_| {}).await;
    world.accepts(&one.sign(&world.claims())).await;
    world.set(Mood::Fails);
    world.clock.pass(Duration::from_hours(1));
    world.accepts(&one.sign(&world.claims())).await;
    world.clock.pass(Duration::from_mins(1));
    // The key may be a new one: the verifier cannot tell, so a refusal would be wrong.
    world.cannot_tell(&two.sign(&world.claims())).await;
    let asked = world.asked();
    world.cannot_tell(&two.sign(&world.claims())).await;
    assert_eq!(
        world.asked(),
        asked,
        "an issuer that is away is not asked again at once"
    );
    world.clock.pass(Duration::from_hours(24));
    world.cannot_tell(&one.sign(&world.claims())).await;
    world.set(Mood::Answers);
    world.clock.pass(Duration::from_secs(20));
    world.accepts(&one.sign(&world.claims())).await;
}

#[tokio::test]
async fn a_slow_issuer_delays_nobody_for_long_and_known_keys_not_at_all() {
    let (one, two) = (Signer::rsa("one", ONE), Signer::rsa("two", TWO));
    let world = World::new(&[&one], |_| {}).await;
    world.accepts(&one.sign(&world.claims())).await;
    world.set(Mood::Hangs);
    world.clock.pass(Duration::from_mins(11));
    let clock = SystemClock::new();
    let began = clock.monotonic();
    world.accepts(&one.sign(&world.claims())).await;
    assert!(clock.monotonic().saturating_sub(began) < Duration::from_secs(1));
    let token = two.sign(&world.claims());
    let asking = [(); 5].map(|()| world.cannot_tell(&token));
    futures::future::join_all(asking).await;
    // All of them waited for the same attempt.
    let took = clock.monotonic().saturating_sub(began);
    assert!(took < PATIENCE * 2 + Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_take_the_keys_from_the_others() {
    let one = Signer::rsa("one", ONE);
    let world = World::new(&[&one], |settings| {
        let url = settings.issuer.as_deref().expect("one");
        settings.jwks_url = Some(format!("{url}/keys"));
    })
    .await;
    world.set(Mood::Dawdles);
    let token = one.sign(&world.claims());
    let clock = SystemClock::new();
    tokio::select! {
        verified = world.verifier.verify(&token) => panic!("{verified:?}"),
        () = clock.sleep(Duration::from_millis(500)) => {}
    }
    world.accepts(&token).await;
    assert_eq!(world.asked(), 1);
}

#[tokio::test]
async fn a_request_waits_for_an_issuer_once_however_many_answers_it_needs() {
    let one = Signer::rsa("one", ONE);
    let world = World::new(&[&one], |_| {}).await;
    world.set(Mood::Dawdles);
    let clock = SystemClock::new();
    let began = clock.monotonic();
    world.cannot_tell(&one.sign(&world.claims())).await;
    let took = clock.monotonic().saturating_sub(began);
    assert!(took < Mood::LATE * 2, "{took:?}");
}

#[tokio::test]
async fn an_issuer_that_says_to_be_another_one_is_not_believed() {
    let one = Signer::rsa("one", ONE);
    let world = World::new(&[&one], |settings| {
        let url = settings.issuer.clone().expect("one");
        settings.issuer = Some(url.replace("127.0.0.1", "localhost"));
    })
    .await;
    let issuer = world.url.replace("127.0.0.1", "localhost");
    world
        .cannot_tell(&one.sign(&world.with("iss", json!(issuer))))
        .await;
}

#[tokio::test]
async fn the_keys_may_be_named_themselves() {
    let one = Signer::rsa("one", ONE);
    let world = World::new(&[&one], |settings| {
        let url = settings.issuer.replace("https://login.example".to_owned());
        settings.jwks_url = Some(format!("{}/keys", url.expect("one")));
    })
    .await;
    let claims = world.with("iss", json!("https://login.example"));
    world.accepts(&one.sign(&claims)).await;
}
