//! What is shown, and what keys do to it.

use super::column::Column;
use super::sample::Sample;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::{HashMap, VecDeque};
use tandem_host::vms::Identity;
use tandemd::observe::ObservedVm;
use tandemd::text::{Percentages, by};

/// Most samples of a trend.
pub const TREND_MAX: usize = 30;

/// What is shown.
pub struct State {
    pub sample: Option<Sample>,
    /// Nothing new is shown.
    pub is_paused: bool,
    pub sorted_by: Column,
    pub is_reversed: bool,
    /// VMs with this in their name, manager or home, in upper or lower case.
    pub filter: String,
    pub view: View,
    /// Stays on its VM when that moves in the table.
    pub selected: Option<Identity>,
    /// First thread that is shown in detail, or first line of the help.
    pub scroll: usize,
    /// CPU of each VM, in percent, the last one last.
    pub trends: HashMap<Identity, VecDeque<f64>>,
    /// Lines that the table had when it was drawn.
    pub page: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    List,
    /// The list, while a filter is typed.
    Filter,
    Detail(Identity),
    Help,
}

/// The action that a key requests from the thread that has the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// Nothing but to draw again.
    Draw,
    Quit,
    /// Give the terminal back to the shell for a while.
    Suspend,
}

impl State {
    pub fn new(sorted_by: Column, filter: String) -> Self {
        Self {
            sample: None,
            is_paused: false,
            sorted_by,
            is_reversed: false,
            filter,
            view: View::List,
            selected: None,
            scroll: 0,
            trends: HashMap::new(),
            page: 1,
        }
    }

    /// Takes a new sample, unless it is paused.
    pub fn take(&mut self, sample: Sample) {
        if self.is_paused {
            return;
        }
        self.trends.retain(|vm, _| sample.vm(*vm).is_some());
        for vm in &sample.vms.vms {
            let trend = self.trends.entry(vm.vm.identity).or_default();
            if trend.len() == TREND_MAX {
                trend.pop_front();
            }
            trend.push_back(Percentages::of(vm, &sample.vms).cpu);
        }
        self.sample = Some(sample);
    }

    /// The VMs that are shown, in their order.
    pub fn rows(&self) -> Vec<&ObservedVm> {
        let Some(sample) = &self.sample else { return Vec::new() };
        let mut rows: Vec<&ObservedVm> = sample.vms.vms.iter().filter(|vm| self.fits(vm)).collect();
        rows.sort_by(|a, b| self.sorted_by.order(a, b, sample));
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    fn fits(&self, vm: &ObservedVm) -> bool {
        let wanted = self.filter.to_lowercase();
        vm.vm.name.to_lowercase().contains(&wanted) || by(&vm.vm).to_lowercase().contains(&wanted)
    }

    /// The line of the selected VM: the first one if there is none, or it is not shown.
    pub fn selected_row(&self, rows: &[&ObservedVm]) -> usize {
        rows.iter().position(|vm| Some(vm.vm.identity) == self.selected).unwrap_or(0)
    }

    /// The VM that the next sample has to cover in detail.
    pub fn wanted_detail(&self) -> Option<Identity> {
        match self.view {
            View::Detail(vm) => Some(vm),
            _ => None,
        }
    }

    /// Does what a key says.
    pub fn press(&mut self, key: KeyEvent) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyAction::Quit,
                KeyCode::Char('z') => KeyAction::Suspend,
                _ => KeyAction::Draw,
            };
        }
        match self.view {
            View::Filter => self.type_filter(key.code),
            View::Help => match key.code {
                KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
                KeyCode::Down => self.scroll += 1,
                _ => (self.view, self.scroll) = (View::List, 0),
            },
            View::List | View::Detail(_) => match key.code {
                KeyCode::Char('q') if self.view == View::List => return KeyAction::Quit,
                KeyCode::Char('q') | KeyCode::Esc | KeyCode::Backspace => self.back(),
                KeyCode::Char(' ') => self.is_paused = !self.is_paused,
                KeyCode::Char('?' | 'h') | KeyCode::F(1) => (self.view, self.scroll) = (View::Help, 0),
                KeyCode::Up | KeyCode::Char('k') => self.go(-1),
                KeyCode::Down | KeyCode::Char('j') => self.go(1),
                KeyCode::PageUp => self.go(-(self.page as isize)),
                KeyCode::PageDown => self.go(self.page as isize),
                KeyCode::Home => self.go(isize::MIN),
                KeyCode::End => self.go(isize::MAX),
                code if self.view == View::List => self.change_list(code),
                _ => {}
            },
        }
        KeyAction::Draw
    }

    fn back(&mut self) {
        match self.view {
            View::List => self.filter.clear(),
            _ => self.view = View::List,
        }
    }

    fn change_list(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => {
                let rows = self.rows();
                if let Some(vm) = rows.get(self.selected_row(&rows)) {
                    let vm = vm.vm.identity;
                    (self.selected, self.view, self.scroll) = (Some(vm), View::Detail(vm), 0);
                }
            }
            KeyCode::Char('/') => self.view = View::Filter,
            KeyCode::Char('<') | KeyCode::Left => self.sort_by_neighbour(Column::ALL.len() - 1),
            KeyCode::Char('>') | KeyCode::Right => self.sort_by_neighbour(1),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            _ => {}
        }
    }

    fn sort_by_neighbour(&mut self, further: usize) {
        let at = Column::ALL.iter().position(|&column| column == self.sorted_by).unwrap_or(0);
        self.sorted_by = Column::ALL[(at + further) % Column::ALL.len()];
        self.is_reversed = false;
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(character) => self.filter.push(character),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.view = View::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.view = View::List;
            }
            _ => {}
        }
    }

    /// Moves by so many lines.
    fn go(&mut self, lines: isize) {
        let moved = |from: usize, last: usize| from.saturating_add_signed(lines).min(last);
        if let View::Detail(vm) = self.view {
            let threads =
                self.sample.as_ref().and_then(|sample| sample.vm(vm)).map_or(0, |vm| vm.threads.len());
            self.scroll = moved(self.scroll, threads.saturating_sub(self.page));
            return;
        }
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else { return };
        self.selected = Some(rows[moved(self.selected_row(&rows), last)].vm.identity);
    }
}
