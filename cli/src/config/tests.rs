mod providers;

use mainspring_runtime::{Environment, Problems, Secret, Sources};
use mainspring_shared::retry::Policy;

use super::*;

const MANUAL: &str = include_str!("../../config.default.toml");

fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment::from_pairs(
        pairs
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned())),
    )
}

fn load_with(
    file: Option<&str>,
    pairs: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<Config, Problems> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("mainspring.toml");
    if let Some(text) = file {
        std::fs::write(&path, text).expect("written");
    }
    let flags: Vec<_> = flags
        .iter()
        .map(|(path, value)| (*path, (*value).to_owned()))
        .collect();
    Config::load(&Sources {
        defaults: MANUAL,
        file: file.is_some().then_some(path.as_path()),
        environment: &environment(pairs),
        flags: &flags,
    })
}

fn load(pairs: &[(&str, &str)]) -> Config {
    load_with(None, pairs, &[]).expect("a good configuration")
}

fn problems(result: Result<Config, Problems>) -> Vec<(&'static str, String)> {
    let problems = result.expect_err("problems").0;
    problems
        .into_iter()
        .map(|problem| (problem.code, problem.detail))
        .collect()
}

#[test]
fn the_defaults_are_what_the_manual_says() {
    let config = load(&[]);
    assert_eq!(config.listen, "127.0.0.1:7464");
    assert_eq!(config.worker.concurrency, 256);
    assert_eq!(config.lease_ttl, Duration::from_secs(4));
    assert_eq!(config.scheduler.sweep_interval, Duration::from_millis(500));
    assert_eq!(config.retry.policy(), Policy::default());
    assert_eq!(config.llm.kind, ProviderKind::Demo);
}

#[test]
fn the_manual_says_the_defaults_of_every_component() {
    let mut config = load(&[]);
    // Not a default setting: it follows from having no provider.
    assert_eq!(config.llm.model.take().as_deref(), Some("demo"));
    let ours = Config {
        printed: config.printed.clone(),
        ..Config::default()
    };
    assert_eq!(config, ours);
}

#[test]
fn what_is_kept_ends_unless_it_is_to_be_forever() {
    let scheduler = load(&[]).scheduler;
    let ninety_days = Some(Duration::from_hours(90 * 24));
    assert_eq!(
        (scheduler.send_keep, scheduler.run_keep),
        (ninety_days, ninety_days)
    );
    assert_eq!(scheduler.session_keep, None);
    let asked = load(&[
        ("MAINSPRING_SCHEDULER_SEND_KEEP", "forever"),
        ("MAINSPRING_SCHEDULER_SESSION_KEEP", "365d"),
    ]);
    assert_eq!(asked.scheduler.send_keep, None);
    let year = Some(Duration::from_hours(365 * 24));
    assert_eq!(asked.scheduler.session_keep, year);
    let wrong = [("MAINSPRING_SCHEDULER_RUN_KEEP", "always")];
    let said = problems(load_with(None, &wrong, &[]));
    assert!(said[0].1.contains("or forever"), "{said:?}");
}

#[test]
fn the_manual_mentions_every_key() {
    let tables = MANUAL.matches("\n# [models.\"local/llama3\"]\n").count();
    assert_eq!(tables, 1, "an example of a table is a line of its own");
    let mut section = String::new();
    let mut mentioned = Vec::new();
    for line in MANUAL.lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = format!("{name}.");
        } else if let Some((name, _)) = line.split_once(" = ") {
            mentioned.push(format!("{section}{name}"));
        }
    }
    for key in keys().iter().filter(|key| !key.path.contains('*')) {
        assert!(
            mentioned.iter().any(|path| path == key.path),
            "{} is missing",
            key.path
        );
    }
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = Some("listen = \"file:1\"\nlog = \"debug\"\n[worker]\npool = \"slow\"\n");
    let env = [("MAINSPRING_LISTEN", "env:2"), ("MAINSPRING_LOG", "warn")];
    let config = load_with(file, &env, &[("listen", "flag:3")]).expect("good");
    assert_eq!(config.listen, "flag:3");
    assert_eq!(config.telemetry.log, "warn");
    assert_eq!(config.worker.pool, "slow");
    assert_eq!(config.worker.concurrency, 256);
}

#[test]
fn all_problems_are_reported_at_once_with_where_they_came_from() {
    let file = Some("lsten = \"x\"\nlease_ttl = 10\n[worker]\nconcurency = 3\n[nonsense]\na = 1\n");
    let env = [
        ("MAINSPRING_WORKER_CONCURRENCY", "many"),
        ("MAINSPRING_SWEEP_INTERVAL", "1"),
    ];
    let found = problems(load_with(file, &env, &[("log_format", "xml")]));
    let details: Vec<_> = found
        .iter()
        .map(|(code, detail)| format!("{code} {detail}"))
        .collect();
    insta::assert_snapshot!(details.join("\n"));
}

