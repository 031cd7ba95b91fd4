//! Functions of the kernel that need no kernel: the runtime does them itself.

/// Their names.
pub(crate) const RUNTIME: &[&str] = &[
    // Maps.
    "bpf_map_lookup_elem",
    "bpf_map_update_elem",
    "bpf_map_delete_elem",
    "bpf_map_push_elem",
    "bpf_map_pop_elem",
    "bpf_map_peek_elem",
    "bpf_map_lookup_percpu_elem",
    "bpf_for_each_map_elem",
    "bpf_ringbuf_output",
    "bpf_ringbuf_reserve",
    "bpf_ringbuf_submit",
    "bpf_ringbuf_discard",
    "bpf_task_storage_get",
    "bpf_task_storage_delete",
    "bpf_cgrp_storage_get",
    "bpf_cgrp_storage_delete",
    "bpf_kptr_xchg",
    // Memory and texts.
    "bpf_probe_read",
    "bpf_probe_read_kernel",
    "bpf_probe_read_kernel_str",
    "bpf_per_cpu_ptr",
    "bpf_this_cpu_ptr",
    "bpf_strncmp",
    "bpf_snprintf",
    "bpf_trace_printk",
    "bpf_trace_vprintk",
    // Loops, locks and timers.
    "bpf_loop",
    "bpf_iter_num_new",
    "bpf_iter_num_next",
    "bpf_iter_num_destroy",
    "bpf_spin_lock",
    "bpf_spin_unlock",
    "bpf_rcu_read_lock",
    "bpf_rcu_read_unlock",
    "bpf_preempt_disable",
    "bpf_preempt_enable",
    "bpf_timer_init",
    "bpf_timer_set_callback",
    "bpf_timer_start",
    "bpf_timer_cancel",
];

/// The name, if the function is one of them.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    RUNTIME.iter().find(|&&known| known == name).copied()
}
