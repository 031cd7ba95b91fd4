//! The table of legs: which machine boots, and which cases run on it.

use crate::cases::{self, agreement, arena, bench};
use crate::guest::Guest;
use crate::record::Scheduler;

/// Where modules of the kernel lie in the guest.
pub const MODULES_FOLDER: &str = "/modules";
/// Where the scenario files of `agreement` lie in the guest.
pub const AGREEMENT_FOLDER: &str = "/agreement";
/// Where object files of schedulers lie in the guest.
pub const OBJECTS_FOLDER: &str = "/schedulers";
/// The leg whose programs the simulator runs as well.
pub const AGREEMENT_LEG: &str = "agreement";
/// These programs, each `PROGRAM.toml` in the folder. Those that move most come after ones that load all CPUs
/// alike, of which the scheduler remembers nothing that makes it prefer some CPUs.
pub const AGREEMENT_PROGRAMS: [&str; 5] = ["ping-pong", "yield-storm", "burners", "hackbench", "spill"];

/// The leg whose programs run under the kernel's own scheduler, and in the simulator: each case is one.
pub const EEVDF_LEG: &str = "eevdf";

/// The programs of the arena. The first tells how long the kernel's paths are.
pub const ARENA_PROGRAMS: [&str; 9] =
    ["ping-pong", "burners", "hackbench", "fork-join", "pairs", "pool", "server", "sleepers", "mix"];

/// Legs with VMs of their own, which need QEMU in the guest.
const LEGS_WITH_VMS: [&str; 3] = ["vms", "cores", "abuse"];
/// The leg that loads other schedulers.
const LEG_WITH_SCHEDULERS: &str = "schedulers";

