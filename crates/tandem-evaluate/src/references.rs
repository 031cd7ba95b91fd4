//! What Linux does in the cases, kept for the next evaluation.
//!
//! It depends on the suite and on this program alone. It is in the user's folder of caches (`XDG_CACHE_HOME`, or `~/.cache`), one
//! file for each split and seed, under a name that changes with the program. Where there is no such folder, it is another
//! user's, or it cannot be written, it is computed each time.

use crate::Own;
use rustix::process::geteuid;
use std::env;
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tandem_file::named_file::{TEXT_MAX, read_bytes};
use tandem_file::new_file::NewFile;
use tandem_lab::evaluate::Options;
use tandem_lab::evaluate::run::References;
use tandem_lab::evaluate::suite::{Case, Split, Suite};

/// How long files of other builds are kept, which may be in use.
const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);

/// Those of the cases.
///
/// # Errors
/// By a mistake of the suite alone.
pub fn of(suite: Suite, options: Options, cases: &[Case], own: &Own) -> Result<References, String> {
    let path = folder().zip(stamp(own)).map(|(folder, stamp)| {
        folder.join(format!("{stamp}-{}-{}-{}.json", suite.name(), options.split.name(), options.seed))
    });
    let kept = path.as_ref().filter(|path| is_own_file(path));
    let kept = kept.and_then(|path| read_bytes(path, TEXT_MAX).ok());
    // Whatever is wrong with the file, its content can be had again.
    let mut references: References =
        kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    if references.complete(cases)?
        && let Some(path) = path
    {
        drop(keep(&path, &references, own));
    }
    Ok(references)
}

fn folder() -> Option<PathBuf> {
    let of_user = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = of_user("XDG_CACHE_HOME").or_else(|| Some(of_user("HOME")?.join(".cache")))?;
    Some(caches.join("tandem").join("evaluate"))
}

/// What tells this program from another one, and from another build of it, also where all files have the same date.
fn stamp(own: &Own) -> Option<String> {
    let file = fs::metadata(&own.file).ok()?;
    Some(format!("{}-{:x}-{:x}-{:x}", own.name, file.len(), file.ctime(), file.ctime_nsec()))
}

/// Whether only this user can have written it.
fn is_own(about: &Metadata) -> bool {
    about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0
}

/// Whether it is a file of this user in a folder of this user, and neither is a link.
fn is_own_file(path: &Path) -> bool {
    let about = |path: &Path| fs::symlink_metadata(path).ok();
    let folder = path.parent().and_then(about);
    folder.is_some_and(|folder| folder.is_dir() && is_own(&folder))
        && about(path).is_some_and(|file| file.is_file() && is_own(&file))
}

fn keep(path: &Path, references: &References, own: &Own) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    if !about.is_dir() || !is_own(&about) {
        return Ok(());
    }
    for file in fs::read_dir(folder)?.flatten() {
        let is_old = |file: &fs::DirEntry| {
            let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
            Ok::<_, io::Error>(age > KEPT_FOR)
        };
        if is_name(&file.file_name().to_string_lossy(), own) && is_old(&file)? {
            fs::remove_file(file.path())?;
        }
    }
    let mut file = NewFile::create_for(path, 0o644)?;
    file.write_all(&serde_json::to_vec(references)?)?;
    file.complete()
}

/// Whether this program, or another build of it, has given that name.
fn is_name(name: &str, own: &Own) -> bool {
    let parts: Option<Vec<&str>> = name.strip_suffix(".json").map(|name| name.split('-').collect());
    let is_hex = |text: &str| u64::from_str_radix(text, 16).is_ok();
    matches!(parts.as_deref(), Some([program, len, s, ns, suite, split, seed])
        if *program == own.name
            && [len, s, ns].into_iter().all(|part| is_hex(part))
            && Suite::named(suite).is_ok()
            && Split::named(split).is_ok()
            && seed.parse::<u64>().is_ok())
}