#[test]
fn a_file_that_is_not_toml_is_named_with_its_line_and_without_its_text() {
    let found = problems(load_with(
        Some("listen = \"a:1\"\napi_key = sk-secret\n"),
        &[],
        &[],
    ));
    assert_eq!(found[0].0, "config.unreadable");
    assert!(found[0].1.contains("line 2"), "{}", found[0].1);
    assert!(!found[0].1.contains("sk-secret"), "{}", found[0].1);
}

#[test]
fn a_missing_file_is_a_problem() {
    let result = Config::load(&Sources {
        defaults: MANUAL,
        file: Some(std::path::Path::new("/nowhere/mainspring.toml")),
        environment: &Environment::default(),
        flags: &[],
    });
    assert_eq!(problems(result)[0].0, "config.unreadable");
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let config = load(&[
        ("MAINSPRING_DATABASE_URL", ""),
        ("DATABASE_URL", "postgres://h/d"),
    ]);
    assert_eq!(config.backend(), Backend::Postgres);
}

#[test]
fn our_names_win_over_general_ones() {
    let config = load(&[
        ("DATABASE_URL", "sqlite://general"),
        ("MAINSPRING_DATABASE_URL", "postgres://h/ours"),
        ("REDIS_URL", "redis://general"),
    ]);
    assert_eq!(config.database_url, Some(Secret::new("postgres://h/ours")));
    assert_eq!(config.redis_url, Some(Secret::new("redis://general")));
}

#[test]
fn no_secret_is_ever_shown() {
    let file = Some(
        "[providers.other]\nprovider = \"anthropic\"\napi_key = \"sk-third\"\n\
         [providers.env]\nprovider = \"openai\"\napi_key_env = \"FOURTH\"\n\
         headers = { x-more = \"sk-fifth\" }\n",
    );
    let env = [
        (
            "MAINSPRING_DATABASE_URL",
            "postgres://me:sk-first@host:5432/name?password=sk-query",
        ),
        ("MAINSPRING_REDIS_URL", "rediss://:p@ss/sk-redis@host:6379"),
        ("MAINSPRING_LLM_API_KEY", "sk-second"),
        ("FOURTH", "sk-fourth"),
    ];
    let config = load_with(file, &env, &[]).expect("good");
    assert_eq!(
        config.providers["env"].api_key,
        Some(Secret::new("sk-fourth"))
    );
    assert_eq!(
        config.providers["env"].headers["x-more"],
        Secret::new("sk-fifth")
    );
    let shown = format!("{}\n{config:?}\n{:?}", config.print(), environment(&env));
    assert!(!shown.contains("sk-"), "{shown}");
    assert!(
        config
            .print()
            .contains("postgres://me:[hidden]@host:5432/name"),
        "{shown}"
    );
    let json = serde_json::to_string(&config.llm.api_key).expect("serializes");
    assert_eq!(json, "\"[hidden]\"");
}

#[test]
fn the_words_of_commands_and_what_is_added_to_requests_are_not_printed() {
    let file = Some(
        "[llm]\nprovider = \"demo\"\nrequest_extra = '{\"token\": \"sk-first\"}'\n\
         [mcp.docs]\ncommand = \"npx\"\nargs = [\"--token\", \"sk-second\"]\n\
         [tools]\nshell_template = [\"ssh\", \"sk-third\"]\n",
    );
    let config = load_with(file, &[], &[]).expect("good");
    assert_eq!(config.mcp["docs"].args, ["--token", "sk-second"]);
    let shown = config.print();
    assert!(!shown.contains("sk-"), "{shown}");
    assert!(
        shown.contains("args = [\"[hidden]\", \"[hidden]\"]"),
        "{shown}"
    );
}

#[test]
fn urls_in_a_list_are_shown_without_what_lets_someone_in() {
    let file = Some(
        "[hooks]\nbefore_tool = [\"https://me:sk-a@a.example/x?token=sk-b\", \"http://b.example\"]\n",
    );
    let config = load_with(file, &[], &[]).expect("good");
    let line =
        "before_tool = [\"https://me:[hidden]@a.example/x?token=[hidden]\", \"http://b.example\"]";
    assert!(config.print().contains(line), "{}", config.print());
    assert!(config.hooks.before_tool[0].contains("sk-a"));
    let wrong =
        load_with(Some("[hooks]\nbefore_tool = [\"sk-c\"]\n"), &[], &[]).expect_err("no URL");
    assert!(!format!("{wrong}{wrong:?}").contains("sk-c"), "{wrong}");
}

