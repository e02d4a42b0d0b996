//! Skills, on the command line.

use std::path::PathBuf;

use clap::Subcommand;

use super::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SkillsCommand {
    /// Publishes a skill: a folder with a SKILL.md, or a ZIP archive of one
    Add {
        /// The folder or archive
        path: PathBuf,
    },
    /// Lists skills by name; warns about mounted ones that were left out
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows a skill with its files and versions
    Show {
        /// The skill: NAME, or NAME@HASH for a version
        name: String,
    },
    /// Prints a file of a skill
    Read {
        /// The skill: NAME, or NAME@HASH for a version
        name: String,
        /// The path of the file in the skill
        #[arg(default_value = "SKILL.md")]
        path: String,
    },
    /// Removes a skill from the list; sessions keep the version that they have
    Remove {
        /// The skill
        name: String,
        /// Also deletes its versions and their files, even from sessions that have them
        #[arg(long)]
        versions: bool,
    },
    /// Checks folders without a server: prints every problem, exits with 1 if there are any
    Check {
        /// Folders of skills, or folders that contain such folders
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
    },
}
