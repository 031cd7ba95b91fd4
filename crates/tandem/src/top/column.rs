//! The columns of the table of VMs: what is in them, and which of two VMs comes first by them.

use super::sample::Sample;
use clap::ValueEnum;
use std::cmp::Ordering;
use tandemd::observe::ObservedVm;
use tandemd::text::{Percentages, UNKNOWN, by, bytes, fullest_node, home, main_node, name, pct, rate};

/// A column by which VMs can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Name,
    By,
    Pid,
    Vcpus,
    Cpu,
    Wait,
    Steal,
    Local,
    Home,
    Migrations,
    Memory,
    Node,
}

impl Column {
    /// As they stand from left to right.
    pub const ALL: [Self; 12] = [
        Self::Name,
        Self::By,
        Self::Pid,
        Self::Vcpus,
        Self::Cpu,
        Self::Wait,
        Self::Steal,
        Self::Local,
        Self::Home,
        Self::Migrations,
        Self::Memory,
        Self::Node,
    ];

    /// Those that a narrow terminal may go without, the least wanted last.
    pub const SPARE: [Self; 5] = [Self::Memory, Self::Migrations, Self::Node, Self::By, Self::Pid];

    pub fn title(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::By => "BY",
            Self::Pid => "PID",
            Self::Vcpus => "VCPU",
            Self::Cpu => "CPU",
            Self::Wait => "WAIT",
            Self::Steal => "STEAL",
            Self::Local => "LOCAL",
            Self::Home => "HOME",
            Self::Migrations => "MIGR/s",
            Self::Memory => "MEMORY",
            Self::Node => "NODE",
        }
    }

    /// Room that is kept even if nothing needs it now, so that columns stay where they are when figures
    /// change.
    pub fn width_min(self) -> usize {
        match self {
            Self::Name => 8,
            Self::Memory => 9,
            Self::Pid => 7,
            Self::Cpu => 6,
            Self::Home | Self::Node => 5,
            _ => self.title().len() + 1,
        }
    }

    /// Whether it is text, which stands on the left; numbers stand on the right.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::By)
    }

    pub fn cell(self, vm: &ObservedVm, sample: &Sample) -> String {
        let unknown = || UNKNOWN.to_owned();
        let percentages = || Percentages::of(vm, &sample.vms);
        match self {
            Self::Name => name(&vm.vm.name),
            Self::By => by(&vm.vm),
            Self::Pid => vm.vm.identity.pid.to_string(),
            Self::Vcpus => vm.vcpu_count().to_string(),
            Self::Cpu => pct(Some(percentages().cpu)),
            Self::Wait => pct(percentages().wait),
            Self::Steal => pct(percentages().steal),
            Self::Local => percentages().local.map_or("-".into(), |local| pct(Some(local))),
            Self::Home => home(&vm.homes),
            Self::Migrations => sample.vm_migrations.get(&vm.vm.identity).copied().map_or_else(unknown, rate),
            Self::Memory => {
                let amount = |amount: Option<u64>| amount.map_or_else(unknown, bytes);
                format!("{}/{}", amount(vm.memory.resident_bytes), amount(vm.vm.memory_bytes))
            }
            Self::Node => main_node(&vm.memory).unwrap_or_else(unknown),
        }
    }

    /// Which of two VMs comes first: the worse or the larger one, by names in alphabetical order. What is
    /// unknown comes last; what is equal goes by name.
    pub fn order(self, a: &ObservedVm, b: &ObservedVm, sample: &Sample) -> Ordering {
        let by_key = match self {
            Self::Name | Self::By => self.cell(a, sample).cmp(&self.cell(b, sample)),
            Self::Home => {
                (a.homes.nodes.is_empty(), &a.homes.nodes).cmp(&(b.homes.nodes.is_empty(), &b.homes.nodes))
            }
            _ => match (self.key(a, sample), self.key(b, sample)) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        };
        by_key.then_with(|| (&a.vm.name, a.vm.identity).cmp(&(&b.vm.name, b.vm.identity)))
    }

    /// What is larger comes first.
    fn key(self, vm: &ObservedVm, sample: &Sample) -> Option<f64> {
        let percentages = || Percentages::of(vm, &sample.vms);
        match self {
            Self::Name | Self::By | Self::Home => None,
            Self::Pid => Some(-f64::from(vm.vm.identity.pid)),
            Self::Vcpus => Some(vm.vcpu_count() as f64),
            Self::Cpu => Some(percentages().cpu),
            Self::Wait => percentages().wait,
            Self::Steal => percentages().steal,
            // Who is away from home most.
            Self::Local => percentages().local.map(|local| -local),
            Self::Migrations => sample.vm_migrations.get(&vm.vm.identity).copied(),
            Self::Memory => vm.memory.resident_bytes.map(|bytes| bytes as f64),
            Self::Node => fullest_node(&vm.memory).map(|(node, _)| -f64::from(node)),
        }
    }
}
