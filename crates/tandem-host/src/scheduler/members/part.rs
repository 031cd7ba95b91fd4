//! The threads of a part, as its cgroups list them.

use crate::cgroups::{CgroupError, CgroupWalk, DEPTH_MAX, Hierarchy, is_gone};
use crate::tasks::Tid;
use crate::untrusted::Untrusted;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use tandem_settings::Partial;

/// The threads of all cgroups of a part. The iterator reads lists and directories as it advances, so the
/// caller may pause at any time, however many threads there are; each cgroup that it enters is an item
/// without a thread. An error, which is safe to display, is about a cgroup that cannot be read, and does not
/// end the iteration.
#[derive(Debug)]
pub struct PartThreads {
    partial: Partial,
    hierarchy: Hierarchy,
    /// The beginnings of the part that are still to be visited.
    beginnings: Vec<PathBuf>,
    walk: Option<CgroupWalk>,
    list: Option<(PathBuf, Lines<BufReader<File>>)>,
}

impl PartThreads {
    /// Begins with the first cgroup.
    ///
    /// # Errors
    /// If no unified hierarchy is mounted.
    pub fn begin(root: &Path, partial: &Partial) -> Result<Self, CgroupError> {
        let is_outermost = |at: &&Path| at.parent().is_none_or(|around| !partial.covers(around));
        let beginnings = partial.beginnings().filter(is_outermost).map(Path::to_owned).collect();
        let hierarchy = Hierarchy::find(root)?;
        Ok(Self { partial: partial.clone(), hierarchy, beginnings, walk: None, list: None })
    }

    /// Enters the next cgroup, if there is one.
    fn enter(&mut self) -> Option<Result<(), String>> {
        let entry = loop {
            match &mut self.walk {
                None => {
                    self.walk = Some(CgroupWalk::begin(&self.hierarchy.directory(&self.beginnings.pop()?)))
                }
                Some(walk) => match walk.next() {
                    Some(Ok(entry)) => break entry,
                    Some(Err(error)) => return Some(Err(shown(&error.to_string()))),
                    None => self.walk = None,
                },
            }
        };
        let cgroup = self.hierarchy.path_of(entry.path());
        if !self.partial.covers(&cgroup) {
            self.walk.as_mut()?.skip_inner();
            return Some(Ok(()));
        }
        if entry.depth() > DEPTH_MAX {
            return Some(Err(shown(&format!("{}: more than {DEPTH_MAX} levels down", cgroup.display()))));
        }
        match File::open(entry.path().join("cgroup.threads")) {
            Ok(list) => self.list = Some((cgroup, BufReader::new(list).lines())),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Some(Err(shown(&format!("{}: {error}", cgroup.display())))),
        }
        Some(Ok(()))
    }
}

impl Iterator for PartThreads {
    type Item = Result<Option<Tid>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some((cgroup, lines)) = &mut self.list else {
            return self.enter().map(|entered| entered.map(|()| None));
        };
        match lines.next() {
            // A task that has just ended, or is of another namespace, has the number 0.
            Some(Ok(line)) => Some(Ok(line.parse().ok())),
            Some(Err(error)) if !is_gone(&error) => {
                let hidden = shown(&format!("{}: {error}", cgroup.display()));
                self.list = None;
                Some(Err(hidden))
            }
            Some(Err(_)) | None => {
                self.list = None;
                Some(Ok(None))
            }
        }
    }
}

/// The owner of a cgroup chooses its name.
fn shown(text: &str) -> String {
    Untrusted::new(text).shown()
}