/// What guests of some legs have besides what all have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Addition {
    /// No more than these.
    Nothing,
    /// QEMU, for VMs of their own.
    Qemu,
    /// The object files of other schedulers.
    Schedulers,
}

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
    /// the churn. Four times that is its limit.
    pub cpu_s: u64,
    /// What runs, in this order.
    pub cases: &'static [Case],
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
    /// What its guests have besides what all have.
    pub fn addition(&self) -> Addition {
        match self.name {
            LEG_WITH_SCHEDULERS => Addition::Schedulers,
            name if LEGS_WITH_VMS.contains(&name) => Addition::Qemu,
            _ => Addition::Nothing,
        }
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
pub struct Case {
    /// Its name on the command line, and in the results.
    pub name: &'static str,
    /// Tries it.
    pub run: fn(&Guest) -> anyhow::Result<()>,
    /// Whether `--short` leaves it out: it takes long, and others would notice most of its failures.
    pub is_long: bool,
}

const fn case(name: &'static str, run: fn(&Guest) -> anyhow::Result<()>) -> Case {
    Case { name, run, is_long: false }
}

const fn long(name: &'static str, run: fn(&Guest) -> anyhow::Result<()>) -> Case {
    Case { name, run, is_long: true }
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

/// Addresses are the same in each boot; pages stay where they are, as in the simulations to compare with.
const AS_MODELLED: &str = "nokaslr norandmaps numa_balancing=disable";

/// All legs. Those that last longest start first.
pub const LEGS: &[Leg] = &[
    Leg {
        name: "life",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 660,
        cases: &[
            case("sched-ext-is-there", cases::harness::sched_ext_is_there),
            case("hackbench-runs", cases::harness::hackbench_runs),
            case("programs-are-verified", cases::programs::programs_are_verified),
            case("loads-schedules-unloads", cases::life::loads_schedules_unloads),
            case("survives-kill", cases::life::survives_kill),
            case("notifies-service-manager", cases::service::notifies_manager),
            case("units-capabilities-suffice", cases::service::capabilities_suffice),
            case("stalled-task-ejects", cases::ejection::stalled_task),
            case("doctor-agrees", cases::bad_input::doctor_agrees),
            case("not-loaded", cases::bad_input::not_loaded),
            case("without-root", cases::bad_input::without_root),
            case("second-instance", cases::bad_input::second_instance),
            case("wrong-settings", cases::bad_input::wrong_settings),
            case("lost-limits", cases::bad_input::lost_limits),
            long("wrong-preferences", cases::bad_input::wrong_preferences),
            long("preferences-survive-hotplug", cases::hotplug::preferences_survive),
            case("users-steer-their-own", cases::control_socket::users_steer_their_own),
            case("hostile-user", cases::control_socket::hostile_user),
            case("hostile-user-of-metrics", cases::metrics::hostile_user),
            long("agent-is-killed", cases::control_socket::agent_is_killed),
        ],
    },
    Leg {
        name: "sharing",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 300,
        cases: &[
            case("nice-values", cases::fairness::nice_values),
            case("cgroup-weights", cases::fairness::cgroup_weights),
            case("cgroup-limits", cases::fairness::cgroup_limits),
            long("equal-tasks", cases::fairness::equal_tasks),
            case("pinned-tasks", cases::fairness::pinned_tasks),
            case("changes-of-affinity", cases::fairness::changes_of_affinity),
            case("sleepers-credit", cases::fairness::sleepers_credit),
            long("storm-of-wake-ups", cases::rate_control::storm_of_wake_ups),
            long("exemption-from-rate-control", cases::rate_control::exemption),
            long("tasks-of-a-part-come-and-go", cases::partial::tasks_come_and_go),
            case("who-hides-is-outside-of-a-part", cases::partial::who_hides_is_outside),
            long("a-part-beside-others", cases::partial::a_part_beside_others),
        ],
    },
    Leg {
        name: "preferences",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 60,
        cases: &[
            case("stays-leaves-returns", cases::soft_affinity::stays_leaves_returns),
            long("ratio-says-where-to-wait", cases::soft_affinity::ratio_says_where_to_wait),
            case("is-inherited", cases::soft_affinity::is_inherited),
            case("of-a-cgroup", cases::soft_affinity::of_a_cgroup),
        ],
    },
    Leg {
        name: "numa",
        machine: TWO_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 45,
        cases: &[
            case("machine-is-as-asked-for", cases::harness::machine_is_as_asked_for),
            case("groups-stay-home", cases::numa_homes::groups_stay_home),
            case("no-node-idles", cases::numa_homes::no_node_idles),
        ],
    },
    Leg {
        name: "guest",
        machine: FOUR_SOCKETS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 35,
        cases: &[
            case("machine-is-as-asked-for", cases::harness::machine_is_as_asked_for),
            case("ping-pong-stays-on-one-vcpu", cases::guest_mode::ping_pong_stays_on_one_vcpu),
            case("all-vcpus-are-used", cases::guest_mode::all_vcpus_are_used),
        ],
    },
    Leg {
        name: "nested",
        machine: VIRTUALISING,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: KVM,
        cpu_s: 60,
        cases: &[
            case("kvm-is-there", cases::harness::kvm_is_there),
            case("directed-yields-succeed", cases::directed_yield::they_succeed),
            case("directed-yields-help", cases::directed_yield::they_help),
            long("directed-yields-are-fair", cases::directed_yield::they_are_fair),
        ],
    },
    Leg {
        name: "vms",
        machine: VIRTUALISING_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: KVM,
        cpu_s: 210,
        cases: &[
            case("are-found-and-have-homes", cases::vms::are_found_and_have_homes),
            case("virtual-nodes-have-homes", cases::vms::virtual_nodes_have_homes),
            case("observed-before-loading", cases::observing::before_loading),
            long("homes-follow-memory", cases::vms::homes_follow_memory),
            long("memory-comes-home", cases::vms::memory_comes_home),
            long("limits-are-respected", cases::vms::limits_are_respected),
            long("homes-survive", cases::vms::homes_survive),
            case("metrics-tell-of-a-vm", cases::metrics::tell_of_a_vm),
            long("nobody-waits-beside-idle", cases::vms::nobody_waits_beside_idle),
        ],
    },
    Leg {
        name: "abuse",
        machine: VIRTUALISING_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: KVM,
        cpu_s: 320,
        cases: &[
            case("false-monitors", cases::abuse::false_monitors),
            long("threads-and-files", cases::abuse::threads_and_files),
            long("storms", cases::abuse::storms),
            case("slow-clients", cases::abuse::slow_clients),
            case("numbers-are-taken", cases::abuse::numbers_are_taken),
            long("other-programs", cases::abuse::other_programs),
            long("silent-memory", cases::abuse::silent_memory),
        ],
    },
    Leg {
        name: "recording",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 60,
        cases: &[
            case("has-every-switch", cases::recording::has_every_switch),
            case("leaves-nothing", cases::recording::leaves_nothing),
            case("passes-status-on", cases::recording::passes_status_on),
        ],
    },
    Leg {
        name: "promises",
        machine: EIGHT_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 190,
        cases: &[
            case("nobody-starves-between-pinned", cases::starvation::between_pinned),
            case("nobody-starves-beside-real-time", cases::starvation::beside_real_time),
            case("sets-change-while-tasks-run", cases::starvation::sets_change),
            long("sleepers-wait-little", cases::latency::sleepers_wait_little),
        ],
    },
    Leg {
        name: "verify",
        machine: FOUR_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 540,
        cases: &[
            case("takes-turns", cases::verify::takes_turns),
            case("failed-arms-are-reported", cases::verify::failed_arms),
            case("killed-and-resumed", cases::verify::killed_and_resumed),
            case("refuses-beside-others", cases::verify::refuses),
            long("ends-with-the-winner", cases::verify::ends_with_the_winner),
            long("drops-an-arm-that-harms", cases::verify::drops_an_arm_that_harms),
        ],
    },
    Leg {
        name: LEG_WITH_SCHEDULERS,
        machine: EIGHT_CPUS,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 460,
        cases: &[
            case("some-load-and-schedule", cases::schedulers::some_load_and_schedule),
            long("each-loads-and-schedules", cases::schedulers::each_loads_and_schedules),
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
        cases: &[
            case("alone-without-ticks", cases::tickless::alone_without_ticks),
            long("together-with-ticks", cases::tickless::together_with_ticks),
        ],
    },
    Leg {
        name: "cores",
        machine: TWO_CORES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &["irqbypass", "kvm", "kvm-amd"],
        cpu_s: 90,
        cases: &[
            case("machine-is-as-asked-for", cases::harness::machine_is_as_asked_for),
            case("cookies", cases::core_scheduling::cookies),
            case("apart", cases::core_scheduling::apart),
        ],
    },
    Leg {
        name: "large",
        machine: LARGE,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 260,
        cases: &[
            long("machine-is-as-asked-for", cases::harness::machine_is_as_asked_for),
            long("cores-before-threads", cases::large::cores_before_threads),
            long("weights-of-many-threads", cases::large::weights_of_many_threads),
        ],
    },
    Leg {
        name: "churn",
        machine: TWO_NODES,
        emulation: Emulation::Threads,
        kernel_parameters: "",
        modules: &[],
        cpu_s: 60,
        cases: &[case("everything-at-once", cases::churn::everything_at_once)],
    },
    Leg {
        name: AGREEMENT_LEG,
        machine: EIGHT_CPUS,
        emulation: Emulation::Counted { timer_ns: Some(40_000) },
        kernel_parameters: AS_MODELLED,
        modules: &[],
        cpu_s: 500,
        cases: &[case("programs", agreement::programs)],
    },
    Leg {
        name: EEVDF_LEG,
        machine: EIGHT_CPUS,
        emulation: Emulation::Counted { timer_ns: Some(40_000) },
        kernel_parameters: AS_MODELLED,
        modules: &[],
        cpu_s: 680,
        cases: &[
            case("ping-pong", agreement::eevdf),
            case("yield-storm", agreement::eevdf),
            case("burners", agreement::eevdf),
            case("sleepers", agreement::eevdf),
            long("nice-hogs", agreement::eevdf),
            long("hackbench", agreement::eevdf),
            long("pool", agreement::eevdf),
            long("pairs", agreement::eevdf),
            long("fork-join", agreement::eevdf),
            long("pinned", agreement::eevdf),
            long("server", agreement::eevdf),
            long("mix", agreement::eevdf),
        ],
    },
];

/// The machine of the benchmarks: each of its cases is a scheduler under which all workloads run, the
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
    cases: &[
        case("eevdf", bench::eevdf),
        case("tandem", bench::tandem),
        case("tandem-plain", |guest| bench::tandem_with_only(guest, &[])),
        case("soft-affinity", |guest| bench::tandem_with_only(guest, &["soft_affinity"])),
        case("numa-homes", |guest| bench::tandem_with_only(guest, &["numa_homes"])),
        case("rate-control", |guest| bench::tandem_with_only(guest, &["rate_control"])),
        case("directed-yield", |guest| bench::tandem_with_only(guest, &["directed_yield"])),
        case("tandem-guest", bench::tandem_guest),
        case("scx_bpfland", bench::scx_bpfland),
        case(OBJECT, bench::object),
    ],
};

/// The machine of the arena: each of its cases is a scheduler under which all of its programs run, the first
/// one the kernel's own. `vm-arena` boots it anew for every scheduler and seed.
pub static ARENA: Leg = Leg {
    name: "arena",
    machine: EIGHT_CPUS,
    emulation: Emulation::Counted { timer_ns: Some(40_000) },
    kernel_parameters: AS_MODELLED,
    modules: &[],
    cpu_s: 700,
    cases: &[case("eevdf", arena::eevdf), case("tandem", arena::tandem), case(OBJECT, arena::object)],
};

/// The case of a scheduler that is no case of its own: the guest's parameters name its object file.
pub const OBJECT: &str = "object";

/// The leg whose programs run under a scheduler on a real kernel, and in the simulator.
pub fn of(scheduler: &Scheduler) -> &'static Leg {
    let name = match scheduler {
        Scheduler::Tandem => AGREEMENT_LEG,
        Scheduler::Eevdf => EEVDF_LEG,
        Scheduler::Object(_) => ARENA.name,
    };
    find(name).expect("the table has it")
}

/// These programs.
pub fn programs(scheduler: &Scheduler) -> Vec<&'static str> {
    match scheduler {
        Scheduler::Object(_) => ARENA_PROGRAMS.to_vec(),
        Scheduler::Tandem => AGREEMENT_PROGRAMS.to_vec(),
        Scheduler::Eevdf => of(scheduler).cases.iter().map(|case| case.name).collect(),
    }
}

/// The leg of that name.
pub fn find(name: &str) -> Option<&'static Leg> {
    LEGS.iter().chain([&BENCH, &ARENA]).find(|leg| leg.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_machines_even() {
        let mut legs = HashSet::new();
        for leg in LEGS.iter().chain([&BENCH, &ARENA]) {
            assert!(legs.insert(leg.name), "{}", leg.name);
            let mut cases = HashSet::new();
            for case in leg.cases {
                assert!(cases.insert(case.name), "{}/{}", leg.name, case.name);
            }
            assert_eq!(leg.machine.cpus() % leg.machine.nodes, 0, "{}", leg.name);
            assert_eq!(leg.machine.memory_mib % leg.machine.nodes, 0, "{}", leg.name);
        }
    }
}
