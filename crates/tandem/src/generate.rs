//! `tandem generate`: what packages install beside the command, made from what the command knows of itself.
//!
//! It is not in the help: it is for packagers, and `scripts/stage` calls it. `tandem(1)` is written by
//! hand, and is in `packaging`.

mod manual;
mod settings;

use anyhow::Context;
use clap::Command;
use clap_complete::{Shell, generate_to};
use std::fs;
use std::path::{Path, PathBuf};
use tandemd::error::BadInput;

/// Arguments of `tandem generate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  tandem generate --date 2026-01-31 target/generated")]
pub struct Args {
    /// The folder for man/, completions/ and tandem.toml; it is made
    folder: PathBuf,
    /// The date of the manual pages
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: String,
}

/// Writes the files.
pub fn run(args: &Args, command: Command) -> anyhow::Result<()> {
    let mut command = visible(&command);
    command.build();

    let pages = folder(&args.folder, "man")?;
    for page in manual::pages_of_verbs(&command, &args.date)? {
        write(&pages.join(page.file), &page.text)?;
    }
    let page = manual::page_of_settings(&args.date);
    write(&pages.join(page.file), &page.text)?;

    let completions = folder(&args.folder, "completions")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "tandem", &completions)
            .with_context(|| completions.display().to_string())?;
    }
    write(&args.folder.join("tandem.toml"), settings::file().as_bytes())
}

/// The command without hidden verbs, which completions would show, and without `help`, which needs no page.
fn visible(command: &Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("tandem")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .disable_help_subcommand(true)
        .subcommands(verbs)
}

fn folder(parent: &Path, name: &str) -> Result<PathBuf, BadInput> {
    let folder = parent.join(name);
    fs::create_dir_all(&folder).map_err(|error| BadInput::new(format!("{}: {error}", folder.display())))?;
    Ok(folder)
}

fn write(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| file.display().to_string())
}
