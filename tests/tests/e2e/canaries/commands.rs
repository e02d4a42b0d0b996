//! Output of commands: about the configuration and its faults, and about a server's answers.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use mainspring_benches::process::Program;
use mainspring_tests::faults::blocking;

use super::planted::Planted;

/// Runs commands with a program's configuration, and records their output.
pub(super) struct Shell<'a> {
    pub(super) program: &'a Program,
    pub(super) out: &'a Path,
}

/// Number of commands so far, which names the files their output is written to.
static COMMANDS: AtomicUsize = AtomicUsize::new(0);

impl Shell<'_> {
    /// Runs a command with more variables; returns its exit code and output.
    pub(super) fn run(
        &self,
        arguments: &[&str],
        more: &[(&str, &str)],
        input: &str,
    ) -> Result<(i32, String)> {
        blocking(|| self.run_here(arguments, more, input))
    }

    /// Runs a command once for each of these variables, concurrently, since most of the time they
    /// wait for something that is away. None may succeed.
    fn fail(&self, arguments: &[&str], faults: &[(&str, String)]) -> Result<()> {
        let run = |(name, value): &(&str, String)| {
            let (code, said) = self.run_here(arguments, &[(name, value)], "")?;
            ensure!(code != 0, "{arguments:?} with {name}: {said:.2000}");
            anyhow::Ok(())
        };
        blocking(|| {
            std::thread::scope(|scope| {
                let running: Vec<_> = faults
                    .iter()
                    .map(|fault| scope.spawn(move || run(fault)))
                    .collect();
                let ends = running.into_iter().map(|it| it.join().expect("no panic"));
                ends.collect()
            })
        })
    }

    fn run_here(
        &self,
        arguments: &[&str],
        more: &[(&str, &str)],
        input: &str,
    ) -> Result<(i32, String)> {
        let folder = self.out.join("commands");
        std::fs::create_dir_all(&folder)?;
        let mut program = self.program.clone();
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        program.environment.extend(more.iter().map(own));
        let (code, out, err) = program.run_with_input(arguments, input)?;
        let said = format!("{arguments:?}: {code}\n{out}{err}");
        let n = COMMANDS.fetch_add(1, Ordering::Relaxed);
        std::fs::write(folder.join(format!("{n}-{}", arguments[0])), &said)?;
        Ok((code, said))
    }
}

/// Records the output for a working configuration.
pub(super) fn shown(shell: &Shell<'_>) -> Result<()> {
    for arguments in [
        &["--print-config", "worker"][..],
        &["doctor"],
        &["doctor", "-o", "json"],
        &["tools"],
    ] {
        shell.run(arguments, &[], "")?;
    }
    let (code, said) = shell.run(&["config", "default"], &[], "")?;
    ensure!(code == 0, "{said}");
    let (code, said) = shell.run(&["audit"], &[], "")?;
    ensure!(code == 0, "{said}");
    Ok(())
}

