//! Objects that programs allocate: `bpf_obj_new()` and its siblings. The `_impl` names have arguments that the
//! verifier fills in, which have no meaning here.

use super::Table;
use crate::fault::Fault;
use crate::image::ObjectType;
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_obj_new_impl", make),
    ("bpf_obj_new", make),
    ("bpf_obj_drop_impl", drop),
    ("bpf_obj_drop", drop),
    ("bpf_percpu_obj_new_impl", make_per_cpu),
    ("bpf_percpu_obj_new", make_per_cpu),
    ("bpf_percpu_obj_drop_impl", drop),
    ("bpf_percpu_obj_drop", drop),
    ("bpf_refcount_acquire_impl", acquire),
    ("bpf_refcount_acquire", acquire),
    ("bpf_kptr_xchg", exchange),
];

fn make(run: &mut Run, [of, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    make_on(run, of, None, "bpf_obj_new")
}

fn make_per_cpu(run: &mut Run, [of, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    make_on(run, of, Some(run.state.cpu_count), "bpf_percpu_obj_new")
}

fn make_on(run: &mut Run, of: u64, cpu_count: Option<usize>, function: &str) -> Result<u64, Fault> {
    let Some(ObjectType { size, .. }) = run.image.objects.get(&of) else {
        return Err(Fault(format!(
            "`{function}` got {of}, which is not the number of a structure of the object file"
        )));
    };
    let made = run.state.objects.make(&mut run.state.memory, (of, *size), cpu_count)?;
    Ok(made.inspect(|_| run.held.objects += 1).unwrap_or(0))
}

fn drop(run: &mut Run, [object, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    take(run, "bpf_obj_drop", object)?;
    run.state.objects.release(&mut run.state.memory, object)?;
    Ok(0)
}

fn acquire(run: &mut Run, [object, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    const NAME: &str = "bpf_refcount_acquire";
    let of = run.state.objects.expect(NAME, object)?.of;
    match run.image.objects.get(&of) {
        Some(of) if of.is_counted => {}
        _ => return Err(Fault(format!("`{NAME}` got an object without a `struct bpf_refcount`"))),
    }
    run.state.objects.acquire(object)?;
    run.held.objects += 1;
    Ok(object)
}

/// Takes a reference to an object away from the program.
pub(super) fn take(run: &mut Run, function: &str, object: u64) -> Result<(), Fault> {
    run.state.objects.take(function, object)?;
    run.held.objects = run.held.objects.saturating_sub(1);
    Ok(())
}

/// Gives the program a reference to an object that has been in a field, list or tree.
pub(super) fn give(run: &mut Run, object: u64) {
    run.state.objects.give(object);
    run.held.objects += 1;
}

/// Puts a pointer into a field, and returns the previous one: to an object of the program's, or to one of the
/// kernel's.
fn exchange(run: &mut Run, [field, pointer, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    const NAME: &str = "bpf_kptr_xchg";
    let old = run.state.memory.load(field, 8)?;
    let known = run.state.objects.fields.get(&field).copied();
    if known.is_some_and(|known| known != old) {
        return Err(Fault(format!("`{NAME}` got a field that the program has written to by other means")));
    }
    if run.state.objects.around(pointer).is_some() || run.state.objects.has_gone(pointer) {
        take(run, NAME, pointer)?;
        run.state.objects.fields.insert(field, pointer);
    } else {
        run.state.objects.fields.remove(&field);
    }
    if let Some(object) = known {
        give(run, object);
    }
    run.state.memory.store(field, 8, pointer)?;
    Ok(old)
}
