//! Generated clients: generated from the server's own description, compiled, and used; and the reference clients of other
//! APIs and protocols and the frameworks above them, unmodified, which use the server as if it were their own. Examples of
//! the documents about those are run, too.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::imports;
use crate::own_clients;
use crate::packages::{binary, installed, needed, python_environment, target};
use crate::process::run;
use crate::server::{self, Server};
use crate::tools;

/// Pinned, because another version finds other faults.
const PYTHON: [&str; 2] = ["openapi-python-client==0.29.1", "standardwebhooks==1.1.0"];
const NODE: [&str; 5] = [
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "typescript@5.9.3",
    "@types/node@20",
    "standardwebhooks@1.1.1",
];

/// OpenAI's clients, and the newest of them that runs on the Node above.
const OPENAI_PYTHON: [&str; 1] = ["openai==3.54.0"];
const OPENAI_NODE: [&str; 1] = ["openai@6.49.0"];

/// Frameworks that speak to OpenAI's API, with an example of each.
const FRAMEWORKS_PYTHON: [&str; 4] = [
    "openai-agents==0.24.0",
    "langchain-openai==1.7.4",
    "pydantic-ai-slim[openai]==2.68.0",
    "litellm==1.110.2",
];
const FRAMEWORKS_NODE: [&str; 3] = ["ai@6.0.325", "@ai-sdk/openai@3.0.141", "zod@4.6.7"];

/// The examples, which are all that a user sees of it.
const EXAMPLES: &str = "examples/openai";
const EXAMPLES_PYTHON: [&str; 4] = [
    "agents_sdk.py",
    "langchain_chat.py",
    "pydantic_agent.py",
    "litellm_client.py",
];
const EXAMPLE_NODE: &str = "ai_sdk.mjs";

/// The reference clients of the other protocols, with the programs that use them.
const FACES_PYTHON: [&str; 2] = ["mcp==2.3.0", "a2a-sdk==1.3.0"];
const FACES_NODE: [&str; 4] = [
    "@modelcontextprotocol/sdk@1.32.2",
    "@ag-ui/core@1.0.0",
    "@ag-ui/client@1.0.0",
    "zod@4",
];
const FACES_PROGRAMS: [&str; 4] = ["as_mcp.py", "as_a2a.py", "as_mcp.mjs", "as_ag_ui.mjs"];

/// The documents whose examples are run.
const FACES_DOCUMENTS: [&str; 3] = ["MCP_SERVER", "A2A", "AG_UI"];

/// Where the examples of documents find a server.
const DOCUMENTED: &str = "http://127.0.0.1:7464";

/// The programs for each client: one that uses it, and one that receives webhooks and verifies them
/// with the standard's own library.
const PROGRAMS: [&str; 2] = ["use", "webhooks"];

/// The module that the TypeScript programs import.
const SHARED: &str = "server.ts";

/// Generates a Python and a TypeScript client for a freshly built server, and runs the programs
/// with each; then checks the project's own clients. Fails if a generator or a library cannot be installed.
pub(crate) fn check() -> anyhow::Result<()> {
    let binary = binary()?;
    let work = target()?.join("clients");
    std::fs::create_dir_all(&work)?;
    let python = python(&work)?;
    let node = node(&work)?;
    let server = serve(&binary)?;
    let description = work.join("openapi.json");
    fetch(&format!("{}/openapi.json", server.url), &description)?;
    check_python(&python, &work, &description, &server.url)?;
    check_typescript(&node, &description, &server.url)?;
    check_openai(&work, &server.url)?;
    check_frameworks(&work, &server.url)?;
    check_faces(&work, &server.url)?;
    imports::check(&work, python.join("bin/python"), &binary, &server.url)?;
    drop(server);
    check_deaths(&work, &binary)?;
    own_clients::check(&work, &binary)
}

/// Runs the example of each framework. All that they are told is where the API is.
fn check_frameworks(work: &Path, server: &str) -> anyhow::Result<()> {
    let settings = [
        ("OPENAI_BASE_URL", format!("{server}/v1")),
        ("OPENAI_API_KEY", "sk-no-key-is-needed".to_owned()),
        // They would tell their makers of what they do.
        ("OPENAI_AGENTS_DISABLE_TRACING", "1".to_owned()),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True".to_owned()),
    ];
    let python = installed(work, "frameworks-python", &FRAMEWORKS_PYTHON, |folder| {
        python_environment(folder, &FRAMEWORKS_PYTHON)
    })?;
    for name in EXAMPLES_PYTHON {
        let mut program = Command::new(python.join("bin/python"));
        program.envs(settings.clone());
        run(program.arg(Path::new(EXAMPLES).join(name)))?;
    }
    let node = installed(work, "frameworks-node", &FRAMEWORKS_NODE, |folder| {
        npm_project(folder, &FRAMEWORKS_NODE)
    })?;
    std::fs::copy(
        Path::new(EXAMPLES).join(EXAMPLE_NODE),
        node.join(EXAMPLE_NODE),
    )?;
    let mut program = Command::new("node");
    program.current_dir(node).envs(settings);
    run(program.arg(EXAMPLE_NODE))
}

