//! The processes' configuration, with a separate secret wherever it takes one.

use std::path::{Path, PathBuf};

use anyhow::Result;
use mainspring_benches::process::Program;
use mainspring_benches::servers::{Postgres, Redis};
use mainspring_tests::faults::{binary, blocking};

use super::outside::Outside;
use super::planted::Planted;

/// The database, and its user.
pub(super) const DATABASE: &str = "mainspring";
const USER: &str = "application";

/// How each process is started.
pub(super) struct Programs {
    /// A scheduler with its keys in the environment, which writes the journal.
    pub(super) scheduler: Program,
    /// A scheduler with its keys in files, and the machine's credentials for its bucket.
    pub(super) other_scheduler: Program,
    /// A worker.
    pub(super) worker: Program,
    /// A worker whose collector refuses it.
    pub(super) other_worker: Program,
    /// The root key of each scheduler.
    pub(super) root_keys: [String; 2],
}

type Pairs = Vec<(String, String)>;

fn pairs(all: &[(&str, &str)]) -> Pairs {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    all.iter().map(own).collect()
}

/// Makes both servers require passwords.
pub(super) fn guard(
    planted: &mut Planted,
    postgres: &Postgres,
    redis: &Redis,
) -> Result<(String, String)> {
    let password = planted.secret("the database's password", &[]);
    let secret = planted.secret("the password of Redis", &[]);
    blocking(|| {
        postgres.query(
            "postgres",
            &format!("CREATE ROLE {USER} LOGIN PASSWORD '{password}'"),
        )?;
        postgres.create_database(DATABASE)?;
        postgres.query(
            "postgres",
            &format!("ALTER DATABASE {DATABASE} OWNER TO {USER}"),
        )?;
        // Let the server itself write its file, because it may run as another user.
        let lines = format!(
            "host all {USER} 127.0.0.1/32 scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 trust"
        );
        postgres.query(
            "postgres",
            &format!("COPY (SELECT line FROM regexp_split_to_table('{lines}', E'\\n') line) TO PROGRAM 'cat > pg_hba.conf'"),
        )?;
        postgres.query("postgres", "SELECT pg_reload_conf()")?;
        let grant = format!(">{secret}");
        redis.command(&["ACL", "SETUSER", USER, "on", &grant, "~*", "&*", "+@all"])?;
        anyhow::Ok(())
    })?;
    let port = postgres.port();
    let database = format!("postgres://{USER}:{password}@127.0.0.1:{port}/{DATABASE}");
    let address = redis.url();
    let queue = address.replace("redis://", &format!("redis://{USER}:{secret}@"));
    Ok((database, queue))
}

/// The programs, whose configuration is a file in `folder`. Their output goes to `out`.
pub(super) fn programs(
    planted: &mut Planted,
    (database, queue): (&str, &str),
    outside: &Outside,
    (folder, out): (&Path, &Path),
    control: &str,
) -> Result<Programs> {
    let file = folder.join("mainspring.toml");
    let text = [
        models(planted, outside, control),
        services(planted, outside),
    ]
    .concat();
    std::fs::write(&file, text)?;
    for name in ["journal", "workspaces", "logs"] {
        std::fs::create_dir_all(out.join(name))?;
    }
    let common = common(planted, (database, queue), outside, (&file, out), control);
    let seals = format!(
        "{} {}",
        planted.sealing("what seals secrets"),
        planted.sealing("what sealed secrets before")
    );
    let root_keys = [
        planted.secret("the operator's key", &[]),
        planted.secret("the operator's key in a file", &[]),
    ];
    let in_files = [("root", &root_keys[1]), ("seals", &seals)];
    for (name, text) in in_files {
        std::fs::write(folder.join(name), format!("{text}\n"))?;
    }
    let program = |more: Pairs| -> Result<Program> {
        Ok(Program {
            binary: binary()?,
            logs: out.join("logs"),
            environment: [common.clone(), more].concat(),
        })
    };
    let bucket = planted.secret("the id of a bucket's key", &["outside/bucket"]);
    let bucket_secret = planted.secret("a bucket's key", &[]);
    let journal = out.join("journal/journal.jsonl").display().to_string();
    let scheduler = program(pairs(&[
        ("MAINSPRING_ROOT_KEY", &root_keys[0]),
        ("MAINSPRING_SECRETS_KEY", &seals),
        ("MAINSPRING_BLOBS_ACCESS_KEY_ID", &bucket),
        ("MAINSPRING_BLOBS_SECRET_ACCESS_KEY", &bucket_secret),
        ("MAINSPRING_TELEMETRY_JSONL_PATH", &journal),
        ("MAINSPRING_TELEMETRY_JSONL_INTERVAL", "50ms"),
    ]))?;
    let path = |name: &str| folder.join(name).display().to_string();
    let machine = planted.secret("the id of the machine's key", &["outside/bucket"]);
    let machine_secret = planted.secret("the machine's key", &[]);
    let machine_token = planted.secret("the machine's token", &["outside/bucket"]);
    let other_scheduler = program(pairs(&[
        ("MAINSPRING_ROOT_KEY_FILE", &path("root")),
        ("MAINSPRING_SECRETS_KEY_FILE", &path("seals")),
        ("AWS_ACCESS_KEY_ID", &machine),
        ("AWS_SECRET_ACCESS_KEY", &machine_secret),
        ("AWS_SESSION_TOKEN", &machine_token),
    ]))?;
    let worker_pairs = worker(planted, &seals);
    let worker = program(worker_pairs.clone())?;
    let refusing = planted.secret("a refusing collector's header", &["outside/refusing-otlp"]);
    let refused = pairs(&[
        (
            "MAINSPRING_OTLP_ENDPOINT",
            &format!("{}/refusing-otlp", outside.base),
        ),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            &format!("authorization=Bearer {refusing}"),
        ),
    ]);
    let other_worker = program([worker_pairs, refused].concat())?;
    Ok(Programs {
        scheduler,
        other_scheduler,
        worker,
        other_worker,
        root_keys,
    })
}

