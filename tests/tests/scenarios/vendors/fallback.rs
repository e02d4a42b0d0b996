//! One session with many vendors: by falling back, by wandering, and over the death of its worker.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::send::SendStatus;
use mainspring_tests::world::{FaultPlan, Faulty};
use mainspring_vendors::catalogue;
use serde_json::json;

use super::bench::Bench;

fn agent(model: &str, fallback: &[&str]) -> AgentSpec {
    let spec = json!({"model": model, "fallback": fallback, "system_prompt": "You wander.", "tools": ["look", "slow", "todo"]});
    serde_json::from_value(spec).unwrap()
}

/// Models that take tools, one of each vendor.
fn one_each(bench: &Bench) -> Vec<String> {
    let names = catalogue::names();
    names
        .iter()
        .map(|name| bench.models(name).remove(0))
        .collect()
}

/// The emulator that answers a model's requests with tools.
fn answering(model: &str) -> &str {
    match model.split('/').next().unwrap_or_default() {
        "openai-chat" => "openai-responses",
        name => name,
    }
}

fn assert_none(faults: &[String]) {
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[tokio::test]
async fn a_session_wanders_through_all_vendors_and_back() {
    let bench = Bench::of(&catalogue::names()).await;
    let worker = bench.worker();
    let models = one_each(&bench);
    let key = bench.world.session(agent(&models[0], &[])).await;
    let there = models.iter();
    let back = models.iter().rev().skip(1);
    let mut faults = Vec::new();
    for (step, model) in there.chain(back).enumerate() {
        let text = format!(
            "step {step} with {model}\n!think about step {step}\n!call look {{\"n\":{step}}}\n!call look {{\"step\":{step}}}\n!then\n!call look {{\"again\":{step}}}"
        );
        let options = SendOptions {
            model: Some(model.clone()),
            ..SendOptions::default()
        };
        let id = bench.world.send_with(key, &text, options).await;
        let record = bench.ended(id).await;
        if record.status != SendStatus::Completed {
            faults.push(format!("step {step} with {model}: {:?}", record.error));
        }
    }
    faults.extend(bench.breaches());
    worker.abort();
    assert_none(&faults);
}

#[tokio::test]
async fn a_session_falls_back_from_each_vendor_to_another_and_returns() {
    let bench = Bench::of(&catalogue::names()).await;
    let worker = bench.worker();
    let models = one_each(&bench);
    let bench = &bench;
    let pairs = models.iter().zip(models.iter().cycle().skip(1));
    // Both directions, and one pair further apart.
    let pairs = pairs.flat_map(|(one, other)| [(one, other), (other, one)]);
    // Tools of one go to the other by themselves.
    let pairs = pairs.filter(|(one, other)| answering(one) != answering(other));
    let played = pairs.map(|(one, other)| async move {
        let name = format!("from {one} to {other}");
        let gone = answering(one);
        let key = bench.world.session(agent(one, &[other])).await;
        let rounds = |n: usize| format!("!think of {n}\n!call look {{\"n\":{n},\"with\":\"{one}\"}}\n!call look {{\"m\":{n}}}");
        let texts = [
            format!("{name} first\n{}", rounds(1)),
            format!("{name} second\n!error gone 9 {gone}\n{}\n!then\n{}", rounds(2), rounds(3)),
            format!("{name} third\n{}", rounds(4)),
            format!("{name} fourth\n{}\n!then\n!error gone 9 {gone}\n{}", rounds(5), rounds(6)),
            format!("{name} last"),
        ];
        let mut faults = Vec::new();
        for text in texts {
            let id = bench.world.send(key, &text).await;
            let record = bench.ended(id).await;
            if record.status != SendStatus::Completed {
                faults.push(format!("{name}: {:?}", record.error));
            }
        }
        faults
    });
    let faults = futures::future::join_all(played).await;
    let mut faults: Vec<String> = faults.into_iter().flatten().collect();
    faults.extend(bench.breaches());
    worker.abort();
    assert_none(&faults);
}

#[tokio::test]
async fn sends_with_every_vendor_go_on_when_their_worker_dies() {
    let bench = Bench::of(&catalogue::names()).await;
    let store = Arc::new(Faulty::new(bench.world.store.clone(), FaultPlan::NEVER));
    let first = bench.worker_over(store.clone());
    let mut sends = Vec::new();
    for model in one_each(&bench) {
        let key = bench.world.session(agent(&model, &[])).await;
        let text = format!(
            "dying with {model}\n!think first\n!call look {{\"n\":1}}\n!then\n!call slow {{\"ms\":900}}\n!call look {{\"n\":2}}\n!then\n!call look {{\"n\":3}}"
        );
        sends.push((model, key, bench.world.send(key, &text).await));
    }
    bench.world.pass(Duration::from_millis(1_200)).await;
    store.kill();
    first.abort();
    let second = bench.worker();
    let mut faults = Vec::new();
    for (model, key, id) in sends {
        let record = bench.ended(id).await;
        let after = bench
            .world
            .send(key, &format!("after the death of {model}"))
            .await;
        let after = bench.ended(after).await;
        if record.status != SendStatus::Completed || after.status != SendStatus::Completed {
            faults.push(format!("{model}: {:?} {:?}", record.error, after.error));
        }
    }
    faults.extend(bench.breaches());
    second.abort();
    assert_none(&faults);
}