#[test]
fn a_wrong_value_is_never_repeated() {
    let found = problems(load_with(
        None,
        &[("MAINSPRING_DATABASE_URL", "sk-oops")],
        &[],
    ));
    assert_eq!(found[0].0, "config.invalid_value");
    assert!(!found[0].1.contains("sk-oops"), "{}", found[0].1);
}

#[test]
fn what_is_printed_is_a_configuration_again() {
    let config = load(&[
        ("MAINSPRING_LISTEN", "0.0.0.0:80"),
        ("MAINSPRING_LLM_PROVIDER", "demo"),
    ]);
    let again = load_with(Some(config.print()), &[], &[]).expect("good");
    assert_eq!(again.listen, config.listen);
    assert_eq!(again.llm, config.llm);
    assert_eq!(again.worker, config.worker);
}

#[test]
fn a_header_may_have_any_name() {
    let file = "[providers.a]\nprovider = \"demo\"\n\
                headers = { \"x.team\" = \"a\", \"x y\" = \"b\", x-z = \"c\" }\n";
    let config = load_with(Some(file), &[], &[]).expect("good");
    assert_eq!(config.providers["a"].headers["x.team"], Secret::new("a"));
    let again = load_with(Some(config.print()), &[], &[]).expect("good");
    let names = |config: &Config| {
        let headers = &config.providers["a"].headers;
        headers.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&again), names(&config));
}

#[test]
fn each_purpose_says_what_it_lacks() {
    let codes = |config: &Config, purpose| -> Vec<String> {
        let problems = config.validate(purpose).into_iter();
        problems
            .map(|problem| format!("{} {}", problem.code, problem.origin))
            .collect()
    };
    let bare = load(&[]);
    assert_eq!(codes(&bare, Purpose::Dev), [""; 0]);
    assert_eq!(
        codes(&bare, Purpose::Scheduler),
        ["config.missing database_url"]
    );
    let postgres = load(&[("DATABASE_URL", "postgres://h/d")]);
    assert_eq!(
        codes(&postgres, Purpose::Worker),
        ["config.missing redis_url", "config.missing llm"]
    );
    assert_eq!(codes(&postgres, Purpose::Serve), ["config.missing llm"]);
    let with = |name: &str, value: &str| {
        let mut pairs = vec![
            ("DATABASE_URL", "postgres://h/d"),
            ("REDIS_URL", "redis://h"),
        ];
        pairs.push((name, value));
        codes(&load(&pairs), Purpose::Worker)
    };
    assert_eq!(with("MAINSPRING_LLM_PROVIDER", "demo"), [""; 0]);
    assert_eq!(with("ANTHROPIC_API_KEY", "sk"), [""; 0]);
    let sqlite = load(&[
        ("DATABASE_URL", "sqlite://x"),
        ("REDIS_URL", "redis://h"),
        ("MAINSPRING_LLM_PROVIDER", "demo"),
    ]);
    assert_eq!(
        codes(&sqlite, Purpose::Worker),
        ["config.unsupported database_url"]
    );
    assert_eq!(codes(&sqlite, Purpose::Dev), [""; 0]);
    let in_schema = |url, name| {
        let set = [
            ("DATABASE_URL", url),
            ("MAINSPRING_LLM_PROVIDER", "demo"),
            ("MAINSPRING_DATABASE_SCHEMA", name),
        ];
        codes(&load(&set), Purpose::Serve)
    };
    assert_eq!(in_schema("postgres://h/d", "team_2"), [""; 0]);
    for name in ["Team", "2nd", "a-b", "pg_mine", "a\"; DROP SCHEMA b"] {
        let found = in_schema("postgres://h/d", name);
        assert_eq!(found, ["config.invalid_value database_schema"], "{name}");
    }
    assert_eq!(
        in_schema("mysql://h/d", "team"),
        ["config.unsupported database_schema"]
    );
    let mysql = load(&[
        ("DATABASE_URL", "mysql://h/d"),
        ("MAINSPRING_LLM_PROVIDER", "openai"),
        ("MAINSPRING_RETRY_BASE", "1h"),
    ]);
    assert_eq!(
        codes(&mysql, Purpose::Worker),
        [
            "config.missing redis_url",
            "config.invalid_value retry.base",
            "config.missing llm"
        ]
    );
}