fn common(
    planted: &mut Planted,
    (database, queue): (&str, &str),
    outside: &Outside,
    (file, out): (&PathBuf, &Path),
    control: &str,
) -> Pairs {
    let collector = planted.secret("a collector's header", &["outside/otlp"]);
    let password = planted.secret("a password in a collector's URL", &[]);
    let endpoint = format!("http://somebody:{password}@{}/otlp", outside.authority());
    let proxy = planted.secret("a proxy's password", &["outside/proxy"]);
    let proxy = format!("http://somebody:{proxy}@{}", outside.authority());
    let named = planted.secret("a key in a variable of any name", &["outside/responses"]);
    let workspaces = out.join("workspaces").display().to_string();
    pairs(&[
        ("MAINSPRING_CONFIG", &file.display().to_string()),
        ("MAINSPRING_DATABASE_URL", database),
        ("MAINSPRING_REDIS_URL", queue),
        ("MAINSPRING_NAME", control),
        // Turn on everything that can be turned on.
        ("MAINSPRING_LOG", "trace"),
        ("MAINSPRING_LEASE_TTL", "2s"),
        ("MAINSPRING_SWEEP_INTERVAL", "250ms"),
        ("MAINSPRING_RETRY_ATTEMPTS_MAX", "2"),
        ("MAINSPRING_RETRY_BASE", "10ms"),
        ("MAINSPRING_RETRY_CAP", "20ms"),
        ("MAINSPRING_SCHEDULER_WEBHOOK_INTERVAL", "50ms"),
        ("MAINSPRING_TOOLS_WORKSPACE", &workspaces),
        ("MAINSPRING_OTLP_ENDPOINT", &endpoint),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            &format!("authorization=Bearer {collector}"),
        ),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("ANY_NAME", &named),
        ("HTTP_PROXY", &proxy),
        ("http_proxy", &proxy),
        ("NO_PROXY", "127.0.0.1"),
    ])
}

/// The environment of workers only.
fn worker(planted: &mut Planted, seals: &str) -> Pairs {
    let default = planted.secret("a model provider's key", &["outside/llm"]);
    let [openai, anthropic, power_loop] = [
        "OpenAI's usual variable",
        "Anthropic's usual variable",
        "another program's variable",
    ]
    .map(|name| planted.secret(name, &[]));
    let other = planted.secret("a variable for something else", &[]);
    pairs(&[
        ("MAINSPRING_SECRETS_KEY", seals),
        ("MAINSPRING_LLM_API_KEY", &default),
        ("OPENAI_API_KEY", &openai),
        ("ANTHROPIC_API_KEY", &anthropic),
        ("POWER_LOOP_API_KEY", &power_loop),
        ("SOMETHING_ELSE", &other),
    ])
}

