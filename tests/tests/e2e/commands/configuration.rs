use crate::commands::program::{Ended, mainspring};

fn run(environment: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let mut command = mainspring();
    command.envs(environment.iter().copied()).args(arguments);
    command.output().expect("runs").into()
}

#[test]
fn every_problem_of_a_file_is_said_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mainspring.toml");
    std::fs::write(&file, "listn = \"x\"\n[worker]\nconcurrency = 0\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let ended = run(
        &[("MAINSPRING_LEASE_TTL", "soon")],
        &["worker", "--config", file],
    );
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    for part in [
        "did you mean listen?",
        "worker.concurrency takes",
        "MAINSPRING_LEASE_TTL",
    ] {
        assert!(
            ended.stderr.contains(part),
            "{part} is missing in {}",
            ended.stderr
        );
    }
}

#[test]
fn what_is_in_force_is_printed_without_secrets_and_with_its_origin() {
    let environment = [
        ("MAINSPRING_DATABASE_URL", "postgres://me:sk-one@host/db"),
        ("OPENAI_API_KEY", "sk-two"),
    ];
    let ended = run(
        &environment,
        &["worker", "--print-config", "--pool", "slow"],
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        !ended.stdout.contains("sk-") && !ended.stderr.contains("sk-"),
        "{}",
        ended.stdout
    );
    for part in [
        "database_url = \"postgres://me:[hidden]@host/db\"  # MAINSPRING_DATABASE_URL",
        "pool = \"slow\"  # --worker-pool",
        "lease_ttl = \"4s\"  # the defaults",
    ] {
        assert!(
            ended.stdout.contains(part),
            "{part} is missing in {}",
            ended.stdout
        );
    }
}

#[test]
fn a_role_says_what_it_lacks() {
    let sqlite = [
        ("MAINSPRING_DATABASE_URL", "sqlite://x"),
        ("REDIS_URL", "redis://h"),
    ];
    let postgres = [("DATABASE_URL", "postgres://h/d")];
    for (environment, role, part) in [
        (&[][..], "worker", "mainspring dev"),
        (&[][..], "scheduler", "--database-url"),
        (&sqlite[..], "scheduler", "mainspring serve"),
        (&postgres[..], "worker", "--redis-url"),
        (&postgres[..], "worker", "--provider demo"),
    ] {
        let ended = run(environment, &[role]);
        assert_eq!(ended.code, 2, "{role}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(part),
            "{part} is missing in {}",
            ended.stderr
        );
    }
}

#[test]
fn a_database_that_is_not_there_is_said_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("UTF-8");
    let audit = run(&[], &["audit", "--data-dir", folder]);
    assert_eq!(audit.code, 6, "{}", audit.stderr);
    assert!(
        audit.stderr.contains("store.schema_missing"),
        "{}",
        audit.stderr
    );
    let doctor = run(&[], &["doctor", "--data-dir", folder]);
    assert_eq!(doctor.code, 1);
    assert!(
        doctor.stdout.contains("problem  database"),
        "{}",
        doctor.stdout
    );
    assert!(
        doctor.stdout.contains("ok       configuration"),
        "{}",
        doctor.stdout
    );
}

