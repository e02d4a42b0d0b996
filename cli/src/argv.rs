//! Passwords among the arguments, which every user and every tool on the machine can read.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;

/// Flags whose value is a URL that may have a password.
const URLS: [&str; 2] = ["--database-url", "--redis-url"];

/// The variable that has the hidden value of an argument, by its place. No setting begins like it.
const HIDDEN: &str = "ARGUMENT_OF_MAINSPRING_";

/// What stands in the place of a hidden value.
const SHOWN: &str = "(hidden)";

/// The process's arguments, as they were given.
pub(crate) fn read() -> Vec<OsString> {
    let given = std::env::args_os().collect();
    revealed(given, |name| std::env::var_os(name))
}

/// Starts the program anew, in the same process, with passwords in its environment instead of its
/// arguments. Returns if there are none, or if that is not possible.
pub(crate) fn hide() -> io::Result<()> {
    let (shown, hidden) = hidden(std::env::args_os().collect());
    if hidden.is_empty() {
        return Ok(());
    }
    exec(&shown, &hidden)
}

#[cfg(unix)]
fn exec(shown: &[OsString], hidden: &BTreeMap<String, OsString>) -> io::Result<()> {
    use std::os::unix::process::CommandExt as _;

    let mut program = std::process::Command::new(std::env::current_exe()?);
    if let Some((name, arguments)) = shown.split_first() {
        program.arg0(name).args(arguments);
    }
    Err(program.envs(hidden).exec())
}

#[cfg(not(unix))]
fn exec(_: &[OsString], _: &BTreeMap<String, OsString>) -> io::Result<()> {
    Ok(())
}

/// Takes values that have a password out of the arguments; returns them by their variables.
fn hidden(mut arguments: Vec<OsString>) -> (Vec<OsString>, BTreeMap<String, OsString>) {
    let mut taken = BTreeMap::new();
    for place in 1..arguments.len() {
        let Some(text) = arguments[place].to_str() else {
            continue;
        };
        let after = arguments[place - 1].to_str();
        let (flag, value) = match text.split_once('=') {
            Some((flag, value)) if URLS.contains(&flag) => (Some(flag), value),
            _ if after.is_some_and(|flag| URLS.contains(&flag)) => (None, text),
            _ if is_source(&arguments[..place], text) => (None, text),
            _ => continue,
        };
        if !has_password(value) {
            continue;
        }
        let shown = flag.map_or_else(|| SHOWN.to_owned(), |flag| format!("{flag}={SHOWN}"));
        taken.insert(format!("{HIDDEN}{place}"), OsString::from(value));
        arguments[place] = shown.into();
    }
    (arguments, taken)
}

/// Whether an argument is the database that an import reads.
fn is_source(before: &[OsString], text: &str) -> bool {
    let imports = before.iter().skip(1).any(|argument| argument == "import");
    imports && text.starts_with("postgres") && text.contains("://")
}

/// Whether a URL may have a password: in its user information, or among its parameters.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.contains('@') || rest.contains('?')
}

/// Puts hidden values back.
fn revealed(
    mut arguments: Vec<OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<OsString> {
    for (place, argument) in arguments.iter_mut().enumerate() {
        let Some(flag) = argument.to_str().and_then(|text| text.strip_suffix(SHOWN)) else {
            continue;
        };
        if let Some(value) = variable(&format!("{HIDDEN}{place}")) {
            let mut whole = OsString::from(OsStr::new(flag));
            whole.push(value);
            *argument = whole;
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn passwords_are_taken_out_of_the_arguments_and_put_back() {
        let given = list(&[
            "mainspring",
            "serve",
            "--database-url",
            "postgres://u:secret@h/d",
            "--redis-url=redis://:secret@h",
            "--listen=127.0.0.1:1",
        ]);
        let (shown, taken) = hidden(given.clone());
        assert!(!format!("{shown:?}").contains("secret"), "{shown:?}");
        assert_eq!(taken.len(), 2);
        let back = revealed(shown.clone(), |name| taken.get(name).cloned());
        assert_eq!(back, given);
        let given = list(&[
            "mainspring",
            "import",
            "langgraph",
            "postgres://u:secret@h/d",
        ]);
        let (source, taken) = hidden(given.clone());
        assert_eq!(source[3], SHOWN);
        assert_eq!(revealed(source, |name| taken.get(name).cloned()), given);
        // The second start takes nothing out, and so does not start once more.
        assert_eq!(hidden(shown.clone()), (shown, BTreeMap::new()));
    }

    #[test]
    fn what_has_no_password_stays_where_it_is() {
        for given in [
            list(&["mainspring", "dev", "--database-url", "sqlite://x.db"]),
            list(&["mainspring", "send", "postgres://u:secret@h/d"]),
            list(&["mainspring", "--database-url"]),
        ] {
            assert_eq!(hidden(given.clone()), (given, BTreeMap::new()));
        }
    }
}
