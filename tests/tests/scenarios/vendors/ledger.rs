//! What we say that calls cost against what the vendors counted.

use std::collections::BTreeMap;

use mainspring_shared::usage::Usage;
use mainspring_vendors::catalogue;
use mainspring_vendors::ledger::Entry;
use mainspring_vendors::memory::digest;
use serde_json::json;

use super::bench::Bench;

/// What the emulators counted for the conversation that began with a text.
fn counted(bench: &Bench, first: &str) -> Entry {
    let conversation = digest(&[first])[..12].to_owned();
    let rows = bench
        .laboratory
        .emulators()
        .flat_map(|emulator| emulator.ledger());
    let mut sum = Entry::default();
    for row in rows.filter(|row| row.conversation == conversation) {
        sum.answers += row.entry.answers;
        sum.prompt += row.entry.prompt;
        sum.cached += row.entry.cached;
        sum.written += row.entry.written;
        sum.output += row.entry.output;
        sum.thinking += row.entry.thinking;
        sum.pico_dollars += row.entry.pico_dollars;
    }
    sum
}

fn differences(ours: &Usage, theirs: &Entry, thinking_is_told: bool) -> Vec<String> {
    let mut numbers = vec![
        ("input", ours.input_tokens, theirs.prompt),
        ("output", ours.output_tokens, theirs.output),
        ("cached", ours.cache_read_tokens, theirs.cached),
        ("written", ours.cache_write_tokens, theirs.written),
    ];
    if thinking_is_told {
        numbers.push(("thinking", ours.reasoning_tokens, theirs.thinking));
    }
    let pico = ours
        .cost_usd
        .map_or(0, |dollars| (dollars * 1e12).round() as u64);
    numbers.push((
        "millionths of millionths of dollars",
        pico,
        theirs.pico_dollars as u64,
    ));
    numbers
        .into_iter()
        .filter(|(_, ours, theirs)| ours != theirs)
        .map(|(what, ours, theirs)| format!("{what}: {ours} here, {theirs} there"))
        .collect()
}

#[tokio::test]
async fn tokens_and_money_are_what_the_vendors_counted_with_retries_cuts_and_fallbacks() {
    let names = catalogue::names();
    let bench = Bench::of(&names).await;
    let worker = bench.worker();
    let bench = &bench;
    // Each vendor's session falls back to the same vendor's like, so that its ledger is the session's.
    let played = names.iter().map(|name| async move {
        let model = bench.models(name).remove(0);
        let spec = json!({"model": model, "fallback": [model], "system_prompt": "You count. ".repeat(60), "tools": ["look"]});
        let key = bench.world.session(serde_json::from_value(spec).unwrap()).await;
        let texts = [
            "!think a while\n!call look {\"n\":1}\n!call look {\"n\":2}\n!then\n!call look {\"n\":3}",
            "!error throttle 2\n!call look {\"n\":4}\n!then\n!error server 1\n!say served",
            "!say the first half\n!len\n!then\n!say and the second",
            "thanks",
        ];
        let mut sum = Usage::default();
        let texts = texts.map(|text| format!("counted with {model}\n{text}"));
        for text in &texts {
            let id = bench.world.send(key, text).await;
            sum.add(&bench.ended(id).await.usage);
        }
        ((*name).to_owned(), (sum, counted(bench, &texts[0])))
    });
    let ours: BTreeMap<String, (Usage, Entry)> = futures::future::join_all(played)
        .await
        .into_iter()
        .collect();
    let mut faults = Vec::new();
    for (name, (ours, theirs)) in &ours {
        if theirs.answers == 0 {
            faults.push(format!("{name} did not answer"));
            continue;
        }
        let emulator = bench.laboratory.emulator(name).unwrap();
        let chat = emulator.rules().protocol == mainspring_vendors::rules::Protocol::Chat;
        let told = !chat || emulator.rules().usage.thinking.is_some();
        let told =
            told && emulator.rules().protocol != mainspring_vendors::rules::Protocol::Messages;
        for difference in differences(ours, theirs, told) {
            faults.push(format!("{name}: {difference}"));
        }
    }
    worker.abort();
    assert!(
        faults.is_empty(),
        "{} differences:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