/// Records the output for configurations with a wrong or misplaced secret.
pub(super) fn refused(shell: &Shell<'_>, planted: &mut Planted, folder: &Path) -> Result<()> {
    let wrong = planted.secret("a wrong password of the database", &[]);
    let mysql = planted.secret("a password of a database that is away", &[]);
    let query = planted.secret("a password in the query of a database's URL", &[]);
    let redis = planted.secret("a wrong password of Redis", &[]);
    let port = |name: &str| {
        let set = value(shell.program, name);
        let (_, rest) = set.rsplit_once('@').unwrap_or_default();
        rest.to_owned()
    };
    let (database, queue) = (
        port("MAINSPRING_DATABASE_URL"),
        port("MAINSPRING_REDIS_URL"),
    );
    let urls = [
        (
            "MAINSPRING_DATABASE_URL",
            format!("postgres://application:{wrong}@{database}"),
        ),
        (
            "MAINSPRING_DATABASE_URL",
            format!("postgres://nobody:{wrong}@{database}"),
        ),
        (
            "MAINSPRING_DATABASE_URL",
            format!("mysql://root:{mysql}@127.0.0.1:1/x"),
        ),
        (
            "MAINSPRING_DATABASE_URL",
            format!("postgres://a@127.0.0.1:1/x?password={query}"),
        ),
        (
            "MAINSPRING_DATABASE_URL",
            format!("postgres://a:{wrong}@127.0.0.1:port/x"),
        ),
        (
            "MAINSPRING_DATABASE_URL",
            format!("oracle://a:{wrong}@127.0.0.1/x"),
        ),
        ("MAINSPRING_DATABASE_URL", wrong.clone()),
        (
            "MAINSPRING_REDIS_URL",
            format!("redis://application:{redis}@{queue}"),
        ),
        (
            "MAINSPRING_REDIS_URL",
            format!("redis://:{redis}@127.0.0.1:1"),
        ),
        (
            "MAINSPRING_REDIS_URL",
            format!("redis://:{redis}@127.0.0.1:port"),
        ),
        (
            "MAINSPRING_REDIS_URL",
            format!("rediss://:{redis}@127.0.0.1:1"),
        ),
        ("MAINSPRING_REDIS_URL", redis.clone()),
    ];
    shell.fail(&["doctor"], &urls)?;
    variables(shell, planted)?;
    files(shell, planted, folder)
}

