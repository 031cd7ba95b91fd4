//! Matches an operator's rules with VMs.

use crate::vms::{Manager, Vm};
use std::path::Path;
use tandem_settings::{ManagerName, VmRule};
use wildmatch::WildMatch;

/// Whether a rule applies to this VM, which is in that cgroup.
pub fn fits(rule: &VmRule, vm: &Vm, cgroup: Option<&Path>) -> bool {
    let matches = |pattern: &str, text: &str| WildMatch::new(pattern).matches(text);
    let is_there = |wanted: &String| {
        cgroup
            .and_then(Path::to_str)
            .is_some_and(|path| matches(wanted.trim_start_matches('/'), path.trim_start_matches('/')))
    };
    matches(&rule.name, &vm.name)
        && (rule.user.is_none() || rule.user_number() == Some(vm.user))
        && rule.cgroup.as_ref().is_none_or(is_there)
        && rule
            .uuid
            .as_ref()
            .is_none_or(|uuid| vm.uuid.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(uuid)))
        && rule.manager.is_none_or(|manager| manager == name_of(&vm.manager))
}

fn name_of(manager: &Manager) -> ManagerName {
    match manager {
        Manager::None => ManagerName::None,
        Manager::Libvirt => ManagerName::Libvirt,
        Manager::Proxmox { .. } => ManagerName::Proxmox,
        Manager::Lxd { .. } => ManagerName::Lxd,
        Manager::Incus { .. } => ManagerName::Incus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vms::examine;
    use crate::vms::testing::{Process, Tree};

    fn rule(name: &str) -> VmRule {
        VmRule { name: name.into(), ..VmRule::default() }
    }

    fn vm(name: &str) -> Vm {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        tree.process(&Process::libvirt(7, name, 1));
        examine(tree.root(), 7).unwrap()
    }

    #[test]
    fn names_may_have_wildcards() {
        let cases = [("db", "db", true), ("db", "db1", false), ("db*", "db1", true), ("db?", "db12", false)];
        for (pattern, name, fitting) in cases {
            assert_eq!(fits(&rule(pattern), &vm(name), None), fitting, "{pattern} {name}");
        }
    }

    #[test]
    fn all_conditions_of_a_rule_must_match() {
        let vm = vm("web");
        let cgroup = Path::new("/machine.slice/web.scope");
        let all = VmRule {
            user: Some("root".into()),
            cgroup: Some("machine.slice/*".into()),
            manager: Some(ManagerName::Libvirt),
            ..rule("w*")
        };
        assert!(fits(&all, &vm, Some(cgroup)));
        let others = [
            VmRule { user: Some("1000".into()), ..all.clone() },
            VmRule { cgroup: Some("/user.slice/*".into()), ..all.clone() },
            VmRule { uuid: Some("4dea22b3-1d52-d8f3-2516-782e98ab3fa0".into()), ..all.clone() },
            VmRule { manager: Some(ManagerName::None), ..all.clone() },
            VmRule { name: "db".into(), ..all.clone() },
        ];
        assert!(others.iter().all(|rule| !fits(rule, &vm, Some(cgroup))));
        assert!(!fits(&all, &vm, None));
    }

    #[test]
    fn a_uuid_may_be_written_in_either_case() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        let mut process = Process::libvirt(7, "web", 1);
        process.arguments.extend(["-uuid".to_owned(), "4dea22b3-1d52-d8f3-2516-782e98ab3fa0".to_owned()]);
        tree.process(&process);
        let vm = examine(tree.root(), 7).unwrap();
        let with = |uuid: &str| fits(&VmRule { uuid: Some(uuid.into()), ..rule("*") }, &vm, None);
        assert!(with("4DEA22B3-1D52-D8F3-2516-782E98AB3FA0"));
        assert!(!with("4dea22b3-1d52-d8f3-2516-782e98ab3fa1"));
    }
}
