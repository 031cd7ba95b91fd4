//! The types of which programs make objects: their size, and what in them has a meaning for functions.

use crate::btf::{Btf, Type, TypeId, essential_name};
use crate::fault::LoadError;
use crate::image::{NodeKind, ObjectType};

/// The structure with a number; `None` if it is none.
pub(crate) fn read_object_type(id: TypeId, btf: &Btf) -> Result<Option<ObjectType>, LoadError> {
    let id = btf.resolve(id)?;
    let Type::Composite { size, .. } = btf.get(id)? else { return Ok(None) };
    let mut found = ObjectType {
        name: btf.name(id).to_owned(),
        size: *size as usize,
        nodes: Vec::new(),
        is_counted: false,
    };
    let (mut parts, mut visited) = (vec![(id, 0)], 0);
    while let Some((id, offset)) = parts.pop() {
        visited += 1;
        let id = btf.resolve(id)?;
        let Type::Composite { members, .. } = btf.get(id)? else { continue };
        match essential_name(btf.name(id)) {
            "bpf_list_node" => found.nodes.push((offset, NodeKind::List)),
            "bpf_rb_node" => found.nodes.push((offset, NodeKind::Tree)),
            "bpf_refcount" => found.is_counted = true,
            // A damaged object may have a structure that contains itself.
            _ if visited == PARTS_MAX => {
                return Err(LoadError(format!("`struct {}` has too many members for an object", found.name)));
            }
            _ => parts.extend(
                members
                    .iter()
                    .filter(|member| member.bit_field.is_none())
                    .map(|member| (member.of, offset + member.bit_offset as usize / 8)),
            ),
        }
    }
    Ok(Some(found))
}

/// Most members of a structure, with those of its members.
const PARTS_MAX: usize = 1 << 12;