/// The value of a program's environment variable.
fn value(program: &Program, name: &str) -> String {
    let mut set = program.environment.iter().rev();
    let found = set.find(|(variable, _)| variable == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

fn variables(shell: &Shell<'_>, planted: &mut Planted) -> Result<()> {
    let unknown = planted.secret("the value of an unknown variable", &[]);
    let number = planted.secret("a key where a number belongs", &[]);
    let seal = planted.secret("a key that seals nothing", &[]);
    let signing = planted.secret("a signing secret that is none", &[]);
    let header = planted.secret("a key that no header can hold", &[]);
    let bucket = planted.secret("a bucket's key without an id", &[]);
    let endpoint = planted.secret("a password in a bucket's URL", &[]);
    let collector = planted.secret("a header of a collector that is away", &[]);
    let root = planted.secret("a key of an operator who has another in a file", &[]);
    let name = planted.secret("a key that is taken for a variable's name", &[]);
    let address = planted.secret("a key where an address belongs", &[]);
    let faults = [
        ("MAINSPRING_OPENAI_KEY", unknown),
        ("MAINSPRING_WORKER_CONCURRENCY", number.clone()),
        ("MAINSPRING_LEASE_TTL", number.clone()),
        ("MAINSPRING_LLM_PROVIDER", number),
        ("MAINSPRING_SECRETS_KEY", seal),
        (
            "MAINSPRING_TOOLS_SIGNING_SECRET",
            format!("whsec_!{signing}"),
        ),
        ("MAINSPRING_LLM_API_KEY", format!("{header}\u{7f}x")),
        ("MAINSPRING_BLOBS_SECRET_ACCESS_KEY", bucket),
        ("MAINSPRING_LLM_API_KEY_ENV", name),
        ("MAINSPRING_LISTEN", address),
    ];
    shell.fail(&["doctor"], &faults)?;
    for (name, value) in &faults {
        shell.run(&["--print-config", "worker"], &[(name, value)], "")?;
    }
    let twice = [
        ("MAINSPRING_ROOT_KEY", root.as_str()),
        ("MAINSPRING_ROOT_KEY_FILE", "/nowhere"),
    ];
    let (code, said) = shell.run(&["scheduler"], &twice, "")?;
    ensure!(code != 0, "{said}");
    let endpoint = format!("http://somebody:{endpoint}@127.0.0.1:1");
    let header = format!("authorization=Bearer {collector}");
    let away = [
        ("MAINSPRING_BLOBS_ENDPOINT", endpoint.as_str()),
        ("MAINSPRING_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", &header),
    ];
    shell.run(&["doctor"], &away, "")?;
    Ok(())
}

fn files(shell: &Shell<'_>, planted: &mut Planted, folder: &Path) -> Result<()> {
    let broken = planted.secret("a key in a line that is no TOML", &[]);
    let unknown = planted.secret("a key under an unknown name", &[]);
    let nested = planted.secret("a key in a table of its own", &[]);
    let hooked = planted.secret("a password in a policy's URL that is wrong", &[]);
    let faults = [
        format!("[llm]\napi_key = \"{broken}\n"),
        format!("[llm]\napi_key = {broken}\n"),
        format!("api-key = \"{unknown}\"\n"),
        format!("[llm]\napikey = \"{unknown}\"\n"),
        format!("[llm.api_key]\nvalue = \"{nested}\"\n"),
        format!("[mcp.a]\nurl = \"https://a.example\"\nheaders = \"{nested}\"\n"),
        format!("[providers.a]\napi_key = \"{nested}\"\n"),
        format!("[hooks]\nbefore_tool = \"http://a:{hooked}@b.example\"\n"),
    ];
    let file = folder.join("wrong.toml");
    for text in faults {
        std::fs::write(&file, &text)?;
        let path = file.display().to_string();
        let (code, said) = shell.run(&["worker", "--config", &path], &[], "")?;
        ensure!(code == 2, "{text}: {said}");
    }
    Ok(())
}

/// Records the output of client commands, with good keys and bad ones.
pub(super) fn clients(
    shell: &Shell<'_>,
    planted: &mut Planted,
    (server, key, session): (&str, &str, &str),
) -> Result<()> {
    let set = [("MAINSPRING_SERVER", server), ("MAINSPRING_API_KEY", key)];
    for arguments in [
        &["sends", "list"][..],
        &["sessions", "list"],
        &["sessions", "show", session],
        &["keys", "list"],
        &["tenants", "list"],
        &["provider-keys", "list"],
        &["webhooks", "list"],
        &["workers"],
        &["queue"],
        &["--tenant", "ten_2", "webhooks", "list", "-o", "json"],
        &["export"],
        &["--tenant", "ten_2", "export"],
    ] {
        let (code, said) = shell.run(arguments, &set, "")?;
        ensure!(code == 0, "{said:.2000}");
    }
    let brought = planted.secret("a key for a model provider from a variable", &[]);
    let piped = planted.secret("a key for a model provider from a pipe", &[]);
    let more = [set.as_slice(), &[("BROUGHT", brought.as_str())]].concat();
    let arguments = ["provider-keys", "set", "claude", "--key-env", "BROUGHT"];
    let (code, said) = shell.run(&arguments, &more, "")?;
    ensure!(code == 0, "{said}");
    let (code, said) = shell.run(&["provider-keys", "set", "embed"], &set, &piped)?;
    ensure!(code == 0, "{said}");
    let wrong = planted.secret("a client's wrong key", &[]);
    let password = planted.secret("a password in the server's URL", &[]);
    let wrong = format!("msk_{wrong}");
    let away = format!("http://somebody:{password}@127.0.0.1:1");
    let there = server.replace("http://", &format!("http://somebody:{password}@"));
    let faults = [
        [
            ("MAINSPRING_SERVER", server),
            ("MAINSPRING_API_KEY", &wrong),
        ],
        [("MAINSPRING_SERVER", &away), ("MAINSPRING_API_KEY", key)],
        [
            ("MAINSPRING_SERVER", &there),
            ("MAINSPRING_API_KEY", &wrong),
        ],
    ];
    for set in &faults {
        for format in ["table", "json"] {
            let (code, said) = shell.run(&["sends", "list", "-o", format], set, "")?;
            ensure!(code != 0, "{said}");
        }
    }
    Ok(())
}
