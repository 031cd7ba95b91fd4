//! The table of legs: which machine boots, and which scenarios run on it.

use crate::guest::Guest;
use crate::scenarios::{self, agreement, bench};

/// Where modules of the kernel lie in the guest.
pub const MODULES_FOLDER: &str = "/modules";
/// Where the scenario files of `agreement` lie in the guest.
pub const AGREEMENT_FOLDER: &str = "/agreement";
/// The leg whose programs the simulator runs as well.
pub const AGREEMENT_LEG: &str = "agreement";
/// These programs, each `PROGRAM.toml` in the folder. Those that move most come after ones that load all CPUs
/// alike, of which the scheduler remembers nothing that makes it prefer some CPUs.
pub const AGREEMENT_PROGRAMS: [&str; 5] = ["ping-pong", "yield-storm", "burners", "hackbench", "spill"];

/// Legs with VMs of their own, which need QEMU in the guest.
const LEGS_WITH_VMS: [&str; 3] = ["vms", "cores", "abuse"];

/// A virtual machine, booted once, and what runs on it.
pub struct Leg {
    /// Its name on the command line.
    pub name: &'static str,
    /// CPUs, nodes and memory.
    pub machine: Machine,
    /// How these CPUs are emulated.
    pub emulation: Emulation,
    /// Parameters for the guest's kernel besides those that every leg has.
    pub kernel_parameters: &'static str,
    /// Modules of the kernel to load, in this order; one that is not there counts as built in.
    pub modules: &'static [&'static str],
    /// Most CPU time that QEMU took so far under any load of the machine, s, without the requested time of
    /// the churn. Ten times that is its limit.
    pub cpu_s: u64,
    /// What runs, in this order.
    pub scenarios: &'static [Scenario],
}

/// How QEMU emulates CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emulation {
    /// A thread for each, so that the machine's CPUs share the work; the guest's clock is the machine's.
    Threads,
    /// One thread that runs one CPU after the other; the guest's clock advances by 1 ns for each instruction.
    /// Whatever the guest does, and when, then depends on nothing but the seed of its random numbers.
    Counted {
        /// The time between two expiries of a timer that does nothing else, ns. A CPU runs on until the time
        /// to the next timer, divided by the number of CPUs, is over; without this one that may be the next
        /// tick of some CPU, so that others stand still for hundreds of microseconds.
        timer_ns: Option<u64>,
    },
}

impl Leg {
    /// Whether it has VMs of its own.
    pub fn has_vms(&self) -> bool {
        LEGS_WITH_VMS.contains(&self.name)
    }
}

/// The hardware that QEMU emulates.
pub struct Machine {
    /// QEMU's name of the CPU, with features.
    pub cpu: &'static str,
    /// Sockets; each has one last-level cache.
    pub sockets: u32,
    /// Cores of a socket.
    pub cores: u32,
    /// Threads of a core, each a CPU; those of a core come one after the other.
    pub threads: u32,
    /// NUMA nodes; CPUs and memory are divided among them evenly, in order.
    pub nodes: u32,
    /// Memory, MiB.
    pub memory_mib: u32,
}

