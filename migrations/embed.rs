//! The build script of each store: compiles the migrations of its database into the crate.
//!
//! Writes `migrations.rs` into the output folder: a slice of `(version, title, sql)`, in order.

use std::path::Path;
use std::{env, fs, io};

#[expect(clippy::print_stdout, reason = "how a build script talks to cargo")]
fn main() -> io::Result<()> {
    let (_, database) = env!("CARGO_PKG_NAME")
        .rsplit_once('-')
        .ok_or_else(|| io::Error::other("a store is called after its database"))?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../migrations")
        .join(database);
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let parts = name
            .strip_suffix(".sql")
            .and_then(|stem| stem.split_once('_'));
        let version = parts.and_then(|(number, title)| Some((number.parse::<i64>().ok()?, title)));
        let Some((version, title)) = version else {
            let text = format!("{name} is not called NNNN_title.sql");
            return Err(io::Error::other(text));
        };
        names.push((version, title.replace('_', " "), folder.join(&name)));
    }
    names.sort();
    let lines = names.iter().map(|(version, title, path)| {
        let path = path.display();
        format!("    ({version}, {title:?}, include_str!(r#\"{path}\"#)),\n")
    });
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo runs this"))?;
    let list = format!("&[\n{}]\n", lines.collect::<String>());
    fs::write(Path::new(&out).join("migrations.rs"), list)
}
