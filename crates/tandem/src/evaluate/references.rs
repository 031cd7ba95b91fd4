//! What Linux does in the cases, kept for the next evaluation.
//!
//! It depends on the suite and on this program alone. It is in the user's folder of caches (`XDG_CACHE_HOME`, or `~/.cache`), one
//! file for each split and seed, under a name that changes with the program. Where there is no such folder, or it cannot be
//! written, it is computed each time.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tandem_file::named_file::{TEXT_MAX, read_bytes};
use tandem_file::new_file::NewFile;
use tandem_lab::evaluate::Options;
use tandem_lab::evaluate::run::References;
use tandem_lab::evaluate::suite::{Case, Suite};

/// Those of the cases.
///
/// # Errors
/// By a mistake of the suite alone.
pub fn of(suite: Suite, options: Options, cases: &[Case]) -> Result<References, String> {
    let path = folder().zip(stamp()).map(|(folder, stamp)| {
        folder.join(format!("{stamp}-{}-{}-{}.json", suite.name(), options.split.name(), options.seed))
    });
    let kept = path.as_ref().and_then(|path| read_bytes(path, TEXT_MAX).ok());
    // Whatever is wrong with the file, its content can be had again.
    let mut references: References =
        kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    if references.complete(cases)?
        && let Some(path) = path
    {
        drop(keep(&path, &references));
    }
    Ok(references)
}

fn folder() -> Option<PathBuf> {
    let of_user = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = of_user("XDG_CACHE_HOME").or_else(|| Some(of_user("HOME")?.join(".cache")))?;
    Some(caches.join("tandem").join("evaluate"))
}

/// What tells this program from another build of it.
fn stamp() -> Option<String> {
    let program = fs::metadata("/proc/self/exe").ok()?;
    Some(format!("{:x}-{:x}-{:x}", program.len(), program.mtime(), program.mtime_nsec()))
}

fn keep(path: &Path, references: &References) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // Those of programs that are gone.
    let (stamp, old) = (stamp().unwrap_or_default(), fs::read_dir(folder)?.flatten());
    for file in old.filter(|file| !file.file_name().to_string_lossy().starts_with(&stamp)) {
        fs::remove_file(file.path())?;
    }
    let mut file = NewFile::create(path)?;
    file.write_all(&serde_json::to_vec(references)?)?;
    file.complete()
}
