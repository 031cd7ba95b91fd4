//! When the ticks of a kernel's CPUs come; see [`Timer`].

use crate::cost::Timer;
use crate::engine::random::{Entity, random};
use tandem_machine::ids::{CpuId, KernelId};

/// The ticks of a kernel.
pub(crate) struct Ticks {
    timer: Option<Timer>,
    seed: u64,
    kernel: KernelId,
    /// Where in the period each CPU ticks, before any lateness, ns.
    phase_ns: Vec<u64>,
    /// Each CPU keeps time for itself, rather than all together.
    apart: bool,
    period_ns: u64,
}

impl Ticks {
    /// Those of a kernel with so many CPUs. All come at multiples of the period without a timer.
    pub fn new(
        timer: Option<Timer>,
        seed: u64,
        kernel: KernelId,
        cpus: usize,
        apart: bool,
        period_ns: u64,
    ) -> Self {
        let phase_ns = |cpu: usize| match timer {
            Some(Timer::Phased { phase_ns }) if kernel == KernelId::HOST => phase_ns % period_ns,
            Some(_) => {
                let key = u64::from(kernel.0) << 32 | if apart { cpu as u64 } else { 0 };
                random(seed, Entity::TickPhase, key) % period_ns
            }
            None => 0,
        };
        Self { timer, seed, kernel, phase_ns: (0..cpus).map(phase_ns).collect(), apart, period_ns }
    }

    /// The next tick of a CPU after now.
    pub fn next_ns(&self, cpu: CpuId, now_ns: u64) -> u64 {
        let phase_ns = self.phase_ns[cpu.index()];
        let number = (now_ns + self.period_ns - phase_ns) / self.period_ns;
        phase_ns + number * self.period_ns + self.lateness_ns(cpu, number)
    }

    /// A tick of the CPU is handled.
    pub fn handled(&mut self, cpu: CpuId, now_ns: u64) {
        if self.apart && self.timer.is_some() {
            self.phase_ns[cpu.index()] = now_ns % self.period_ns;
        }
    }

    /// The CPU is no longer idle.
    pub fn resumed(&mut self, cpu: CpuId) {
        if self.apart {
            self.phase_ns[cpu.index()] = 0;
        }
    }

    /// The same for the same tick in every variant.
    fn lateness_ns(&self, cpu: CpuId, number: u64) -> u64 {
        let key = || u64::from(self.kernel.0) << 48 ^ u64::from(cpu.0) << 32 ^ number;
        self.timer.map_or(0, |timer| timer.lateness_ns(random(self.seed, Entity::TickLateness, key())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 4_000_000;

    fn ticks(timer: Option<Timer>, seed: u64, kernel: u32, apart: bool) -> Ticks {
        Ticks::new(timer, seed, KernelId(kernel), 4, apart, PERIOD_NS)
    }

    #[test]
    fn without_a_timer_all_come_at_multiples_of_the_period() {
        for apart in [false, true] {
            let mut ticks = ticks(None, 1, 0, apart);
            ticks.handled(CpuId(0), 123);
            for (now_ns, expected_ns) in [(0, PERIOD_NS), (1, PERIOD_NS), (PERIOD_NS, 2 * PERIOD_NS)] {
                assert_eq!(ticks.next_ns(CpuId(0), now_ns), expected_ns);
            }
        }
    }

    #[test]
    fn cpus_of_linux_tick_together_and_kernels_do_not() {
        let phase_ns = |seed, kernel, cpu| {
            let ticks = ticks(Some(Timer::Hardware), seed, kernel, false);
            ticks.next_ns(CpuId(cpu), 0) / 20_000
        };
        assert!((1..4).all(|cpu| phase_ns(1, 0, cpu).abs_diff(phase_ns(1, 0, 0)) <= 1));
        assert_ne!(phase_ns(1, 0, 0), phase_ns(1, 1, 0));
        assert_ne!(phase_ns(1, 0, 0), phase_ns(2, 0, 0));
    }

    #[test]
    fn a_tick_comes_once_a_period_however_late_the_last_was() {
        let ticks = ticks(Some(Timer::Hardware), 7, 3, false);
        let mut at_ns = ticks.next_ns(CpuId(2), 0);
        for _ in 0..10_000 {
            let next_ns = ticks.next_ns(CpuId(2), at_ns);
            assert!((next_ns - at_ns).abs_diff(PERIOD_NS) <= 16_000, "{at_ns} {next_ns}");
            at_ns = next_ns;
        }
    }

    #[test]
    fn emulated_cpus_tick_one_after_the_other() {
        let ticks = ticks(Some(Timer::Emulated { late_max_ns: 40_000 }), 1, 0, false);
        let late_ns = |number| ticks.next_ns(CpuId(0), number * PERIOD_NS) % PERIOD_NS;
        let late_ns: Vec<u64> = (1..1_000).map(late_ns).collect();
        let (first_ns, last_ns) = (late_ns.iter().min().unwrap(), late_ns.iter().max().unwrap());
        assert!((39_000..=40_000).contains(&(last_ns - first_ns)), "{first_ns} to {last_ns}");
    }

    #[test]
    fn a_pcpu_of_xen_drifts_until_it_idles() {
        let mut ticks = ticks(Some(Timer::Hardware), 7, 0, true);
        let first_ns = ticks.next_ns(CpuId(1), 0);
        let mut at_ns = first_ns;
        for _ in 0..1_000 {
            ticks.handled(CpuId(1), at_ns);
            at_ns = ticks.next_ns(CpuId(1), at_ns);
        }
        assert!(at_ns > first_ns + 1_000 * PERIOD_NS + 500_000, "about a microsecond a tick");
        ticks.resumed(CpuId(1));
        assert!(ticks.next_ns(CpuId(1), at_ns) % PERIOD_NS < 16_000);
    }
}