#[test]
fn the_schema_can_be_printed_for_someone_with_more_rights() {
    for url in ["postgres://nowhere/x", "sqlite://nowhere"] {
        let ended = run(&[("DATABASE_URL", url)], &["migrate", "--print"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(
            ended.stdout.contains("CREATE TABLE sends"),
            "{}",
            ended.stdout
        );
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "fish", "zsh"] {
        let ended = run(&[], &["completions", shell]);
        assert_eq!(ended.code, 0);
        assert!(ended.stdout.contains("mainspring"), "{shell}");
    }
}

#[test]
fn each_command_has_a_man_page_and_hidden_ones_have_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("pages");
    let ended = run(&[], &["man", pages.to_str().expect("UTF-8")]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let page = |name: &str| std::fs::read_to_string(pages.join(name));
    let of_list = page("mainspring-sessions-list.1").expect("of a command of a command");
    assert!(
        of_list.contains("mainspring\\-sessions\\-list"),
        "{of_list}"
    );
    assert!(page("mainspring-run-tools.1").is_err());
    let whole = page("mainspring.1").expect("of the program");
    assert!(whole.contains("mainspring\\-dev(1)"), "{whole}");
    let file = run(&[], &["man", "/dev/null/pages"]);
    assert_eq!(file.code, 1);
    assert!(file.stderr.contains("/dev/null/pages"), "{}", file.stderr);
}

#[test]
fn a_misspelt_variable_is_refused_by_every_command() {
    for command in [&["--print-config"][..], &["workers"], &["dev"]] {
        let ended = run(&[("MAINSPRING_WORKR_CONCURRENCY", "3")], command);
        assert_eq!(ended.code, 2, "{command:?}: {}", ended.stderr);
        assert!(
            ended
                .stderr
                .contains("did you mean MAINSPRING_WORKER_CONCURRENCY?"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn the_manual_of_the_settings_comes_with_the_program_and_is_a_configuration() {
    let printed = run(&[], &["config", "default"]);
    assert_eq!(printed.code, 0);
    assert!(
        printed
            .stdout
            .contains("# Time to live of a process's lease"),
        "{}",
        printed.stdout
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mainspring.toml");
    std::fs::write(&file, &printed.stdout).expect("written");
    let file = file.to_str().expect("UTF-8");
    let ended = run(&[], &["--config", file, "--print-config"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn the_manual_is_printed_where_the_settings_are_broken() {
    let broken = [
        ("MAINSPRING_LEASE_TTL", "soon"),
        ("MAINSPRING_CONFIG", "/nowhere.toml"),
    ];
    let printed = run(&broken, &["config", "default"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert_eq!(
        printed.stdout,
        include_str!("../../../../cli/config.default.toml")
    );
    let told = run(&broken, &["workers"]);
    assert_eq!(told.code, 2, "{}", told.stdout);
    assert!(
        told.stderr.contains("`mainspring config default`")
            && !told.stderr.contains("--print-config"),
        "{}",
        told.stderr
    );
}

#[test]
fn a_folder_that_cannot_be_made_is_not_taken_for_a_database_that_is_away() {
    let ended = run(
        &[],
        &["dev", "--listen", "127.0.0.1:0", "--data-dir", "/proc/nope"],
    );
    assert_eq!(ended.code, 6);
    assert!(
        ended.stderr.contains("/proc/nope cannot be used") && ended.stderr.contains("--data-dir"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("running"), "{}", ended.stderr);
}

#[test]
fn a_provider_without_a_key_is_a_problem_everywhere() {
    let environment = [("MAINSPRING_LLM_PROVIDER", "openai")];
    let dev = run(&environment, &["dev"]);
    assert_eq!(dev.code, 2);
    for name in ["OPENAI_API_KEY", "MAINSPRING_LLM_API_KEY"] {
        assert!(dev.stderr.contains(name), "{name}: {}", dev.stderr);
    }
    let doctor = run(&environment, &["doctor"]);
    assert_eq!(doctor.code, 1);
    assert!(
        doctor.stdout.contains("problem  provider") && !doctor.stdout.contains("ok       provider"),
        "{}",
        doctor.stdout
    );
}

#[test]
fn the_doctor_starts_the_servers_of_tools() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mainspring.toml");
    std::fs::write(&file, "[mcp.gone]\ncommand = \"/nowhere/server\"\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let ended = run(&[], &["doctor", "--config", file]);
    assert_eq!(ended.code, 1);
    let line = ended.stdout.lines().find(|line| line.contains(" mcp "));
    let line = line.expect("a line about it");
    assert!(
        line.starts_with("problem") && line.contains("gone"),
        "{line}"
    );
}

#[test]
fn words_are_completed() {
    let bash = run(&[], &["completions", "bash"]).stdout;
    assert!(
        bash.contains("queued running waiting completed failed cancelled"),
        "no words of --status"
    );
}

#[test]
fn a_probe_prints_facts_to_paste() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("UTF-8");
    let doctor = run(
        &[],
        &[
            "doctor",
            "--data-dir",
            folder,
            "--probe",
            "--model",
            "demo/demo",
        ],
    );
    let found = doctor.stdout;
    assert!(found.contains("ok       provider"), "{found}");
    let facts = found.split_once("[models.\"demo/demo\"]\n");
    let (_, facts) = facts.unwrap_or_else(|| panic!("no facts in {found}"));
    assert!(facts.starts_with("input = ["), "{found}");
    let refused = run(&[], &["doctor", "--data-dir", folder, "--model", "demo"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
}

#[test]
fn a_bucket_that_is_away_is_found_without_its_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("UTF-8");
    let env = [
        ("MAINSPRING_BLOBS_STORE", "s3"),
        ("MAINSPRING_BLOBS_BUCKET", "agents"),
        ("MAINSPRING_BLOBS_ENDPOINT", "http://127.0.0.1:9"),
        ("MAINSPRING_BLOBS_ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("MAINSPRING_BLOBS_SECRET_ACCESS_KEY", "very-secret"),
    ];
    let doctor = run(&env, &["doctor", "--data-dir", folder]);
    assert_eq!(doctor.code, 1);
    for part in ["problem  blobs", "bucket agents of http://127.0.0.1:9"] {
        assert!(doctor.stdout.contains(part), "{}", doctor.stdout);
    }
    let said = format!("{} {}", doctor.stdout, doctor.stderr);
    assert!(!said.contains("very-secret"), "{said}");
    // Without a bucket, the configuration itself is faulty.
    let doctor = run(&env[..1], &["doctor", "--data-dir", folder]);
    assert!(
        doctor.stdout.contains("the store s3 needs a bucket"),
        "{}",
        doctor.stdout
    );
}
