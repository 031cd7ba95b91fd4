//! Where somebody would rather run: the options, and checks against this machine.

use super::list::List;
use tandem_host::scheduler::cpus_of_nodes;
use tandem_machine::{Machine, format_cpulist};
use tandem_settings::{Mode, Place};
use tandemd::error::BadInput;

/// Options that name CPUs or nodes.
#[derive(Clone, clap::Args)]
#[group(multiple = false)]
pub struct PlaceArgs {
    /// CPUs to prefer: soft affinity
    #[arg(long, value_name = "LIST")]
    cpus: Option<List>,
    /// NUMA nodes to prefer: homes
    #[arg(long, value_name = "LIST")]
    nodes: Option<List>,
}

impl PlaceArgs {
    /// What the options name, on this machine and in this mode, if that is known; nothing without them.
    ///
    /// # Errors
    /// If a CPU is not online, nodes have none that is, or none that is not isolated, or guest mode is asked
    /// about nodes.
    pub fn find(&self, machine: &Machine, mode: Option<Mode>) -> Result<Option<Place>, BadInput> {
        match (&self.cpus, &self.nodes) {
            (Some(List(cpus)), _) => {
                check("CPU", cpus, &machine.cpus().iter().map(|cpu| cpu.os_index).collect::<Vec<_>>())?;
                Ok(Some(Place::Cpus(cpus.clone())))
            }
            (_, Some(_)) if mode == Some(Mode::Guest) => {
                Err(BadInput::new("the scheduler runs in guest mode, which knows no nodes; use --cpus"))
            }
            (_, Some(List(nodes))) => {
                let with_cpus = machine.nodes().iter().filter(|node| !node.cpus.is_empty());
                check("node", nodes, &with_cpus.map(|node| node.os_index).collect::<Vec<_>>())?;
                let cpus = cpus_of_nodes(machine, nodes);
                match cpus.is_empty() {
                    true => {
                        Err(BadInput::new("all CPUs of these nodes are isolated; use --cpus to name some"))
                    }
                    false => Ok(Some(Place::Nodes { nodes: nodes.clone(), cpus })),
                }
            }
            (None, None) => Ok(None),
        }
    }
}

fn check(what: &str, asked: &[u32], online: &[u32]) -> Result<(), BadInput> {
    let absent: Vec<u32> = asked.iter().copied().filter(|number| !online.contains(number)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let mut online = online.to_vec();
    online.sort_unstable();
    let (absent_list, online) = (format_cpulist(absent.iter().copied()), format_cpulist(online));
    let (is, whats) = match absent.len() {
        1 => ("is", what.to_owned()),
        _ => ("are", format!("{what}s")),
    };
    Err(BadInput::new(format!("{whats} {absent_list} {is} not online; {what}s that are: {online}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::preset;

    fn find(cpus: Option<&str>, nodes: Option<&str>, mode: Mode) -> Result<Option<Place>, String> {
        let list = |text: &str| text.parse().unwrap();
        let args = PlaceArgs { cpus: cpus.map(list), nodes: nodes.map(list) };
        // 4 nodes of 20 CPUs.
        args.find(&preset("westmere-ex-4s").unwrap(), Some(mode)).map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_stand_for_their_cpus() {
        let place = Place::Nodes { nodes: vec![1], cpus: (20..40).collect() };
        assert_eq!(find(None, Some("1"), Mode::Host), Ok(Some(place)));
        assert_eq!(find(Some("79"), None, Mode::Guest), Ok(Some(Place::Cpus(vec![79]))));
        assert_eq!(find(None, None, Mode::Host), Ok(None));
    }

    #[test]
    fn what_is_not_online_is_named() {
        let cases = [
            (Some("0,80-81"), None, "CPUs 80-81 are not online; CPUs that are: 0-79"),
            (Some("100"), None, "CPU 100 is not online; CPUs that are: 0-79"),
            (None, Some("3-4"), "node 4 is not online; nodes that are: 0-3"),
        ];
        for (cpus, nodes, expected) in cases {
            assert_eq!(find(cpus, nodes, Mode::Host).unwrap_err(), expected);
        }
    }

    #[test]
    fn guest_mode_knows_no_nodes() {
        let error = find(None, Some("0"), Mode::Guest).unwrap_err();
        assert_eq!(error, "the scheduler runs in guest mode, which knows no nodes; use --cpus");
    }
}