impl Machine {
    /// How many CPUs there are.
    pub const fn cpus(&self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// The CPUs of a node.
    pub fn cpus_of(&self, node: u32) -> std::ops::Range<u32> {
        let per_node = self.cpus() / self.nodes;
        node * per_node..(node + 1) * per_node
    }
}

/// Something that is tried in the guest.
pub struct Scenario {
    /// Its name on the command line, and in the results.
    pub name: &'static str,
    /// Tries it.
    pub run: fn(&Guest) -> anyhow::Result<()>,
    /// Whether `--short` leaves it out: it takes long, and others would notice most of its failures.
    pub is_long: bool,
}

const fn scenario(name: &'static str, run: fn(&Guest) -> anyhow::Result<()>) -> Scenario {
    Scenario { name, run, is_long: false }
}

const fn long(name: &'static str, run: fn(&Guest) -> anyhow::Result<()>) -> Scenario {
    Scenario { name, run, is_long: true }
}

/// One socket, one node.
const FOUR_CPUS: Machine =
    Machine { cpu: "max", sockets: 1, cores: 4, threads: 1, nodes: 1, memory_mib: 1024 };
/// Two sockets, which are the two nodes.
const TWO_NODES: Machine =
    Machine { cpu: "max", sockets: 2, cores: 2, threads: 1, nodes: 2, memory_mib: 1024 };
/// The same with more CPUs.
const EIGHT_CPUS: Machine =
    Machine { cpu: "max", sockets: 2, cores: 4, threads: 1, nodes: 2, memory_mib: 2048 };
/// Each CPU a socket, as hypervisors often show vCPUs.
const FOUR_SOCKETS: Machine =
    Machine { cpu: "max", sockets: 4, cores: 1, threads: 1, nodes: 1, memory_mib: 1024 };
/// A CPU with what KVM needs. QEMU's SVM can intercept PAUSE, but does not say so unless it is forced to; KVM
/// looks for both features before it uses it.
const VIRTUALISING: Machine =
    Machine { cpu: "max,+svm,+pause-filter,+pfthreshold,x-force-features=on", ..FOUR_CPUS };

/// One that virtualises, with two cores of two threads each.
const TWO_CORES: Machine = Machine { cores: 2, threads: 2, memory_mib: 2048, ..VIRTUALISING };

/// As many CPUs as are emulated without taking all day: four sockets, each a node of four cores with two
/// threads.
const LARGE: Machine = Machine { cpu: "max", sockets: 4, cores: 4, threads: 2, nodes: 4, memory_mib: 2048 };

/// One that virtualises, on two nodes of two CPUs.
const VIRTUALISING_NODES: Machine = Machine { cpu: VIRTUALISING.cpu, memory_mib: 2048, ..TWO_NODES };

/// What these need.
const KVM: &[&str] = &["irqbypass", "kvm", "kvm-amd"];

/// All legs. Those that last longest start first.
pub const LEGS: &[Leg] = &[
    Leg {
        name: "life",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 660,
        scenarios: &[
            scenario("sched-ext-is-there", scenarios::harness::sched_ext_is_there),
            scenario("hackbench-runs", scenarios::harness::hackbench_runs),
            scenario("programs-are-verified", scenarios::programs::programs_are_verified),
            scenario("loads-schedules-unloads", scenarios::life::loads_schedules_unloads),
            scenario("survives-kill", scenarios::life::survives_kill),
            scenario("notifies-service-manager", scenarios::service::notifies_manager),
            scenario("units-capabilities-suffice", scenarios::service::capabilities_suffice),
            scenario("stalled-task-ejects", scenarios::ejection::stalled_task),
            scenario("doctor-agrees", scenarios::bad_input::doctor_agrees),
            scenario("not-loaded", scenarios::bad_input::not_loaded),
            scenario("without-root", scenarios::bad_input::without_root),
            scenario("second-instance", scenarios::bad_input::second_instance),
            scenario("wrong-settings", scenarios::bad_input::wrong_settings),
            scenario("lost-limits", scenarios::bad_input::lost_limits),
            long("wrong-preferences", scenarios::bad_input::wrong_preferences),
            long("preferences-survive-hotplug", scenarios::hotplug::preferences_survive),
            scenario("users-steer-their-own", scenarios::control_socket::users_steer_their_own),
            scenario("hostile-user", scenarios::control_socket::hostile_user),
            scenario("hostile-user-of-metrics", scenarios::metrics::hostile_user),
            long("agent-is-killed", scenarios::control_socket::agent_is_killed),
        ],
    },
    Leg {
        name: "sharing",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 300,
        scenarios: &[
            scenario("nice-values", scenarios::fairness::nice_values),
            scenario("cgroup-weights", scenarios::fairness::cgroup_weights),
            scenario("cgroup-limits", scenarios::fairness::cgroup_limits),
            long("equal-tasks", scenarios::fairness::equal_tasks),
            scenario("pinned-tasks", scenarios::fairness::pinned_tasks),
            scenario("changes-of-affinity", scenarios::fairness::changes_of_affinity),
            scenario("sleepers-credit", scenarios::fairness::sleepers_credit),
            long("storm-of-wake-ups", scenarios::rate_control::storm_of_wake_ups),
            long("exemption-from-rate-control", scenarios::rate_control::exemption),
            long("tasks-of-a-part-come-and-go", scenarios::partial::tasks_come_and_go),
            scenario("who-hides-is-outside-of-a-part", scenarios::partial::who_hides_is_outside),
            long("a-part-beside-others", scenarios::partial::a_part_beside_others),
        ],
    },
    Leg {
        name: "preferences",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 60,
        scenarios: &[
            scenario("stays-leaves-returns", scenarios::soft_affinity::stays_leaves_returns),
            long("ratio-says-where-to-wait", scenarios::soft_affinity::ratio_says_where_to_wait),
            scenario("is-inherited", scenarios::soft_affinity::is_inherited),
            scenario("of-a-cgroup", scenarios::soft_affinity::of_a_cgroup),
        ],
    },
    Leg {
        name: "numa",
        machine: TWO_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 45,
        scenarios: &[
            scenario("machine-is-as-asked-for", scenarios::harness::machine_is_as_asked_for),
            scenario("groups-stay-home", scenarios::numa_homes::groups_stay_home),
            scenario("no-node-idles", scenarios::numa_homes::no_node_idles),
        ],
    },
    Leg {
        name: "guest",
        machine: FOUR_SOCKETS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 35,
        scenarios: &[
            scenario("machine-is-as-asked-for", scenarios::harness::machine_is_as_asked_for),
            scenario("ping-pong-stays-on-one-vcpu", scenarios::guest_mode::ping_pong_stays_on_one_vcpu),
            scenario("all-vcpus-are-used", scenarios::guest_mode::all_vcpus_are_used),
        ],
    },
    Leg {
        name: "nested",
        machine: VIRTUALISING,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: KVM,
        cpu_s: 60,
        scenarios: &[
            scenario("kvm-is-there", scenarios::harness::kvm_is_there),
            scenario("directed-yields-succeed", scenarios::directed_yield::they_succeed),
            scenario("directed-yields-help", scenarios::directed_yield::they_help),
            long("directed-yields-are-fair", scenarios::directed_yield::they_are_fair),
        ],
    },
    Leg {
        name: "vms",
        machine: VIRTUALISING_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: KVM,
        cpu_s: 210,
        scenarios: &[
            scenario("are-found-and-have-homes", scenarios::vms::are_found_and_have_homes),
            scenario("virtual-nodes-have-homes", scenarios::vms::virtual_nodes_have_homes),
            scenario("observed-before-loading", scenarios::observing::before_loading),
            long("homes-follow-memory", scenarios::vms::homes_follow_memory),
            long("memory-comes-home", scenarios::vms::memory_comes_home),
            long("limits-are-respected", scenarios::vms::limits_are_respected),
            long("homes-survive", scenarios::vms::homes_survive),
            scenario("metrics-tell-of-a-vm", scenarios::metrics::tell_of_a_vm),
            long("nobody-waits-beside-idle", scenarios::vms::nobody_waits_beside_idle),
        ],
    },
    Leg {
        name: "abuse",
        machine: VIRTUALISING_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: KVM,
        cpu_s: 320,
        scenarios: &[
            scenario("false-monitors", scenarios::abuse::false_monitors),
            long("threads-and-files", scenarios::abuse::threads_and_files),
            long("storms", scenarios::abuse::storms),
            scenario("slow-clients", scenarios::abuse::slow_clients),
            scenario("numbers-are-taken", scenarios::abuse::numbers_are_taken),
            long("other-programs", scenarios::abuse::other_programs),
            long("silent-memory", scenarios::abuse::silent_memory),
        ],
    },
    Leg {
        name: "promises",
        machine: EIGHT_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 190,
        scenarios: &[
            scenario("nobody-starves-between-pinned", scenarios::starvation::between_pinned),
            scenario("nobody-starves-beside-real-time", scenarios::starvation::beside_real_time),
            scenario("sets-change-while-tasks-run", scenarios::starvation::sets_change),
            long("sleepers-wait-little", scenarios::latency::sleepers_wait_little),
        ],
    },
    Leg {
        name: "tickless",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        // No tick stops where the kernel does not trust its clock, as it does not trust that of emulated
        // CPUs.
        kernel_parameters: "nohz_full=2,3 tsc=reliable",
        modules: &[],
        cpu_s: 120,
        scenarios: &[
            scenario("alone-without-ticks", scenarios::tickless::alone_without_ticks),
            long("together-with-ticks", scenarios::tickless::together_with_ticks),
        ],
    },
    Leg {
        name: "cores",
        machine: TWO_CORES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &["irqbypass", "kvm", "kvm-amd"],
        cpu_s: 90,
        scenarios: &[
            scenario("machine-is-as-asked-for", scenarios::harness::machine_is_as_asked_for),
            scenario("cookies", scenarios::core_scheduling::cookies),
            scenario("apart", scenarios::core_scheduling::apart),
        ],
    },
    Leg {
        name: "large",
        machine: LARGE,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 260,
        scenarios: &[
            long("machine-is-as-asked-for", scenarios::harness::machine_is_as_asked_for),
            long("cores-before-threads", scenarios::large::cores_before_threads),
            long("weights-of-many-threads", scenarios::large::weights_of_many_threads),
        ],
    },
    Leg {
        name: "churn",
        machine: TWO_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 60,
        scenarios: &[scenario("everything-at-once", scenarios::churn::everything_at_once)],
    },
    Leg {
        name: AGREEMENT_LEG,
        machine: EIGHT_CPUS,
        emulation: Emulation::Counted { timer_ns: Some(40_000) },
        // Addresses are the same in each boot; pages stay where they are.
        kernel_parameters: "nokaslr norandmaps numa_balancing=disable",
        modules: &[],
        cpu_s: 500,
        scenarios: &[long("programs", agreement::programs)],
    },
];

/// The machine of the benchmarks: each of its scenarios is a scheduler under which all workloads run, the
/// first one the kernel's own. `vm-bench` boots it anew for every scheduler and seed, so that all find the
/// same state.
pub static BENCH: Leg = Leg {
    name: "bench",
    machine: EIGHT_CPUS,
    emulation: Emulation::Counted { timer_ns: None },
    // Addresses are the same in each boot.
    kernel_parameters: "nokaslr norandmaps",
    modules: &[],
    cpu_s: 900,
    scenarios: &[
        scenario("eevdf", bench::eevdf),
        scenario("tandem", bench::tandem),
        scenario("tandem-plain", |guest| bench::tandem_with_only(guest, &[])),
        scenario("soft-affinity", |guest| bench::tandem_with_only(guest, &["soft_affinity"])),
        scenario("numa-homes", |guest| bench::tandem_with_only(guest, &["numa_homes"])),
        scenario("rate-control", |guest| bench::tandem_with_only(guest, &["rate_control"])),
        scenario("directed-yield", |guest| bench::tandem_with_only(guest, &["directed_yield"])),
        scenario("tandem-guest", bench::tandem_guest),
        scenario("scx_bpfland", bench::scx_bpfland),
    ],
};

/// The leg of that name.
pub fn find(name: &str) -> Option<&'static Leg> {
    LEGS.iter().chain([&BENCH]).find(|leg| leg.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_machines_even() {
        let mut legs = HashSet::new();
        for leg in LEGS.iter().chain([&BENCH]) {
            assert!(legs.insert(leg.name), "{}", leg.name);
            let mut scenarios = HashSet::new();
            for scenario in leg.scenarios {
                assert!(scenarios.insert(scenario.name), "{}/{}", leg.name, scenario.name);
            }
            assert_eq!(leg.machine.cpus() % leg.machine.nodes, 0, "{}", leg.name);
            assert_eq!(leg.machine.memory_mib % leg.machine.nodes, 0, "{}", leg.name);
        }
    }
}
