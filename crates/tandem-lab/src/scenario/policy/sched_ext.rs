//! Settings of compiled schedulers for sched_ext: Tandem's own, or one in an object file.

use super::compiled::{self, Program, TandemSettings};
use super::linux::check_tick;
use super::user_space::{CallTable, SettingValue, UserSpace};
use super::words::{Word, Words};
use crate::scenario::amount::{Count, check_time, count_in};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_machine::Machine;
use tandem_sim::policy::sched_ext::{KernelVersion, SchedExtSettings};

const NS_PER_S: u64 = 1_000_000_000;

impl Words for KernelVersion {
    const WORDS: &'static [(&'static str, Self, &'static str)] =
        &[("6.12", Self::V6_12, "The first one with sched_ext, of 2024."), ("7.3", Self::V7_3, "Of 2026.")];
}

/// A table of settings of a compiled scheduler: what is its own, the type of its `settings`, and what any
/// has.
macro_rules! compiled_table {
    (
        $(#[$about:meta])* $table:ident
        { $($(#[$own_about:meta])* $own:ident: $own_type:ty)? }
        { $($(#[$option_about:meta])* $option:ident: $option_type:ty),* }
        $(#[$settings_about:meta])* settings: $settings:ty
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $table {
            $($(#[$own_about])* pub $own: $own_type,)?
            $(#[$settings_about])*
            pub settings: Option<Located<$settings>>,
            $($(#[$option_about])* pub $option: Option<$option_type>,)*
            /// The kernel that runs it: "6.12" or "7.3", which it is if absent.
            pub kernel: Option<Word<KernelVersion>>,
            /// Ticks per second (`CONFIG_HZ`), 100, 250, 300 or 1000; 250 if absent.
            pub tick_hz: Option<Located<u32>>,
            /// How long a task that can run may wait before the kernel unloads the scheduler, "30s" at most;
            /// if absent, for Tandem the `watchdog` of its settings, "10s" unless they say otherwise, and for
            /// others what their objects ask for, or "30s".
            pub watchdog_timeout: Option<Located<Duration>>,
            /// An injected fault: the longest time by which a tick comes late, at random; "0us" if absent.
            pub tick_delay_max: Option<Located<Duration>>,
            /// An injected fault: the longest time by which a timer of the scheduler expires late, at random;
            /// "0us" if absent.
            pub timer_delay_max: Option<Located<Duration>>,
            /// An injected fault: how often, in percent, a timer cannot be started for want of memory, as
            /// with interrupts off since Linux 7.0; 0 if absent.
            pub timer_failure_pct: Option<Located<Count>>,
            /// An injected fault: how often, in percent, storage for a task or a cgroup cannot be made, so
            /// that `bpf_task_storage_get()` returns NULL; 0 if absent.
            pub storage_failure_pct: Option<Located<Count>>,
            /// In guests alone: whether a vCPU that waits for a spin lock halts after a while; true if absent,
            /// false as with the boot parameter `nopvspin`.
            pub paravirt_locks: Option<bool>,
        }

        impl $table {
            /// This table, with what it leaves out taken from `base`.
            pub(super) fn over(self, base: Self) -> Self {
                Self {
                    $($own: self.$own,)?
                    settings: self.settings.or(base.settings),
                    $($option: self.$option.or(base.$option),)*
                    kernel: self.kernel.or(base.kernel),
                    tick_hz: self.tick_hz.or(base.tick_hz),
                    watchdog_timeout: self.watchdog_timeout.or(base.watchdog_timeout),
                    tick_delay_max: self.tick_delay_max.or(base.tick_delay_max),
                    timer_delay_max: self.timer_delay_max.or(base.timer_delay_max),
                    timer_failure_pct: self.timer_failure_pct.or(base.timer_failure_pct),
                    storage_failure_pct: self.storage_failure_pct.or(base.storage_failure_pct),
                    paravirt_locks: self.paravirt_locks.or(base.paravirt_locks),
                }
            }

            /// Checks each setting by itself, but for those that the scheduler itself knows.
            pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
                check_tick(self.tick_hz.as_ref(), source)?;
                for delay in [&self.tick_delay_max, &self.timer_delay_max].into_iter().flatten() {
                    check_time(**delay).map_err(|message| source.error(delay.span(), message))?;
                }
                if let Some(timeout) = &self.watchdog_timeout
                    && !(1..=SchedExtSettings::WATCHDOG_TIMEOUT_NS).contains(&timeout.ns)
                {
                    let message = "the watchdog's time is out of range; allowed are times above 0, up to \"30s\"";
                    return Err(source.error(timeout.span(), message));
                }
                for (pct, key) in [
                    (&self.timer_failure_pct, "`timer_failure_pct`"),
                    (&self.storage_failure_pct, "`storage_failure_pct`"),
                ] {
                    if let Some(pct) = pct {
                        count_in(pct, key, 0..=100, source)?;
                    }
                }
                Ok(())
            }

            /// The program that the kernel of this table loads, with what the table says of the kernel.
            fn loaded(
                &self,
                program: Program<'_>,
                is_guest: bool,
                machine: &Machine,
            ) -> Result<SchedExtSettings, String> {
                let delay_ns = |delay: &Option<Located<Duration>>| delay.as_ref().map_or(0, |delay| delay.ns);
                let pct = |pct: &Option<Located<Count>>| pct.as_ref().map_or(0, |pct| pct.0.min(100) as u8);
                if self.paravirt_locks.is_some() && !is_guest {
                    return Err("a host has no `paravirt_locks`; set them in `guest`".to_owned());
                }
                let kernel = self.kernel.map_or(KernelVersion::default(), |kernel| kernel.0);
                let loaded = compiled::settings(program, kernel, is_guest, machine)?;
                Ok(SchedExtSettings {
                    tick_period_ns: self
                        .tick_hz
                        .as_deref()
                        .map_or(SchedExtSettings::TICK_PERIOD_NS, |&hz| NS_PER_S / u64::from(hz)),
                    watchdog_timeout_ns: self
                        .watchdog_timeout
                        .as_ref()
                        .map_or(loaded.watchdog_timeout_ns, |timeout| Some(timeout.ns)),
                    tick_delay_max_ns: delay_ns(&self.tick_delay_max),
                    timer_delay_max_ns: delay_ns(&self.timer_delay_max),
                    timer_failure_pct: pct(&self.timer_failure_pct),
                    storage_failure_pct: pct(&self.storage_failure_pct),
                    paravirt_locks: self.paravirt_locks.unwrap_or(true),
                    ..loaded
                })
            }
        }
    };
}

compiled_table! {
    /// Settings of Tandem's own scheduler, and of the kernel that runs it.
    #[derive(Default)]
    TandemTable {} {}
    /// Settings as in the file that `tandem run` reads.
    settings: TandemSettings
}

compiled_table! {
    /// Settings of a scheduler in an object file, and of the kernel that runs it.
    ObjectTable {
        /// The path of the object file. One that is not absolute begins where the scenario file lies.
        object: Located<PathBuf>
    }
    {
        /// The structure that is the context of a task (`struct task_ctx`, without `struct`) in a scheduler
        /// that uses scx's library of arenas: the library is set up, and gets the topology.
        scx_arena: String,
        /// Programs that the scheduler's user space runs, in this order, after that.
        calls: Vec<CallTable>
    }
    /// Values of the scheduler's variables, operations and maps, by their names.
    settings: BTreeMap<String, SettingValue>
}

impl TandemTable {
    /// The engine's form of a table that was checked.
    ///
    /// # Errors
    /// A sentence, if the scheduler cannot be used on that machine or with these settings.
    pub(super) fn settings(&self, is_guest: bool, machine: &Machine) -> Result<SchedExtSettings, String> {
        self.loaded(Program::Tandem(self.settings.as_deref()), is_guest, machine)
    }
}

impl ObjectTable {
    /// Its keys, by which a table without the name of a scheduler shows that it is one.
    pub(super) const KEYS: [&str; 12] = [
        "object",
        "settings",
        "scx_arena",
        "calls",
        "kernel",
        "tick_hz",
        "watchdog_timeout",
        "tick_delay_max",
        "timer_delay_max",
        "timer_failure_pct",
        "storage_failure_pct",
        "paravirt_locks",
    ];

    /// The scheduler in that object file, with defaults for all settings.
    pub(super) fn new(object: PathBuf) -> Self {
        Self {
            object: Located::<()>::default().map(|()| object),
            settings: None,
            scx_arena: None,
            calls: None,
            kernel: None,
            tick_hz: None,
            watchdog_timeout: None,
            tick_delay_max: None,
            timer_delay_max: None,
            timer_failure_pct: None,
            storage_failure_pct: None,
            paravirt_locks: None,
        }
    }

    /// The engine's form of a table that was checked. The path begins where the source lies.
    ///
    /// # Errors
    /// A sentence, if the scheduler cannot be used, or has no such setting.
    pub(super) fn settings(
        &self,
        is_guest: bool,
        machine: &Machine,
        source: &SourceFile,
    ) -> Result<SchedExtSettings, String> {
        let path = source.directory().join(&*self.object);
        let user_space = UserSpace {
            settings: self.settings.as_deref(),
            scx_arena: self.scx_arena.as_deref(),
            calls: self.calls.as_deref().unwrap_or_default(),
        };
        self.loaded(Program::Object(&path, user_space), is_guest, machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_an_object_are_all_of_its_keys() {
        let schema = schemars::schema_for!(ObjectTable);
        let keys = schema.get("properties").and_then(|properties| properties.as_object()).unwrap();
        assert!(keys.keys().all(|key| ObjectTable::KEYS.contains(&key.as_str())));
        assert_eq!(keys.len(), ObjectTable::KEYS.len());
    }
}