/// Runs the programs of the other protocols' clients, and the examples of the documents about them.
fn check_faces(work: &Path, server: &str) -> anyhow::Result<()> {
    let python = installed(work, "faces-python", &FACES_PYTHON, |folder| {
        python_environment(folder, &FACES_PYTHON)
    })?;
    let node = installed(work, "faces-node", &FACES_NODE, |folder| {
        npm_project(folder, &FACES_NODE)
    })?;
    for name in FACES_PROGRAMS {
        let source = Path::new("tests/clients").join(name);
        if source.extension().is_some_and(|kind| kind == "py") {
            let mut program = Command::new(python.join("bin/python"));
            run(program.arg(source).arg(server))?;
        } else {
            std::fs::copy(source, node.join(name))?;
            let mut program = Command::new("node");
            run(program.current_dir(&node).args([name, server]))?;
        }
    }
    for name in FACES_DOCUMENTS {
        let text = std::fs::read_to_string(format!("docs/{name}.md"))?;
        let script = examples(&text).replace(DOCUMENTED, server);
        run(Command::new("bash").args(["-euc", &script]))
            .with_context(|| format!("the examples of docs/{name}.md"))?;
    }
    Ok(())
}

/// The shell examples of a document, one after another.
fn examples(text: &str) -> String {
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    blocks.collect()
}

/// Plays one list of calls with both of OpenAI's clients.
fn check_openai(work: &Path, server: &str) -> anyhow::Result<()> {
    for mut program in with_openai(work, "as_openai")? {
        run(program.arg(server))?;
    }
    Ok(())
}

/// A program in Python and in JavaScript, each with OpenAI's client.
fn with_openai(work: &Path, name: &str) -> anyhow::Result<[Command; 2]> {
    let python = installed(work, "openai-python", &OPENAI_PYTHON, |folder| {
        python_environment(folder, &OPENAI_PYTHON)
    })?;
    let node = installed(work, "openai-node", &OPENAI_NODE, |folder| {
        npm_project(folder, &OPENAI_NODE)
    })?;
    let script = format!("{name}.mjs");
    for name in [script.as_str(), "openai.json"] {
        std::fs::copy(Path::new("tests/clients").join(name), node.join(name))?;
    }
    let mut in_python = Command::new(python.join("bin/python"));
    in_python.arg(format!("tests/clients/{name}.py"));
    let mut in_node = Command::new("node");
    in_node.current_dir(node).arg(script);
    Ok([in_python, in_node])
}

/// Kills the scheduler and the worker while a client reads an answer.
fn check_deaths(work: &Path, binary: &Path) -> anyhow::Result<()> {
    for mut program in with_openai(work, "outlive")? {
        let data = tempfile::tempdir()?;
        let port = tools::free_port()?;
        let mut server = serve_at(binary, data.path(), port, "-KILL")?;
        program.arg(&server.url).stdout(Stdio::piped());
        let mut reader = program.spawn()?;
        let said = reader.stdout.take().context("its output")?;
        if BufReader::new(said).lines().next().transpose()?.is_some() {
            drop(server);
            server = serve_at(binary, data.path(), port, "-KILL")?;
        }
        let status = reader.wait()?;
        anyhow::ensure!(status.success(), "{program:?} ended with {status}");
        drop(server);
    }
    Ok(())
}

/// A Node project with these packages.
fn npm_project(folder: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let npm = needed("npm", &["nodejs", "npm"])?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("package.json"), "{\"type\":\"module\"}\n")?;
    let install = ["install", "--no-audit", "--no-fund", "--silent"];
    let mut command = Command::new(npm);
    run(command.args(install).args(packages).current_dir(folder))
}

/// The folder of a Python environment with the generator.
fn python(work: &Path) -> anyhow::Result<PathBuf> {
    installed(work, "python", &PYTHON, |folder| {
        python_environment(folder, &PYTHON)
    })
}

