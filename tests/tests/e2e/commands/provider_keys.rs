//! Tenants' own keys for model providers.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::commands::fake::{Fake, json as answer, problem};
use crate::commands::program::{Serving, ask, ask_with_input, json as shown};

const OPERATOR: &str = "sk-operator-0123456789";
const BLUE: &str = "sk-blue-team-0123456789-last";

/// A provider that accepts any key.
fn provider() -> Fake {
    Fake::choosing(|_| {
        let body = json!({
            "model": "m",
            "choices": [{
                "finish_reason": "stop",
                "message": { "role": "assistant", "content": "hello" },
            }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1 },
        });
        answer(200, "", &body.to_string())
    })
}

fn dev(folder: &Path, provider: &Fake) -> Serving {
    let config = folder.join("mainspring.toml");
    let text = format!(
        "[llm]\nprovider = \"openai\"\nbase_url = \"{}\"\napi_key = \"{OPERATOR}\"\nmodel = \"m\"\nstream = false\n",
        provider.url
    );
    fs::write(&config, text).expect("writes");
    let config = config.to_str().expect("UTF-8");
    Serving::dev(&folder.join("data"), &["--config", config])
}

/// The keys of the requests that the provider got, in order.
fn keys(provider: &Fake) -> Vec<String> {
    let asked = provider.asked();
    let keys = asked
        .iter()
        .filter_map(|asked| asked.header("authorization"));
    keys.map(|key| key.trim_start_matches("Bearer ").to_owned())
        .collect()
}

#[test]
fn a_tenants_calls_are_made_with_the_key_that_it_brings() {
    let folder = tempfile::tempdir().expect("a folder");
    let provider = provider();
    let dev = dev(folder.path(), &provider);
    let made = shown(&dev.url, &["tenants", "create", "blue"]);
    let blue = made["id"].as_str().expect("an id");
    let words = ["--tenant", blue, "provider-keys", "set", "openai"];
    let set = ask_with_input(&dev.url, &words, &format!("{BLUE}\n"));
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert!(
        set.stdout.contains("last") && !set.stdout.contains(BLUE),
        "{}",
        set.stdout
    );

    let said = ask(&dev.url, &["--tenant", blue, "send", "hi", "--wait"]);
    assert_eq!(
        (said.code, said.stdout.trim()),
        (0, "hello"),
        "{}",
        said.stderr
    );
    let said = ask(&dev.url, &["send", "hi", "--wait"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(keys(&provider), [BLUE, OPERATOR]);

    let listed = shown(&dev.url, &["--tenant", blue, "provider-keys", "list"]);
    assert_eq!(listed[0]["provider"], "openai");
    assert_eq!(shown(&dev.url, &["provider-keys", "list"]), json!([]));
    let gone = ask(
        &dev.url,
        &["--tenant", blue, "provider-keys", "delete", "openai"],
    );
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    let again = ask(
        &dev.url,
        &["--tenant", blue, "provider-keys", "delete", "openai"],
    );
    assert_eq!(again.code, 3, "{}", again.stderr);
    drop(dev);
    for file in fs::read_dir(folder.path().join("data")).expect("a folder") {
        let file = file.expect("an entry").path();
        let Ok(bytes) = fs::read(&file) else { continue };
        let has = |part: &[u8]| bytes.windows(part.len()).any(|at| at == part);
        assert!(!has(BLUE.as_bytes()), "{} has the key", file.display());
    }
}

#[test]
fn a_key_is_read_from_a_file_or_a_variable_and_never_repeated_in_an_error() {
    let refusing = Fake::answering([problem(422, "request.invalid")]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    fs::write(&file, BLUE).expect("writes");
    let file = file.to_str().expect("UTF-8");
    let refused = ask(
        &refusing.url,
        &["provider-keys", "set", "my provider", "--key-file", file],
    );
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(!refused.stderr.contains(BLUE), "{}", refused.stderr);
    let asked = refusing.asked().remove(0);
    assert_eq!(asked.line, "PUT /v1/provider-keys/my%20provider");
    assert_eq!(asked.body, json!({ "key": BLUE }).to_string());
    let missing = ask(
        &refusing.url,
        &["provider-keys", "set", "openai", "--key-env", "NO_SUCH"],
    );
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("--key-env"), "{}", missing.stderr);
}
