//! Distances between NUMA nodes, in hwloc's two forms.
//!
//! Version 2 names the nodes: `<distances2 type="NUMANode" kind="5" indexing="os">` holds `indexes` and
//! `u64values`, each in one or several elements. Version 1 only counts: `<distances nbobjs="2"
//! relative_depth="1" latency_base="10.0">` under the `Machine` object belongs to all objects of that depth,
//! in document order. Values may be measured times instead of ACPI's units; a matrix is scaled so that its
//! smallest own distance is 10.

use super::{NumaNode, Reader};
use crate::topology::TopologyError;
use roxmltree::Node as Element;
use std::collections::{BTreeMap, BTreeSet};
use tandem_machine::{LOCAL_DISTANCE, REMOTE_DISTANCE};

/// Bits of `kind`.
const FROM_OS: u64 = 1;
const MEANS_LATENCY: u64 = 4;
/// Largest distance that ACPI can express.
const MAX_DISTANCE: f64 = 255.0;

/// A matrix between some of the nodes.
struct Matrix {
    /// Indices into the nodes found; `None` for a node that the file does not have.
    nodes: Vec<Option<usize>>,
    /// Row by row; finite and positive.
    values: Vec<f64>,
}

impl<'a> Reader<'a> {
    /// A row for each node; empty if the file has no distances.
    pub(super) fn distances(
        &self,
        machine: Element<'a, 'a>,
        nodes: &[NumaNode],
        node_of_cpu: &[u32],
    ) -> Result<Option<Vec<Vec<u32>>>, TopologyError> {
        let matrix = match self.matrix_of_version_2(nodes)? {
            Some(matrix) => Some(matrix),
            None => self.matrix_of_version_1(machine, nodes)?,
        };
        let with_cpus: BTreeSet<u32> = node_of_cpu.iter().copied().collect();
        let has_cpus: Vec<bool> = nodes.iter().map(|node| with_cpus.contains(&node.os_index)).collect();
        Ok(matrix.map(|matrix| rows(&matrix, &has_cpus)))
    }

    fn matrix_of_version_2(&self, nodes: &[NumaNode]) -> Result<Option<Matrix>, TopologyError> {
        let mut best: Option<(u64, Element<'a, 'a>)> = None;
        for element in self.document.root_element().children() {
            if element.has_tag_name("distances2") && element.attribute("type") == Some("NUMANode") {
                let kind = self.number(element, "kind")?.unwrap_or(FROM_OS | MEANS_LATENCY);
                let rank = kind & FROM_OS;
                if kind & MEANS_LATENCY != 0 && best.is_none_or(|(other, _)| rank > other) {
                    best = Some((rank, element));
                }
            }
        }
        let Some((_, element)) = best else {
            return Ok(None);
        };
        let by_gp_index = element.attribute("indexing") == Some("gp");
        let known: BTreeMap<u64, usize> = nodes
            .iter()
            .enumerate()
            .filter_map(|(at, node)| {
                Some((if by_gp_index { node.gp_index? } else { node.os_index.into() }, at))
            })
            .collect();
        let indexes: Vec<u64> = self.list(element, "indexes")?;
        let values: Vec<f64> = self.list(element, "u64values")?;
        self.matrix(element, indexes.iter().map(|index| known.get(index).copied()).collect(), values)
            .map(Some)
    }

    fn matrix_of_version_1(
        &self,
        machine: Element<'a, 'a>,
        nodes: &[NumaNode],
    ) -> Result<Option<Matrix>, TopologyError> {
        for element in machine.children().filter(|child| child.has_tag_name("distances")) {
            let count: Option<usize> = self.number(element, "nbobjs")?;
            let depth: Option<u32> = self.number(element, "relative_depth")?;
            if count != Some(nodes.len()) || !nodes.iter().any(|node| Some(node.depth) == depth) {
                continue;
            }
            // The base is only a scale factor, and the following code scales anyway.
            let mut values = Vec::new();
            for latency in element.children().filter(|child| child.has_tag_name("latency")) {
                values.extend(self.number::<f64>(latency, "value")?);
            }
            return self.matrix(element, (0..nodes.len()).map(Some).collect(), values).map(Some);
        }
        Ok(None)
    }

    fn matrix(
        &self,
        element: Element<'a, 'a>,
        nodes: Vec<Option<usize>>,
        values: Vec<f64>,
    ) -> Result<Matrix, TopologyError> {
        if values.len() != nodes.len() * nodes.len() {
            let (found, expected) = (values.len(), nodes.len());
            return self.malformed(element, format!("has {found} values; expected {expected} x {expected}"));
        }
        if let Some(odd) = values.iter().find(|value| !value.is_finite() || **value <= 0.0) {
            return self.malformed(element, format!("has the distance {odd}; it must be positive"));
        }
        Ok(Matrix { nodes, values })
    }

    /// All numbers in the text of the child elements of this name.
    fn list<T: std::str::FromStr>(
        &self,
        element: Element<'a, 'a>,
        name: &str,
    ) -> Result<Vec<T>, TopologyError> {
        let mut numbers = Vec::new();
        for child in element.children().filter(|child| child.has_tag_name(name)) {
            for word in child.text().unwrap_or_default().split_whitespace() {
                match word.parse() {
                    Ok(number) => numbers.push(number),
                    Err(_) => {
                        return self.malformed(child, format!("`{word:.40}` is not a number in range"));
                    }
                }
            }
        }
        Ok(numbers)
    }
}

/// The matrix in ACPI's units, for all nodes.
fn rows(matrix: &Matrix, has_cpus: &[bool]) -> Vec<Vec<u32>> {
    let count = matrix.nodes.len();
    let own = (0..count).map(|at| matrix.values[at * count + at]).fold(f64::INFINITY, f64::min);
    let mut rows: Vec<Vec<u32>> = (0..has_cpus.len())
        .map(|from| {
            (0..has_cpus.len()).map(|to| if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE }).collect()
        })
        .collect();
    for (value, at) in matrix.values.iter().zip(0..) {
        let (Some(from), Some(to)) = (matrix.nodes[at / count], matrix.nodes[at % count]) else {
            continue;
        };
        // Measured own distances differ a little; a node with CPUs is 10 from itself.
        if from != to || !has_cpus[from] {
            let scaled = (value / own * f64::from(LOCAL_DISTANCE)).round();
            // In range, so the conversion is exact.
            rows[from][to] = scaled.clamp(f64::from(LOCAL_DISTANCE), MAX_DISTANCE) as u32;
        }
    }
    rows
}