/// The folder of a Node project with the generator and the compiler.
fn node(work: &Path) -> anyhow::Result<PathBuf> {
    installed(work, "typescript", &NODE, |folder| {
        npm_project(folder, &NODE)
    })
}

/// Starts a local server with the `demo` model, which requires no key.
pub(crate) fn serve(binary: &Path) -> anyhow::Result<Server> {
    let data = tempfile::tempdir()?;
    let mut server = serve_at(binary, data.path(), tools::free_port()?, "-TERM")?;
    server.keep(data);
    Ok(server)
}

/// Starts such a server with its data in this folder, which is ended by this signal.
fn serve_at(binary: &Path, data: &Path, port: u16, signal: &'static str) -> anyhow::Result<Server> {
    let folder = tempfile::tempdir()?;
    let url = format!("http://127.0.0.1:{port}");
    let mut command = server::command(None, signal.trim_start_matches('-'), binary);
    command
        .args([
            "dev",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--data-dir",
        ])
        .arg(data)
        .args(["--provider", "demo"]);
    // The programs do not expect the settings of the user who runs this.
    for name in tools::settings() {
        command.env_remove(name);
    }
    // The programs' endpoints are on this machine, and wait for each message.
    command
        .env("MAINSPRING_SCHEDULER_WEBHOOK_ALLOW_PRIVATE", "127.0.0.1")
        .env("MAINSPRING_SCHEDULER_WEBHOOK_INTERVAL", "50ms")
        .env("MAINSPRING_MEMORY_EMBEDDINGS_MODEL", "demo");
    let is_up = {
        let url = format!("{url}/readyz");
        move || fetch(&url, Path::new("/dev/null")).is_ok()
    };
    Server::start("mainspring", url, folder, signal, command, is_up)
}

/// Downloads a local URL to a file.
fn fetch(url: &str, file: &Path) -> anyhow::Result<()> {
    use std::io::{Read, Write};

    let rest = url.strip_prefix("http://").context("an address")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    let mut stream = std::net::TcpStream::connect(host)?;
    write!(stream, "GET /{path} HTTP/1.0\r\nhost: {host}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.context("a head")?;
    if !answer.starts_with(b"HTTP/1.0 200") && !answer.starts_with(b"HTTP/1.1 200") {
        bail!("{url}: {}", String::from_utf8_lossy(&answer[..end]));
    }
    std::fs::write(file, &answer[end + 4..])?;
    Ok(())
}

fn check_python(
    python: &Path,
    work: &Path,
    description: &Path,
    server: &str,
) -> anyhow::Result<()> {
    let made = work.join("mainspring_client");
    let config = work.join("python.yaml");
    // No post-processing, which would need further programs; archives are treated as bytes.
    let settings = "package_name_override: mainspring_client\n\
        project_name_override: mainspring_client\n\
        post_hooks: []\n\
        content_type_overrides:\n  application/x-ndjson: application/octet-stream\n  \
        application/zip: application/octet-stream\n";
    std::fs::write(&config, settings)?;
    let mut generator = Command::new(python.join("bin/openapi-python-client"));
    generator.args([
        "generate",
        "--meta",
        "none",
        "--overwrite",
        "--fail-on-warning",
    ]);
    generator.arg("--path").arg(description);
    generator.arg("--config").arg(&config);
    run(generator.arg("--output-path").arg(&made))?;
    for name in PROGRAMS {
        let mut program = Command::new(python.join("bin/python"));
        program.env("PYTHONPATH", work);
        run(program.arg(format!("tests/clients/{name}.py")).arg(server))?;
    }
    Ok(())
}

fn check_typescript(node: &Path, description: &Path, server: &str) -> anyhow::Result<()> {
    let bin = node.join("node_modules/.bin");
    let mut generator = Command::new(bin.join("openapi-typescript"));
    run(generator
        .arg(description)
        .arg("-o")
        .arg(node.join("schema.d.ts")))?;
    let sources = PROGRAMS.map(|name| format!("{name}.ts"));
    for source in sources.iter().map(String::as_str).chain([SHARED]) {
        std::fs::copy(Path::new("tests/clients").join(source), node.join(source))?;
    }
    let mut compiler = Command::new(bin.join("tsc"));
    compiler.current_dir(node).args([
        "--strict",
        "--noUncheckedIndexedAccess",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
        "--skipLibCheck",
    ]);
    run(compiler.args(sources))?;
    for name in PROGRAMS {
        let mut program = Command::new("node");
        program.current_dir(node).arg(format!("{name}.js"));
        run(program.arg(server))?;
    }
    Ok(())
}
