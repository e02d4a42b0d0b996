//! Runs commands as arguments of a sandbox program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::backend::{Launch, PATH_DEFAULT, ShellBackend, ShellCommand};
use crate::settings::Template;

/// The placeholders of a template.
const PLACEHOLDERS: [&str; 5] = ["call", "command", "cwd", "session", "workspace"];

/// A validated template.
#[derive(Debug)]
pub(crate) struct Templated {
    run: Line,
    cleanup: Option<Line>,
    environment: BTreeMap<String, String>,
}

/// An existing program, and its arguments.
#[derive(Debug)]
struct Line {
    program: PathBuf,
    arguments: Vec<Vec<Piece>>,
}

/// A piece of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Plain(String),
    Placeholder(&'static str),
}

impl Templated {
    /// Validates a template, or returns what is wrong with it.
    pub(crate) fn new(
        template: &Template,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let path = environment.get("PATH").map_or(PATH_DEFAULT, String::as_str);
        let run = Line::parse(&template.argv, path)?;
        let command = Piece::Placeholder("command");
        let holders = || {
            run.arguments
                .iter()
                .filter(|pieces| pieces.contains(&command))
        };
        if holders().count() != 1 || holders().any(|pieces| pieces.len() != 1) {
            return Err("the template must have {command} once, as a whole argument".to_owned());
        }
        if !run.has("workspace") {
            return Err(
                "the template must have {workspace}: without it no file is seen".to_owned(),
            );
        }
        let cleanup = match template.cleanup.as_slice() {
            [] => None,
            argv => Some(Line::parse(argv, path)?),
        };
        if cleanup.as_ref().is_some_and(|line| line.has("command")) {
            return Err("the cleanup of the template has a {command}, and would run it".to_owned());
        }
        Ok(Self {
            run,
            cleanup,
            environment: environment.clone(),
        })
    }

    fn fill(&self, line: &Line, command: &ShellCommand<'_>) -> Launch {
        let mut environment = self.environment.clone();
        let path = environment.entry("PATH".to_owned());
        path.or_insert_with(|| PATH_DEFAULT.to_owned());
        Launch {
            program: line.program.clone(),
            arguments: line.arguments.iter().map(|a| filled(a, command)).collect(),
            environment: environment
                .into_iter()
                .map(|(name, value)| (name, value.into()))
                .collect(),
            directory: command.workspace.to_owned(),
        }
    }
}

impl ShellBackend for Templated {
    fn launch(&self, command: &ShellCommand<'_>) -> Result<Launch, String> {
        Ok(self.fill(&self.run, command))
    }

    fn cleanup(&self, command: &ShellCommand<'_>) -> Option<Launch> {
        let line = self.cleanup.as_ref()?;
        Some(self.fill(line, command))
    }
}

impl Line {
    fn parse(argv: &[String], path: &str) -> Result<Self, String> {
        let (program, arguments) = argv.split_first().ok_or("the template is empty")?;
        let arguments = arguments.iter().map(|argument| pieces(argument));
        Ok(Self {
            program: find(program, path)
                .ok_or_else(|| format!("{program} of the template is no program here"))?,
            arguments: arguments.collect::<Result<_, _>>()?,
        })
    }

    fn has(&self, placeholder: &str) -> bool {
        let mut pieces = self.arguments.iter().flatten();
        pieces.any(|piece| matches!(piece, Piece::Placeholder(name) if *name == placeholder))
    }
}

/// The pieces of an argument. Something that looks like a placeholder but is none is an error,
/// because the mistake would otherwise surface only when it matters.
fn pieces(argument: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = argument;
    while let Some((before, behind)) = rest.split_once('{') {
        plain.push_str(before);
        let name = behind.split_once('}').map(|(name, _)| name);
        let name = name.filter(|name| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        });
        let Some(name) = name else {
            plain.push('{');
            rest = behind;
            continue;
        };
        let known = PLACEHOLDERS.iter().find(|known| **known == name);
        let known =
            known.ok_or_else(|| format!("the template has {{{name}}}, which is unknown"))?;
        if !plain.is_empty() {
            pieces.push(Piece::Plain(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Placeholder(known));
        rest = &behind[name.len() + 1..];
    }
    plain.push_str(rest);
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Plain(plain));
    }
    Ok(pieces)
}

