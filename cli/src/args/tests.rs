//! How command lines are parsed.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_help_page_is_known() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut pages = vec![command.render_help().to_string()];
    for sub in command
        .get_subcommands_mut()
        .filter(|sub| sub.get_name() != "help")
    {
        pages.push(sub.render_help().to_string());
    }
    insta::assert_snapshot!(pages.join("\n----\n"));
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    for line in [
        [
            "mainspring",
            "--server",
            "http://x",
            "-o",
            "json",
            "workers",
        ],
        [
            "mainspring",
            "workers",
            "-o",
            "json",
            "--server",
            "http://x",
        ],
    ] {
        let cli = Cli::try_parse_from(line).expect("parses");
        assert_eq!(cli.server.as_deref(), Some("http://x"));
        assert_eq!(cli.output, Format::Json);
    }
}

#[test]
fn workers_are_listed_with_and_without_the_word() {
    let command = |words: &[&str]| {
        let words = ["mainspring", "workers"].iter().chain(words);
        Cli::try_parse_from(words).expect("parses").command
    };
    assert!(matches!(
        command(&[]),
        Some(Command::Workers { command: None })
    ));
    assert!(matches!(
        command(&["list", "-o", "json"]),
        Some(Command::Workers {
            command: Some(WorkersCommand::List)
        })
    ));
    assert!(matches!(
        command(&["show", "w1"]),
        Some(Command::Workers { command: Some(WorkersCommand::Show { id }) }) if id == "w1"
    ));
}

#[test]
fn an_inbox_is_listed_or_a_call_in_it_is_answered() {
    let parse = |words: &[&str]| {
        let words = ["mainspring", "inbox"].iter().chain(words);
        Cli::try_parse_from(words).map(|cli| cli.command)
    };
    let listed = parse(&["--agent", "buyer", "--limit", "3", "--watch"]).expect("parses");
    assert!(matches!(
        listed,
        Some(Command::Inbox { command: None, list }) if list.watch && list.page.limit == 3
    ));
    let denied = parse(&["deny", "call_1", "--note", "no"]).expect("parses");
    assert!(matches!(
        denied,
        Some(Command::Inbox { command: Some(InboxCommand::Deny { call, note }), .. })
            if call == "call_1" && note == "no"
    ));
    for wrong in [
        &["answer", "call_1"][..],
        &["answer", "call_1", "yes", "--json", "1"],
        &["approve"],
        &["--watch", "approve", "call_1"],
    ] {
        parse(wrong).expect_err("a usage error");
    }
}

#[test]
fn a_view_is_repeated_within_bounds() {
    let interval = |words: &[&str]| {
        let words = ["mainspring", "top"].iter().chain(words);
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Some(Command::Top(args))) => Some(args.interval.0),
            _ => None,
        }
    };
    let seconds = std::time::Duration::from_secs;
    assert_eq!(interval(&[]), Some(seconds(2)));
    assert_eq!(
        interval(&["--interval", "30s", "--once"]),
        Some(seconds(30))
    );
    for wrong in ["499ms", "61m", "often"] {
        assert_eq!(interval(&["--interval", wrong]), None, "{wrong}");
    }
}

#[test]
fn a_text_behind_two_dashes_may_begin_with_a_dash() {
    for words in [
        &["-"][..],
        &["-5"],
        &["--", "-5 degrees"],
        &["--", "--wait, what?"],
        &["--", "--typo"],
    ] {
        let line = ["mainspring", "send"].iter().chain(words);
        let cli = Cli::try_parse_from(line).expect("parses");
        let text = words[words.len() - 1];
        assert!(
            matches!(cli.command, Some(Command::Send(args)) if args.text == text && !args.wait),
            "{words:?}"
        );
    }
    let run = ["mainspring", "run", "spec.json", "--input=--typo"];
    let cli = Cli::try_parse_from(run).expect("parses");
    let input = Some("--typo".to_owned());
    assert!(matches!(cli.command, Some(Command::Run(args)) if args.input == input));
}

#[test]
fn an_unknown_option_is_no_text() {
    for words in [
        &["send", "--typo"][..],
        &["send", "--wait", "--typo"],
        &["send", "--typo", "hello"],
        &["sends", "answer", "snd_1", "--typo"],
        &["run", "--typo"],
    ] {
        let line = ["mainspring"].iter().chain(words);
        let error = Cli::try_parse_from(line).expect_err("a usage error");
        assert_eq!(error.exit_code(), 2, "{words:?}");
        assert!(error.to_string().contains("'-- --typo'"), "{error}");
    }
    // Nor is a known option taken as another option's missing value.
    let line = ["mainspring", "run", "spec.json", "--input", "--detach"];
    let error = Cli::try_parse_from(line).expect_err("a usage error");
    assert_eq!(error.exit_code(), 2);
    for words in [&["chat", "--typo"][..], &["workers", "--typo"]] {
        let line = ["mainspring"].iter().chain(words);
        let error = Cli::try_parse_from(line).expect_err("a usage error");
        assert_eq!(error.exit_code(), 2, "{words:?}");
    }
}
