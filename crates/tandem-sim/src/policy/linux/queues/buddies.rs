//! Buddies, on all levels: a mark on a task is one on its groups, too. EEVDF has the next one alone.

use super::Queues;
use super::member::{LevelId, Member};
use crate::policy::linux::discipline::Cfs;

impl Queues {
    /// Marks a task or a group, and the groups that it is in, each in its queue.
    fn mark(&mut self, mut member: Member, mut level: LevelId, mark: impl Fn(&mut Cfs, LevelId, Member)) {
        let Some(cfs) = self.discipline.cfs() else { return };
        loop {
            // A group that is throttled, or not yet there, is not marked.
            if !self.rqs.is_queued(member) && self.rqs.timeline(level).curr() != Some(member) {
                return;
            }
            mark(cfs, level, member);
            let Some(above) = self.rqs.up(level) else { return };
            (member, level) = above;
        }
    }

    /// It should run next (`set_next_buddy()`), unless it is an idle task.
    pub(super) fn mark_next(&mut self, mut member: Member, mut level: LevelId) {
        if self.rqs.is_idle(member) {
            return;
        }
        loop {
            self.discipline.set_next_buddy(level, member);
            let Some(above) = self.rqs.up(level) else { return };
            (member, level) = above;
        }
    }

    /// It is preempted, and should run next (`set_last_buddy()`); it is no idle task, which a task of another
    /// kind preempts by its policy, and one of its own does not.
    pub(super) fn mark_last(&mut self, member: Member, level: LevelId) {
        self.mark(member, level, Cfs::set_last_buddy);
    }

    /// It is passed over once (`set_skip_buddy()`).
    pub(super) fn mark_skip(&mut self, member: Member, level: LevelId) {
        self.mark(member, level, Cfs::set_skip_buddy);
    }

    /// Takes the marks off a task or a group, and off those groups above it that have them because of it
    /// (`clear_buddies()`).
    pub(super) fn clear_buddies(&mut self, mut member: Member, mut level: LevelId) {
        let mut kinds = [true; 3];
        loop {
            kinds = self.discipline.clear_buddies(level, member, kinds);
            let Some(above) = self.rqs.up(level).filter(|_| kinds.contains(&true)) else { return };
            (member, level) = above;
        }
    }
}
