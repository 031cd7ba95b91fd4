//! Partial mode: the scheduler has only some of the machine's tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// The most cgroups that each list may name.
const NAMED_MAX: usize = 64;

/// Which tasks the scheduler has: all of them, unless cgroups are named here. The kernel's own scheduler has
/// the rest
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Partial {
    /// Cgroups whose tasks the scheduler has, nested cgroups included, such as "/machine.slice"; empty: all
    /// but the exceptions
    pub cgroups: Vec<PathBuf>,
    /// Cgroups whose tasks stay with the kernel's scheduler, nested cgroups included; of nested entries, the
    /// innermost decides
    pub except: Vec<PathBuf>,
}

impl Partial {
    /// Whether some tasks stay with the kernel's scheduler.
    pub fn is_on(&self) -> bool {
        !self.cgroups.is_empty() || !self.except.is_empty()
    }

    /// The topmost cgroups of each part that the scheduler has.
    pub fn beginnings(&self) -> impl Iterator<Item = &Path> {
        let all = (self.cgroups.is_empty() && self.is_on()).then_some(Path::new("/"));
        self.cgroups.iter().map(PathBuf::as_path).chain(all)
    }

    /// Whether the scheduler has the tasks of a cgroup.
    pub fn covers(&self, cgroup: &Path) -> bool {
        let begins = |at: &Path| self.beginnings().any(|beginning| beginning == at);
        let ends = |at: &Path| self.except.iter().any(|except| except == at);
        let nearest = cgroup.ancestors().find(|at| begins(at) || ends(at));
        !self.is_on() || nearest.is_some_and(begins)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let lists = [("cgroups", &self.cgroups), ("except", &self.except)];
        for (list, cgroups) in lists {
            for cgroup in cgroups {
                let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
                if !cgroup.is_absolute() || !cgroup.components().all(is_plain) {
                    return Err(format!(
                        "{list} of [partial] has {cgroup:?}; give its path in the hierarchy, such as \"/machine.slice\""
                    ));
                }
            }
            if cgroups.len() > NAMED_MAX {
                return Err(format!(
                    "{list} of [partial] has {} cgroups; at most {NAMED_MAX} are allowed",
                    cgroups.len()
                ));
            }
        }
        match self.except.iter().find(|cgroup| self.beginnings().any(|beginning| beginning == *cgroup)) {
            Some(cgroup) => Err(format!("[partial] has {cgroup:?} in both cgroups and except; keep one")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn partial(cgroups: &[&str], except: &[&str]) -> Partial {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Partial { cgroups: paths(cgroups), except: paths(except) }
    }

    #[test]
    fn the_inner_one_counts() {
        let of = |partial: &Partial, cgroup: &str| partial.covers(Path::new(cgroup));
        let none = partial(&[], &[]);
        assert!(!none.is_on() && of(&none, "/") && of(&none, "/a/b"));

        let some = partial(&["/a", "/a/b/c/"], &["/a/b"]);
        let covered = ["/a", "/a/x", "/a/b/c", "/a/b/c/d"];
        let others = ["/", "/x", "/ab", "/a/b", "/a/b/x"];
        assert!(covered.iter().all(|cgroup| of(&some, cgroup)), "{covered:?}");
        assert!(!others.iter().any(|cgroup| of(&some, cgroup)), "{others:?}");

        let all_but = partial(&[], &["/system.slice"]);
        assert!(of(&all_but, "/") && of(&all_but, "/machine.slice/a"));
        assert!(!of(&all_but, "/system.slice/a") && all_but.is_on());
    }

    #[test]
    fn paths_that_are_not_cgroups_are_refused() {
        for wrong in ["machine.slice", "", "/a/../b", "."] {
            let error = partial(&["/a"], &[wrong]).check().unwrap_err();
            assert!(error.starts_with("except of [partial] has"), "{error}");
        }
        assert!(partial(&["/a"], &["/a/"]).check().unwrap_err().contains("in both cgroups and except"));
        assert!(partial(&[], &["/"]).check().is_err(), "nothing is left");
        assert!(partial(&["/"; 65], &[]).check().unwrap_err().contains("65 cgroups; at most 64 are allowed"));
        assert_eq!(partial(&["/", "/a/b"], &["/a", "/a/b/c"]).check(), Ok(()));
    }

    proptest! {
        /// A second way to compute it: from the root down, each named cgroup turns it on or off.
        #[test]
        fn covers_what_a_walk_from_the_root_finds(
            cgroups in prop::collection::vec("(/[ab]){1,4}", 0..4),
            except in prop::collection::vec("(/[ab]){1,4}", 0..4),
            cgroup in "(/[ab]){1,5}",
        ) {
            let named = |list: &[String], at: &str| list.iter().any(|one| one == at);
            let except: Vec<String> = except.into_iter().filter(|one| !named(&cgroups, one)).collect();
            let is_on = !cgroups.is_empty() || !except.is_empty();
            let mut covered = cgroups.is_empty();
            let mut at = String::new();
            for part in cgroup.split('/').skip(1) {
                at = format!("{at}/{part}");
                covered = named(&cgroups, &at) || covered && !named(&except, &at);
            }
            let partial = Partial {
                cgroups: cgroups.iter().map(PathBuf::from).collect(),
                except: except.iter().map(PathBuf::from).collect(),
            };
            prop_assert_eq!(partial.check(), Ok(()));
            prop_assert_eq!(partial.covers(Path::new(&cgroup)), covered || !is_on);
        }
    }
}