/// The part of the file about models.
fn models(planted: &mut Planted, outside: &Outside, control: &str) -> String {
    let (base, host) = (&outside.base, outside.authority());
    let header = planted.secret("a model provider's header", &["outside/llm"]);
    let password = planted.secret("a password in a model provider's URL", &[]);
    let named = planted.secret("a named provider's key", &["outside/llm"]);
    let claude = planted.secret("Anthropic's key", &["outside/claude"]);
    let embed = planted.secret("an embedding model's key", &["outside/embed"]);
    let slow = planted.secret("a slow provider's key", &["outside/slow"]);
    let away = planted.secret("a key of a provider that is away", &[]);
    let away_password = planted.secret("a password in the URL of one that is away", &[]);
    let proxied = planted.secret("a key of a provider behind a proxy", &["outside/proxy"]);
    format!(
        r#"
[llm]
provider = "openai"
base_url = "http://somebody:{password}@{host}/llm/v1"
model = "{control}"
headers = {{ "x-of-the-provider" = "{header}" }}

[providers.{control}]
provider = "openai"
base_url = "{base}/llm/v1"
api_key = "{named}"

[providers.responses]
provider = "openai-responses"
base_url = "{base}/responses/v1"
api_key_env = "ANY_NAME"

[providers.claude]
provider = "anthropic"
base_url = "{base}/claude/v1"
api_key = "{claude}"

[providers.embed]
provider = "openai"
base_url = "{base}/embed/v1"
api_key = "{embed}"

[providers.slow]
provider = "openai"
base_url = "{base}/slow/v1"
api_key = "{slow}"
first_byte_timeout = "200ms"

[providers.away]
provider = "openai"
base_url = "http://somebody:{away_password}@127.0.0.1:1/v1"
api_key = "{away}"

[providers.proxied]
provider = "openai"
base_url = "http://proxied.invalid/v1"
api_key = "{proxied}"
"#
    )
}

/// The part of the file about everything else.
fn services(planted: &mut Planted, outside: &Outside) -> String {
    let (base, host) = (&outside.base, outside.authority());
    let signing = planted.signing("what signs requests", &[]);
    let signed = planted.signing("what signed requests before", &[]);
    let quoting = planted.secret("an MCP server's header", &["outside/mcp"]);
    let quoting_token = planted.secret("a token in an MCP server's URL", &["outside/mcp"]);
    let refusing = planted.secret("a refusing MCP server's header", &["outside/refusing-mcp"]);
    let variable = planted.secret("an MCP server's variable", &[]);
    let policy = planted.secret("a password in a policy's URL", &["outside/policy"]);
    let policy_token = planted.secret("a token in a policy's URL", &["outside/policy"]);
    let memory = planted.secret("a password in a memory's URL", &["outside/memory"]);
    let memory_token = planted.secret("a token in a memory's URL", &["outside/memory"]);
    let forgetful = planted.secret(
        "a token in a refusing memory's URL",
        &["outside/refusing-memory"],
    );
    let issuer = planted.secret("a token in an identity provider's URL", &["outside/oidc"]);
    format!(
        r#"
[telemetry]
content = true
otlp_metrics = true
metrics_interval = "200ms"

[blobs]
store = "s3"
bucket = "bucket"
endpoint = "{base}"

[scheduler]
webhook_allow_private = ["127.0.0.1"]

[tools]
shell = "local"
allow_private = ["127.0.0.1"]
signing_secret = "{signing} {signed}"

[hooks]
before_tool = ["http://somebody:{policy}@{host}/policy?token={policy_token}"]

[memory]
embeddings_model = "vectors"
embeddings_provider = "embed"

[memory.kept]
url = "http://somebody:{memory}@{host}/memory?token={memory_token}"

[memory.refusing]
url = "{base}/refusing-memory?token={forgetful}"

[mcp.quoting]
url = "{base}/mcp?token={quoting_token}"
headers = {{ authorization = "Bearer {quoting}" }}

[mcp.refusing]
url = "{base}/refusing-mcp"
headers = {{ authorization = "Bearer {refusing}" }}

[mcp.telling]
command = "sh"
args = ["-c", "echo not with $TOKEN >&2; exit 3"]
env = {{ TOKEN = "{variable}" }}

[oidc.login]
issuer = "{base}/oidc"
jwks_url = "{base}/oidc/keys?token={issuer}"
audience = ["mainspring"]
scopes = ["read", "send"]
"#
    )
}