#[test]
fn a_redis_prefix_has_no_character_that_divides_a_key() {
    let found = |prefix: &str| -> Vec<String> {
        let config = load(&[
            ("DATABASE_URL", "postgres://h/d"),
            ("REDIS_URL", "redis://h"),
            ("MAINSPRING_LLM_PROVIDER", "demo"),
            ("MAINSPRING_REDIS_PREFIX", prefix),
        ]);
        assert_eq!(config.redis_prefix, prefix);
        let problems = config.validate(Purpose::Worker).into_iter();
        problems
            .map(|problem| format!("{} {}", problem.code, problem.origin))
            .collect()
    };
    let longest = "x".repeat(64);
    for good in ["mainspring", "team-2", "a.b_C", longest.as_str()] {
        assert_eq!(found(good), [""; 0], "{good}");
    }
    let too_long = "x".repeat(65);
    for bad in ["a:b", "{a}", "a b", "é", too_long.as_str()] {
        assert_eq!(found(bad), ["config.invalid_value redis_prefix"], "{bad}");
    }
    assert_eq!(load(&[]).redis_prefix, "mainspring");
}

#[test]
fn a_log_filter_that_makes_no_sense_is_refused_when_it_is_read() {
    let refused = load_with(None, &[("MAINSPRING_LOG", "zz=[")], &[]);
    let found = refused.expect_err("a problem").0;
    let found: Vec<_> = found
        .iter()
        .map(|problem| (problem.code, problem.origin.as_str()))
        .collect();
    assert_eq!(found, [("config.invalid_value", "MAINSPRING_LOG")]);
    let told = problems(load_with(None, &[], &[("log", "mainspring=loud")]));
    assert!(told[0].1.contains("is not a filter"), "{told:?}");
    let filter = "warn,mainspring_worker=debug";
    assert_eq!(load(&[("MAINSPRING_LOG", filter)]).telemetry.log, filter);
}

#[test]
fn a_misspelt_variable_is_refused_with_what_was_meant() {
    let pairs = [
        ("MAINSPRING_WORKR_CONCURRENCY", "3"),
        ("MAINSPRING_NOTHING_LIKE_IT", "x"),
        ("MAINSPRING_CALL_ID", "call_x"),
    ];
    let found = load_with(None, &pairs, &[]).expect_err("two problems").0;
    let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "MAINSPRING_NOTHING_LIKE_IT: is not a variable of Mainspring [config.unknown_key]",
            "MAINSPRING_WORKR_CONCURRENCY: is not a variable of Mainspring; did you mean \
             MAINSPRING_WORKER_CONCURRENCY? [config.unknown_key]",
        ]
    );
}

#[test]
fn a_key_may_be_kept_in_a_variable_of_any_name() {
    let file = "[llm]\napi_key_env = \"MAINSPRING_MY_KEY\"\n";
    let config = load_with(Some(file), &[("MAINSPRING_MY_KEY", "sk")], &[]).expect("good");
    assert_eq!(config.llm.api_key, Some(Secret::new("sk")));
}

#[test]
fn a_bucket_needs_its_name_and_both_halves_of_a_key() {
    let s3 = ("MAINSPRING_BLOBS_STORE", "s3");
    let bucket = ("MAINSPRING_BLOBS_BUCKET", "agents");
    let id = ("MAINSPRING_BLOBS_ACCESS_KEY_ID", "AKIAEXAMPLE");
    let secret = ("MAINSPRING_BLOBS_SECRET_ACCESS_KEY", "very-secret");
    let lacking = |pairs: &[(&str, &str)]| {
        let problems = load(pairs).validate(Purpose::Dev);
        let ours = problems
            .into_iter()
            .filter(|it| it.origin.starts_with("blobs"));
        ours.map(|it| (it.code, it.origin)).collect::<Vec<_>>()
    };
    let missing = |origin: &str| vec![("config.missing", origin.to_owned())];
    assert_eq!(lacking(&[s3]), missing("blobs.bucket"));
    assert_eq!(lacking(&[s3, bucket, id]), missing("blobs.access_key_id"));
    assert_eq!(
        lacking(&[s3, bucket, secret]),
        missing("blobs.access_key_id")
    );
    assert_eq!(lacking(&[s3, bucket]), []);
    assert_eq!(lacking(&[id]), []);
    let config = load(&[s3, bucket, id, secret]);
    assert_eq!(config.validate(Purpose::Dev), []);
    let settings = config.blobs.s3().expect("has a bucket");
    assert_eq!(settings.secret_access_key.as_deref(), Some("very-secret"));
    let shown = format!("{} {config:?} {settings:?}", config.print());
    assert!(!shown.contains("very-secret"), "{shown}");
}