/// Fills one argument; the values stay within it, whatever they contain.
fn filled(pieces: &[Piece], command: &ShellCommand<'_>) -> OsString {
    let mut argument = OsString::new();
    for piece in pieces {
        match piece {
            Piece::Plain(text) => argument.push(text),
            Piece::Placeholder("call") => argument.push(command.call_id),
            Piece::Placeholder("command") => argument.push(command.command),
            Piece::Placeholder("cwd") => argument.push(command.cwd),
            Piece::Placeholder("session") => argument.push(command.session.session.to_string()),
            Piece::Placeholder(_) => argument.push(command.workspace),
        }
    }
    argument
}

/// Resolves a program name or path to an executable file.
pub(crate) fn find(program: &str, path: &str) -> Option<PathBuf> {
    let is_program = |file: &Path| {
        let kind = file.metadata();
        kind.is_ok_and(|kind| kind.is_file() && kind.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let file = Path::new(program);
        return (file.is_absolute() && is_program(file)).then(|| file.to_owned());
    }
    let dirs = std::env::split_paths(path);
    dirs.filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|file| is_program(file))
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SessionId, SessionKey, TenantId};
    use uuid::Uuid;

    use super::*;

    fn template(argv: &[&str]) -> Template {
        Template {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cleanup: Vec::new(),
        }
    }

    fn used(template: &Template) -> Result<Templated, String> {
        Templated::new(template, &BTreeMap::new())
    }

    fn command(text: &str) -> ShellCommand<'_> {
        ShellCommand {
            command: text,
            workspace: Path::new("/w/s"),
            cwd: Path::new("a b"),
            session: SessionKey {
                tenant: TenantId::DEFAULT,
                session: SessionId(Uuid::from_u128(1)),
            },
            call_id: "call_1",
        }
    }

    #[test]
    fn placeholders_are_filled_once_and_stay_within_their_argument() {
        let words = [
            "env",
            "-v={workspace}:/x",
            "{cwd}",
            "{call}",
            "-c",
            "{command}",
            "{{}}",
        ];
        let templated = used(&template(&words)).expect("is usable");
        let launch = templated.launch(&command("echo '{workspace}' \"$x\"; {call}"));
        let launch = launch.expect("launches");
        assert!(launch.program.is_absolute());
        assert_eq!(
            launch.arguments,
            [
                "-v=/w/s:/x",
                "a b",
                "call_1",
                "-c",
                "echo '{workspace}' \"$x\"; {call}",
                "{{}}"
            ]
        );
        let names: Vec<&String> = launch.environment.keys().collect();
        assert_eq!(names, ["PATH"]);
    }

    #[test]
    fn a_template_that_could_run_something_else_is_refused() {
        for (words, why) in [
            (&[][..], "is empty"),
            (
                &["no-such-program", "{workspace}", "{command}"],
                "is no program here",
            ),
            (
                &["bin/sh", "{workspace}", "{command}"],
                "is no program here",
            ),
            (
                &["/etc/passwd", "{workspace}", "{command}"],
                "is no program here",
            ),
            (&["sh", "{workspace}"], "must have {command} once"),
            (
                &["sh", "{workspace}", "x {command}"],
                "must have {command} once",
            ),
            (
                &["sh", "{workspace}", "{command}", "{command}"],
                "must have {command} once",
            ),
            (&["sh", "-c", "{command}"], "must have {workspace}"),
            (
                &["sh", "{workspace}", "{command}", "{home}"],
                "{home}, which is unknown",
            ),
        ] {
            let fault = used(&template(words)).expect_err("is refused");
            assert!(fault.contains(why), "{words:?}: {fault}");
        }
        let cleaning = Template {
            cleanup: vec!["sh".into(), "-c".into(), "{command}".into()],
            ..template(&["sh", "{workspace}", "{command}"])
        };
        assert!(used(&cleaning).expect_err("is refused").contains("cleanup"));
    }
}
