//! Return values of the runtime's functions, and their faults.

use super::{TABLES, helper, is_runtime};
use crate::image::{Function, FunctionId, Image, MapKind};
use crate::maps::errno;
use crate::memory::Memory;
use crate::op::Op;
use crate::state::State;
use crate::testing::{
    Bench, add, address, image, imm, instance, jump_if_equal, load, map, mov, reg, runtime, store,
};
use crate::testing::{TestKernel, scratch};
use crate::{Engine, Fault};

const MAP: u64 = Image::MAPS;

fn function(name: &str, ops: &[Op]) -> Function {
    Function { name: name.to_owned(), ops: ops.to_vec() }
}

#[test]
fn names_are_found_and_are_there_once() {
    assert_eq!(is_runtime("bpf_loop"), Some("bpf_loop"));
    assert_eq!(is_runtime("bpf_ktime_get_ns"), None);
    assert!(helper("bpf_per_cpu_ptr").is_some() && helper("").is_none());
    let mut names: Vec<_> = TABLES.iter().copied().flatten().map(|entry| entry.0).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn records_reach_the_reader_and_a_full_buffer_refuses() {
    let names = [
        "bpf_ringbuf_reserve",
        "bpf_ringbuf_submit",
        "bpf_ringbuf_discard",
        "bpf_ringbuf_output",
        "bpf_ringbuf_query",
    ];
    let [reserve, submit, discard, output, query] = names;
    let mut bench = Bench::new(vec![map(MapKind::RingBuffer, 0, 0, 64)], &names);
    let first = bench.call(reserve, &[MAP, 24, 0]);
    let second = bench.call(reserve, &[MAP, 24, 0]);
    assert_eq!(bench.call(reserve, &[MAP, 1, 0]), 0, "both fill it, with 8 bytes each before them");
    assert_eq!(bench.call(query, &[MAP, 0]), 64);
    let data = bench.put(0, b"other");
    assert_eq!(bench.call(output, &[MAP, data, 5, 0]), errno::EAGAIN);
    bench.memory().store(second, 8, 9).unwrap();
    bench.call(discard, &[first, 0]);
    bench.call(submit, &[second, 0]);
    assert!(bench.fault(submit, &[second, 0]).contains("not a reserved record"));
    assert_eq!(bench.call(output, &[MAP, data, 5, 0]), 0);
    assert_eq!((bench.call(query, &[MAP, 1]), bench.call(query, &[MAP, 3])), (64, 80));
    let state = bench.instance.state_mut();
    let mut record = vec![0; 24];
    record[0] = 9;
    assert_eq!(state.drain(0), [record, b"other".to_vec()]);
    assert!(state.drain(0).is_empty());
    assert_eq!(state.dropped(0), 0);
    for number in 0..10 {
        bench.put(0, &[number]);
        assert_eq!(bench.call(output, &[MAP, data, 1, 0]), 0, "no process reads, and the program continues");
    }
    let state = bench.instance.state_mut();
    assert_eq!((state.drain(0), state.dropped(0)), (vec![vec![6], vec![7], vec![8], vec![9]], 6));
}

/// `bpf_perf_event_output()` and its siblings of kernel/trace/bpf_trace.c (6.12): no counter is installed.
#[test]
fn performance_events_are_dropped_and_counters_are_not_there() {
    let names = ["bpf_perf_event_output", "bpf_perf_event_read", "bpf_perf_event_read_value"];
    let [output, read, read_value] = names;
    let maps = vec![map(MapKind::PerfEventArray, 4, 4, 3), map(MapKind::Array, 4, 4, 1)];
    let mut bench = Bench::new(maps, &names);
    let (this_cpu, data) = (0xffff_ffff, bench.put_number(0, 7));
    assert_eq!(bench.call(output, &[0, MAP, this_cpu, data, 8]), 0);
    assert_eq!(bench.call(output, &[0, MAP, 2, data, 8]), 0);
    assert_eq!(bench.call(output, &[0, MAP, 3, data, 8]), errno::E2BIG);
    assert_eq!(bench.call(output, &[0, MAP, 1 << 32, data, 8]), errno::EINVAL);
    assert!(bench.fault(output, &[0, MAP, 0, 0, 8]).contains("null pointer"));
    assert!(bench.fault(output, &[0, MAP + 1, 0, data, 8]).contains("not possible with a map of this type"));
    assert_eq!(bench.instance.state().dropped(0), 2);
    assert_eq!(bench.call(read, &[MAP, this_cpu]), errno::ENOENT);
    assert_eq!(bench.call(read, &[MAP, 3]), errno::E2BIG);
    assert_eq!(bench.call(read_value, &[MAP, this_cpu, data, 16]), errno::EINVAL);
    assert_eq!(bench.call(read_value, &[MAP, this_cpu, data, 24]), errno::ENOENT);
    assert_eq!(bench.number(data), 0, "the value is cleared");
    bench.kernel.cpu = 3;
    assert_eq!(bench.call(read, &[MAP, this_cpu]), errno::E2BIG, "this CPU has no place in the array");
}

/// `bpf_arena_alloc_pages()` and `bpf_arena_free_pages()` of kernel/bpf/arena.c (6.12).
#[test]
fn arenas_give_pages_and_take_them_back() {
    const PAGE: u64 = Memory::PAGE as u64;
    let names = ["bpf_arena_alloc_pages", "bpf_arena_free_pages"];
    let [allocate, free] = names;
    let mut bench = Bench::new(vec![map(MapKind::Arena, 0, 0, 4), map(MapKind::Array, 4, 4, 1)], &names);
    let first = bench.call(allocate, &[MAP, 0, 3, u64::MAX, 0]);
    assert_eq!(first % PAGE, 0);
    assert!(bench.memory().slice(first, 3 * Memory::PAGE).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(bench.call(allocate, &[MAP, 0, 2, u64::MAX, 0]), 0, "one page is left");
    assert_eq!(bench.call(allocate, &[MAP, 0, 0, u64::MAX, 0]), 0);
    assert_eq!(bench.call(allocate, &[MAP, 0, 1, u64::MAX, 1]), 0, "there are no flags");
    bench.memory().store(first + PAGE, 8, 5).unwrap();
    // By the lower half of the address, in the middle, and more than is in use.
    bench.call(free, &[MAP, (first + PAGE) & 0xffff_ffff, 1]);
    bench.call(free, &[MAP, first + PAGE, 1]);
    assert_eq!(bench.call(allocate, &[MAP, 0, 1, u64::MAX, 0]), first + PAGE);
    assert_eq!(bench.number(first + PAGE), 0, "a page that comes back is empty");
    bench.call(free, &[MAP, first, u64::from(u32::MAX)]);
    assert_ne!(bench.call(allocate, &[MAP, 0, 4, u64::MAX, 0]), 0, "all pages are free");
    assert!(bench.fault(allocate, &[MAP, first, 1, u64::MAX, 0]).contains("not possible"));
    assert!(bench.fault(allocate, &[MAP + 1, 0, 1, u64::MAX, 0]).contains("not possible"));
    assert!(bench.fault(free, &[MAP + 1, first, 1]).contains("not possible"));
}

#[test]
fn loops_call_back_until_the_callback_stops_them() {
    let mut bench = Bench::with_image(&["bpf_loop"], |image| {
        // Sums up the rounds at the context; the second one stops at round 3.
        let sum = [load(3, 2, 0), add(3, reg(1)), store(2, 0, reg(3)), mov(0, imm(0)), Op::Exit];
        let until = [jump_if_equal(1, 3, 3), mov(0, imm(0)), Op::Exit, mov(0, imm(1)), Op::Exit];
        image.functions.extend([function("sum", &sum), function("until", &until)]);
    });
    let (sum, until) = (Image::FUNCTIONS + 1, Image::FUNCTIONS + 2);
    let place = bench.put_number(0, 0);
    assert_eq!(bench.call("bpf_loop", &[10, sum, place, 0]), 10);
    assert_eq!(bench.number(place), 45);
    assert_eq!(bench.call("bpf_loop", &[10, until, place, 0]), 4);
    assert_eq!(bench.call("bpf_loop", &[10, until, place, 1]), errno::EINVAL);
    assert_eq!(bench.call("bpf_loop", &[(8 << 20) + 1, until, place, 0]), errno::E2BIG);
    assert!(bench.fault("bpf_loop", &[1, Image::FUNCTIONS + 3, 0, 0]).contains("is not a function"));
    let fault = bench.fault("bpf_loop", &[1, sum, 0, 0]);
    assert_eq!(fault, "`sum`, instruction 0: a null pointer was followed (8 bytes at offset 0)");
}

#[test]
fn loops_over_elements_see_those_that_are_there() {
    let names = ["bpf_for_each_map_elem", "bpf_map_update_elem", "bpf_map_delete_elem"];
    let [for_each, update, _] = names;
    let maps = vec![map(MapKind::Hash, 8, 8, 9), map(MapKind::Array, 4, 8, 4)];
    let mut bench = Bench::with_image(&names, |image| {
        image.maps = maps;
        // context = context * 2 + value, and deletes key 2 (8 bytes after the address in the context) each
        // time.
        let collect = [
            load(5, 4, 0),
            add(5, reg(5)),
            load(0, 3, 0),
            add(5, reg(0)),
            store(4, 0, reg(5)),
            mov(2, reg(4)),
            add(2, imm(8)),
            Op::CallKernel { import: 2 },
            mov(0, imm(0)),
            Op::Exit,
        ];
        // Writes the key into the value, and uses its whole stack.
        let number = [
            store(10, -512, imm(-1)),
            Op::Load { dst: 5, base: 2, offset: 0, size: crate::Size::W, signed: false, probe: false },
            store(3, 0, reg(5)),
            mov(0, imm(0)),
            Op::Exit,
        ];
        image.functions.extend([function("collect", &collect), function("number", &number)]);
    });
    for number in [3_u64, 2, 1] {
        let key = bench.put_number(0, number);
        bench.call(update, &[MAP, key, key, 0]);
    }
    let context = bench.put_number(16, 0);
    bench.put_number(24, 2);
    assert_eq!(bench.call(for_each, &[MAP, Image::FUNCTIONS + 3, context, 0]), 2, "the second one is gone");
    assert_eq!(bench.number(context), 3 * 2 + 1);
    assert_eq!(bench.call(for_each, &[MAP + 1, Image::FUNCTIONS + 4, 0, 0]), 4);
    for index in 0..4_u8 {
        let value = bench.instance.state().element(1, &[index, 0, 0, 0], 0).unwrap();
        assert_eq!(value, [index, 0, 0, 0, 0, 0, 0, 0]);
    }
    assert_eq!(bench.call(for_each, &[MAP, Image::FUNCTIONS + 3, context, 1]), errno::EINVAL);
}

#[test]
fn iterators_count() {
    let names = ["bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"];
    let [new, next, destroy] = names;
    let mut bench = Bench::new(Vec::new(), &names);
    let iterator = Memory::BASE + 64;
    assert_eq!(bench.call(new, &[iterator, -2_i64 as u64, 1]), 0);
    let mut seen = Vec::new();
    loop {
        match bench.call(next, &[iterator]) {
            0 => break,
            place => seen.push(bench.memory().load(place, 4).unwrap() as i32),
        }
    }
    assert_eq!(seen, [-2, -1, 0]);
    assert_eq!(bench.call(next, &[iterator]), 0, "the end stays the end");
    assert_eq!(bench.call(destroy, &[iterator]), 0);
    assert_eq!(bench.call(new, &[iterator, 5, 4]), errno::EINVAL);
    assert_eq!(bench.call(new, &[iterator, 0, (8 << 20) + 1]), errno::E2BIG);
    assert_eq!(bench.call(next, &[iterator]), 0);
    assert_eq!(bench.call(new, &[iterator, i64::from(i32::MIN) as u64, i64::from(i32::MIN) as u64]), 0);
    assert_eq!(bench.call(next, &[iterator]), 0, "an empty range");
}

/// Calls functions of the runtime one after the other, each with a lock or flags in r1.
fn balance(calls: &[(&'static str, u64)]) -> Result<u64, Fault> {
    let names: Vec<_> = calls.iter().map(|call| call.0).collect();
    let mut ops = Vec::new();
    for (import, call) in calls.iter().enumerate() {
        ops.extend([address(1, Memory::BASE + call.1), Op::CallKernel { import: import as u32 }]);
    }
    ops.push(Op::Exit);
    let mut image = image(&[("balance", &ops)]);
    image.imports = runtime(&names);
    image.sections.push(scratch(64));
    instance(image, Engine::Interpreted).call(&mut TestKernel::default(), FunctionId(0), [0; 5])
}

#[test]
fn locks_and_sections_have_to_balance() {
    let (lock, unlock) = ("bpf_spin_lock", "bpf_spin_unlock");
    let fault = |calls: &[(&'static str, u64)]| balance(calls).unwrap_err().0;
    assert_eq!(balance(&[(lock, 0), (unlock, 0), (lock, 8), (unlock, 8)]), Ok(0));
    assert_eq!(
        fault(&[(lock, 0), (lock, 0)]),
        "`balance`, instruction 3: a lock was taken that is held already"
    );
    assert!(fault(&[(lock, 0), (lock, 8)]).contains("while another one is held"));
    assert!(fault(&[(lock, 0), (unlock, 8)]).contains("not held"));
    assert!(fault(&[(unlock, 0)]).contains("not held"));
    assert_eq!(fault(&[(lock, 0)]), "`balance` returned in a lock that it did not end");
    for (begin, end) in [
        ("bpf_rcu_read_lock", "bpf_rcu_read_unlock"),
        ("bpf_preempt_disable", "bpf_preempt_enable"),
        ("bpf_local_irq_save", "bpf_local_irq_restore"),
    ] {
        assert_eq!(balance(&[(begin, 0), (begin, 8), (end, 8), (end, 0)]), Ok(0), "{begin}");
        assert!(fault(&[(begin, 0)]).contains("did not end"), "{begin}");
        assert!(fault(&[(end, 0)]).contains("had not begun"), "{end}");
    }
}

#[test]
fn probing_survives_wrong_addresses() {
    let (read, text, compare) = ("bpf_probe_read_kernel", "bpf_probe_read_kernel_str", "bpf_strncmp");
    let mut bench = Bench::new(Vec::new(), &[read, text, compare]);
    let source = bench.put(0, b"scheduler\0rest");
    let place = bench.put(64, &[0xff; 16]);
    assert_eq!(bench.call(read, &[place, 4, source]), 0);
    assert_eq!(bench.memory().slice(place, 5).unwrap(), b"sche\xff");
    assert_eq!(bench.call(read, &[place, 8, 16]), errno::EFAULT);
    assert_eq!(bench.memory().slice(place, 9).unwrap(), b"\0\0\0\0\0\0\0\0\xff");
    assert!(bench.fault(read, &[0, 8, source]).contains("null pointer"));
    assert_eq!(bench.call(text, &[place, 16, source]), 10);
    assert_eq!(bench.memory().text(place, 16).unwrap(), "scheduler");
    assert_eq!(bench.call(text, &[place, 6, source]), 6);
    assert_eq!(bench.memory().text(place, 16).unwrap(), "sched");
    assert_eq!(bench.call(text, &[place, 6, 0]), errno::EFAULT);
    assert_eq!(bench.call(text, &[place, 0, source]), 0);
    for (a, b, size, expected) in
        [("abc", "abd", 3, -1), ("abc", "abd", 2, 0), ("b", "a", 9, 1), ("a", "a", 9, 0), ("", "a", 1, -1)]
    {
        let first = bench.put(128, format!("{a}\0").as_bytes());
        let second = bench.put(192, format!("{}\0", &b[..b.len().min(size)]).as_bytes());
        assert_eq!(bench.error(compare, &[first, size as u64, second]), expected, "{a} {b} {size}");
    }
}

#[test]
fn texts_are_as_the_kernel_makes_them() {
    let snprintf = "bpf_snprintf";
    let mut bench = Bench::new(Vec::new(), &[snprintf]);
    let text = bench.put(512, b"rusty\0");
    let minus = -5_i64 as u64;
    for (format, values, expected) in [
        ("plain %%", vec![], "plain %"),
        ("%d|%i|%u|%x", vec![minus, 7, minus, 255], "-5|7|4294967291|ff"),
        ("%ld %lld %lu %llu", vec![minus, minus, 1 << 40, 3], "-5 -5 1099511627776 3"),
        ("%lx %llX %X", vec![1 << 36, 0xabc, 0xabc], "1000000000 ABC ABC"),
        ("[%5d][%-5d][%05d][%+d][% d]", vec![minus, minus, minus, 5, 5], "[   -5][-5   ][-0005][+5][ 5]"),
        ("%s:%8s:%c", vec![text, text, 65], "rusty:   rusty:A"),
        ("%s!", vec![0], "!"),
        ("%p %px", vec![0x1234, 1], "0000000000001234 0000000000000001"),
    ] {
        let format_address = bench.put(0, format!("{format}\0").as_bytes());
        let bytes: Vec<u8> = values.iter().flat_map(|value: &u64| value.to_le_bytes()).collect();
        let data = bench.put(256, &bytes);
        let length =
            bench.call(snprintf, &[1024 + Memory::BASE, 100, format_address, data, bytes.len() as u64]);
        assert_eq!(length, expected.len() as u64 + 1, "{format}");
        assert_eq!(bench.memory().text(1024 + Memory::BASE, 100).unwrap(), expected);
    }
    let format = bench.put(0, b"%s\0");
    let data = bench.put_number(256, text);
    assert_eq!(bench.call(snprintf, &[1024 + Memory::BASE, 3, format, data, 8]), 6, "what it would need");
    assert_eq!(bench.memory().text(1024 + Memory::BASE, 3).unwrap(), "ru");
    assert!(
        bench
            .fault(snprintf, &[1024 + Memory::BASE, 3, format, data, 0])
            .contains("more placeholders than values")
    );
    for wrong in ["%", "%q", "%llls", "%pI4", "%9999d", "%ls"] {
        let format = bench.put(0, format!("{wrong}\0").as_bytes());
        assert!(
            bench.fault(snprintf, &[1024 + Memory::BASE, 9, format, data, 8]).contains("unknown conversion"),
            "{wrong}"
        );
    }
}

#[test]
fn the_last_lines_that_were_printed_are_kept() {
    let (print, print_values) = ("bpf_trace_printk", "bpf_trace_vprintk");
    let mut bench = Bench::new(Vec::new(), &[print, print_values]);
    let format = bench.put(0, b"cpu %d\n\0");
    let data = bench.put_number(64, 2);
    bench.call(print_values, &[format, 8, data, 8]);
    assert_eq!(bench.instance.state().printed().collect::<Vec<_>>(), ["cpu 2"]);
    for number in 0..State::PRINTED_MAX as u64 {
        assert!(bench.call(print, &[format, 8, number]) > 0);
    }
    let state = bench.instance.state();
    assert_eq!(state.printed().count(), State::PRINTED_MAX);
    assert_eq!((state.printed().next(), state.printed().last()), (Some("cpu 0"), Some("cpu 999")));
}

#[test]
fn timers_call_back_with_their_element() {
    let names = [
        "bpf_timer_init",
        "bpf_timer_set_callback",
        "bpf_timer_start",
        "bpf_timer_cancel",
        "bpf_map_delete_elem",
    ];
    let [init, set_callback, start, cancel, delete] = names;
    for kind in [MapKind::Array, MapKind::LruHash] {
        let mut bench = Bench::with_image(&names, |image| {
            image.maps.push(map(kind, 4, 32, 3));
            // The timer is at 16; the callback leaves map and key at 0 and 8, and cannot cancel itself.
            let expired = [
                Op::Load { dst: 4, base: 2, offset: 0, size: crate::Size::W, signed: false, probe: false },
                store(3, 0, reg(1)),
                store(3, 8, reg(4)),
                mov(1, reg(3)),
                add(1, imm(16)),
                Op::CallKernel { import: 3 },
                address(1, Memory::BASE + 256),
                store(1, 0, reg(0)),
                Op::Exit,
            ];
            image.functions.push(function("expired", &expired));
        });
        let callback = Image::FUNCTIONS + names.len() as u64;
        let key = 2_u32.to_le_bytes();
        assert_eq!(bench.instance.state_mut().set_element(0, &key, 0, &[0; 32]), Ok(true));
        let value = bench.instance.state().maps[0].find(&bench.instance.state().memory, &key, 0).unwrap();
        let timer = value + 16;
        assert_eq!(bench.call(start, &[timer, 5, 0]), errno::EINVAL, "not initialised");
        assert_eq!(bench.call(set_callback, &[timer, callback]), errno::EINVAL);
        assert!(bench.fault(init, &[Memory::BASE, MAP, 1]).contains("in no value of the map"));
        assert_eq!(bench.call(init, &[timer, MAP, 1]), 0);
        assert_eq!(bench.call(init, &[timer, MAP, 1]), errno::EBUSY);
        assert_eq!(bench.call(start, &[timer, 5, 0]), errno::EINVAL, "no callback");
        assert_eq!(bench.call(set_callback, &[timer, callback]), 0);
        assert_eq!(bench.call(cancel, &[timer]), 0);
        assert_eq!(bench.call(start, &[timer, 5, 8]), errno::EINVAL, "unknown flag");
        assert_eq!(bench.call(start, &[timer, 5, 0]), 0);
        assert_eq!(bench.call(start, &[timer, 9, 1]), 0);
        assert_eq!(bench.kernel.started, [(timer, 5, false), (timer, 9, true)]);
        assert_eq!(bench.call(cancel, &[timer]), 1);
        bench.instance.timer_expired(&mut bench.kernel, timer).unwrap();
        assert_eq!(bench.number(value), 0, "it was stopped");
        assert_eq!(bench.call(start, &[timer, 5, 0]), 0);
        bench.instance.timer_expired(&mut bench.kernel, timer).unwrap();
        assert_eq!((bench.number(value), bench.number(value + 8)), (MAP, 2));
        assert_eq!(bench.number(Memory::BASE + 256), errno::EDEADLK);
        bench.memory().store(value, 8, 0).unwrap();
        bench.instance.timer_expired(&mut bench.kernel, timer).unwrap();
        assert_eq!(bench.number(value), 0, "it expires once");
        if kind == MapKind::LruHash {
            bench.call(start, &[timer, 5, 0]);
            let key = bench.put(0, &key);
            assert_eq!(bench.call(delete, &[MAP, key]), 0);
            bench.instance.timer_expired(&mut bench.kernel, timer).unwrap();
            assert_eq!(bench.call(cancel, &[timer]), errno::EINVAL, "it went with its element");
            // The memory serves the next element, with a timer of its own, until others replace it.
            let state = bench.instance.state_mut();
            assert_eq!(state.set_element(0, &[5; 4], 0, &[0; 32]), Ok(true));
            assert_eq!(state.maps[0].find(&state.memory, &[5; 4], 0), Some(value));
            assert_eq!(bench.call(init, &[timer, MAP, 1]), 0);
            for key in 6..9 {
                assert_eq!(bench.instance.state_mut().set_element(0, &[key; 4], 0, &[0; 32]), Ok(true));
            }
            assert_eq!(bench.call(cancel, &[timer]), errno::EINVAL, "it was dropped with its element");
        }
    }
}

#[test]
fn variables_of_the_kernel_are_found_by_cpu() {
    let (on_cpu, here) = ("bpf_per_cpu_ptr", "bpf_this_cpu_ptr");
    let stands_at = Image::VARIABLES + Image::VARIABLE_SPACING;
    let mut bench = Bench::with_image(&[on_cpu, here], |image| {
        image.kernel_variables =
            vec![("other".to_owned(), Image::VARIABLES), ("runqueues".to_owned(), stands_at)];
    });
    let contents = bench.instance.state().variable("runqueues", 3).unwrap();
    bench.memory().store(contents + 8, 8, 55).unwrap();
    let seen = bench.call(on_cpu, &[stands_at + 8, 3]);
    assert_eq!((seen, bench.number(seen)), (contents + 8, 55));
    assert_eq!(bench.call(on_cpu, &[stands_at, 4]), 0);
    bench.kernel.cpu = 3;
    assert_eq!(bench.call(here, &[stands_at]), contents);
    assert_eq!(bench.instance.state().variable("missing", 0), None);
    assert!(bench.fault(here, &[Memory::BASE]).contains("not the address of a variable"));
}

#[test]
fn pointers_in_values_are_exchanged() {
    let mut bench = Bench::new(Vec::new(), &["bpf_kptr_xchg"]);
    let place = bench.put_number(0, 7);
    assert_eq!(bench.call("bpf_kptr_xchg", &[place, 9]), 7);
    assert_eq!(bench.call("bpf_kptr_xchg", &[place, 0]), 9);
    assert_eq!(bench.number(place), 0);
}
