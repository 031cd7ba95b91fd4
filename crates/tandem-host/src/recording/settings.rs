//! What the kernel's scheduler is set to.

use super::census::read;
use super::tracefs::KernelFiles;
use crate::scheduler::RunningKernel;
use std::path::Path;
use tandem_recording::Scheduler;

/// Reads the settings; those in debugfs are unknown to all but root.
pub fn read_settings(root: &Path) -> Scheduler {
    let debug = KernelFiles::find(root, "debugfs").ok();
    let debug = |file: &str| read(&debug.as_ref()?.folder().join("sched").join(file));
    let file = |path: &str| read(&root.join(path)).map(|text| text.trim().to_owned());
    // Named `min_granularity_ns` before Linux 6.7.
    let slice = debug("base_slice_ns").or_else(|| debug("min_granularity_ns"));
    let features = debug("features").unwrap_or_default();
    let state = RunningKernel::new(root).state();
    Scheduler {
        sched_ext: state.ok().filter(|state| state.is_enabled()).and_then(|state| state.scheduler),
        base_slice_ns: slice.and_then(|text| text.trim().parse().ok()),
        features: features.split_whitespace().map(str::to_owned).collect(),
        autogroup: file("proc/sys/kernel/sched_autogroup_enabled").map(|text| text != "0"),
        preemption: debug("preempt")
            .and_then(|text| chosen(&text))
            .or_else(|| built_in(&file("proc/version")?)),
        hz: hz(root),
        isolated_cpus: file("sys/devices/system/cpu/isolated").unwrap_or_default(),
    }
}

/// The model in parentheses, as in `none voluntary (full) lazy`.
fn chosen(text: &str) -> Option<String> {
    text.split_whitespace().find_map(|word| Some(word.strip_prefix('(')?.strip_suffix(')')?.to_owned()))
}

/// The model of a kernel that has but one, if the version names it: `init/Makefile` of the kernel.
fn built_in(version: &str) -> Option<String> {
    version.split_whitespace().find_map(|word| match word {
        "PREEMPT_RT" => Some("rt".to_owned()),
        "PREEMPT" => Some("full".to_owned()),
        _ => None,
    })
}

/// Ticks a second, if the configuration of the kernel is in the place where distributions install it.
fn hz(root: &Path) -> Option<u32> {
    let release = RunningKernel::new(root).release();
    let config = std::fs::read_to_string(root.join(format!("boot/config-{release}"))).ok()?;
    config.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_from_several_places() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_settings(root.path()), Scheduler::default());
        for (path, text) in [
            ("proc/self/mountinfo", "36 35 0:7 / /sys/kernel/debug rw - debugfs debugfs rw\n"),
            ("sys/kernel/debug/sched/base_slice_ns", "2800000\n"),
            ("sys/kernel/debug/sched/features", "PLACE_LAG NO_HRTICK\n"),
            ("sys/kernel/debug/sched/preempt", "none (voluntary) full\n"),
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/sys/kernel/sched_autogroup_enabled", "1\n"),
            ("proc/version", "Linux version 6.12.1 (x) #1 SMP PREEMPT_RT x\n"),
            ("boot/config-6.12.1", "# CONFIG_HZ_100 is not set\nCONFIG_HZ_250=y\nCONFIG_HZ=250\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let expected = Scheduler {
            sched_ext: None,
            base_slice_ns: Some(2_800_000),
            features: vec!["PLACE_LAG".into(), "NO_HRTICK".into()],
            autogroup: Some(true),
            preemption: Some("voluntary".into()),
            hz: Some(250),
            isolated_cpus: "2-3".into(),
        };
        assert_eq!(read_settings(root.path()), expected);
        std::fs::remove_file(root.path().join("sys/kernel/debug/sched/preempt")).unwrap();
        assert_eq!(read_settings(root.path()).preemption.as_deref(), Some("rt"));
    }
}
