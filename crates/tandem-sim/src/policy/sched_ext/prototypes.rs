//! The parameters and results of the kernel's functions, as its BTF has them: of 6.18, and where only others have a
//! function, as scx's headers and the kernel's sources (kernel/sched/ext.c, kernel/bpf/helpers.c) declare it. Those that
//! two kernels have are the same in both.

/// Prototypes in the form of [`tandem_ebpf::Environment::prototypes`], each with the functions that have it.
#[rustfmt::skip]
const PROTOTYPES: &[(&str, &[&str])] = &[
    ("(i)", &["scx_bpf_dispatch_nr_slots", "scx_bpf_now", "scx_bpf_nr_cids", "scx_bpf_nr_cpu_ids", "scx_bpf_nr_node_ids", "scx_bpf_nr_online_cids", "scx_bpf_reenqueue_local", "scx_bpf_this_cid"]),
    ("(v)", &["bpf_preempt_disable", "bpf_preempt_enable", "bpf_rcu_read_lock", "bpf_rcu_read_unlock", "scx_bpf_dispatch_cancel", "scx_bpf_reenqueue_local___v2"]),
    ("(pv)", &["scx_bpf_online_cmask"]),
    ("(ii)", &["scx_bpf_cid_node", "scx_bpf_cid_to_cpu", "scx_bpf_cidperf_cap", "scx_bpf_cidperf_cur", "scx_bpf_consume", "scx_bpf_cpu_node", "scx_bpf_cpu_to_cid", "scx_bpf_cpuperf_cap", "scx_bpf_cpuperf_cur", "scx_bpf_dsq_move_to_local", "scx_bpf_dsq_nr_queued", "scx_bpf_sub_dispatch", "scx_bpf_test_and_clear_cpu_idle"]),
    ("(ps)", &["bpf_cpumask_create", "scx_bpf_get_idle_cpumask", "scx_bpf_get_idle_smtmask", "scx_bpf_get_online_cpumask", "scx_bpf_get_possible_cpumask"]),
    ("(vi)", &["scx_bpf_destroy_dsq"]),
    ("(iii)", &["scx_bpf_cidperf_set", "scx_bpf_create_dsq", "scx_bpf_dsq_move_to_local___v2"]),
    ("(ips)", &["bpf_cpumask_any_distribute", "bpf_cpumask_empty", "bpf_cpumask_first", "bpf_cpumask_first_zero", "bpf_cpumask_full", "bpf_cpumask_weight", "scx_bpf_task_cid", "scx_bpf_task_cpu", "scx_bpf_task_running"]),
    ("(psi)", &["bpf_cgroup_from_id", "bpf_task_from_pid", "bpf_task_from_vpid", "scx_bpf_cid_curr", "scx_bpf_cpu_curr", "scx_bpf_cpu_rq", "scx_bpf_dsq_peek", "scx_bpf_get_idle_cpumask_node", "scx_bpf_get_idle_smtmask_node", "scx_bpf_tid_to_task"]),
    ("(pvi)", &["bpf_obj_new", "bpf_percpu_obj_new"]),
    ("(vii)", &["scx_bpf_cpuperf_set", "scx_bpf_dsq_reenq", "scx_bpf_kick_cid", "scx_bpf_kick_cpu"]),
    ("(vpi)", &["bpf_local_irq_restore", "bpf_local_irq_save"]),
    ("(vps)", &["bpf_cgroup_release", "bpf_cpumask_clear", "bpf_cpumask_release", "bpf_cpumask_setall", "bpf_iter_num_destroy", "bpf_iter_scx_dsq_destroy", "bpf_task_release", "scx_bpf_put_cpumask", "scx_bpf_put_idle_cpumask"]),
    ("(vpv)", &["bpf_obj_drop", "bpf_percpu_obj_drop"]),
    ("(iips)", &["bpf_cpumask_test_and_clear_cpu", "bpf_cpumask_test_and_set_cpu", "bpf_cpumask_test_cpu"]),
    ("(ipsi)", &["scx_bpf_pick_any_cpu", "scx_bpf_pick_idle_cpu", "scx_bpf_task_set_dsq_vtime", "scx_bpf_task_set_slice"]),
    ("(pips)", &["bpf_iter_num_next"]),
    ("(psps)", &["bpf_cgroup_acquire", "bpf_cpumask_acquire", "bpf_iter_scx_dsq_next", "bpf_list_back", "bpf_list_front", "bpf_list_pop_back", "bpf_list_pop_front", "bpf_rbtree_first", "bpf_rbtree_root", "bpf_task_acquire", "scx_bpf_task_cgroup"]),
    ("(pvpv)", &["bpf_refcount_acquire"]),
    ("(vipsi)", &["scx_bpf_cid_topo"]),
    ("(viips)", &["scx_bpf_sub_revoke"]),
    ("(iiips)", &["scx_bpf_sub_caps"]),
    ("(vips)", &["bpf_cpumask_clear_cpu", "bpf_cpumask_set_cpu"]),
    ("(vpsi)", &["scx_bpf_dispatch_from_dsq_set_slice", "scx_bpf_dispatch_from_dsq_set_vtime", "scx_bpf_dsq_move_set_slice", "scx_bpf_dsq_move_set_vtime"]),
    ("(ipsii)", &["bpf_iter_num_new", "bpf_iter_scx_dsq_new", "scx_bpf_pick_any_cpu_node", "scx_bpf_pick_idle_cpu_node"]),
    ("(ipsps)", &["__scx_bpf_dsq_insert_vtime", "bpf_cpumask_any_and_distribute", "bpf_cpumask_equal", "bpf_cpumask_first_and", "bpf_cpumask_intersects", "bpf_cpumask_subset", "bpf_list_push_back", "bpf_list_push_front"]),
    ("(pspsi)", &["bpf_cgroup_ancestor"]),
    ("(pvipv)", &["bpf_obj_new_impl", "bpf_percpu_obj_new_impl"]),
    ("(vpsps)", &["bpf_cpumask_copy"]),
    ("(vpvpv)", &["bpf_obj_drop_impl", "bpf_percpu_obj_drop_impl"]),
    ("(ipsiii)", &["scx_bpf_dsq_insert___v2"]),
    ("(ipspvi)", &["bpf_cpumask_populate"]),
    ("(pspsps)", &["bpf_rbtree_left", "bpf_rbtree_remove", "bpf_rbtree_right"]),
    ("(pvpvpv)", &["bpf_refcount_acquire_impl"]),
    ("(vpipii)", &["scx_bpf_dump_bstr", "scx_bpf_error_bstr"]),
    ("(vpsiii)", &["scx_bpf_dispatch", "scx_bpf_dsq_insert"]),
    ("(iiipsps)", &["scx_bpf_sub_grant"]),
    ("(iipipii)", &["scx_bpf_sub_kill_bstr"]),
    ("(vpiipii)", &["scx_bpf_cid_override"]),
    ("(vpvpvi)", &["bpf_arena_free_pages"]),
    ("(ipsiipi)", &["scx_bpf_select_cpu_dfl"]),
    ("(ipspsii)", &["scx_bpf_dispatch_from_dsq", "scx_bpf_dispatch_vtime_from_dsq", "scx_bpf_dsq_move", "scx_bpf_dsq_move_vtime"]),
    ("(ipspsps)", &["__scx_bpf_select_cpu_and", "bpf_cpumask_and"]),
    ("(vipipii)", &["scx_bpf_exit_bstr"]),
    ("(vpsiiii)", &["scx_bpf_dispatch_vtime", "scx_bpf_dsq_insert_vtime"]),
    ("(vpspsps)", &["bpf_cpumask_or", "bpf_cpumask_xor"]),
    ("(ipsiipsi)", &["scx_bpf_select_cpu_and"]),
    ("(ipspspvi)", &["bpf_list_push_back_impl", "bpf_list_push_front_impl"]),
    ("(pvpvpviii)", &["bpf_arena_alloc_pages"]),
    ("(ipspsp(ipsps))", &["bpf_rbtree_add"]),
    ("(ipspsp(ipsps)pvi)", &["bpf_rbtree_add_impl"]),
];

/// The functions with their prototypes. Helpers, which programs call by number, have none.
pub fn prototypes() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROTOTYPES.iter().flat_map(|&(prototype, names)| names.iter().map(move |&name| (name, prototype)))
}

#[cfg(test)]
mod tests {
    use super::super::functions::environment;
    use super::super::settings::KernelVersion;
    use super::prototypes;
    use std::collections::BTreeMap;

    #[test]
    fn each_function_of_sched_ext_has_one_prototype() {
        let all: BTreeMap<_, _> = prototypes().collect();
        assert_eq!(prototypes().count(), all.len(), "a name is there twice");
        for version in [KernelVersion::V6_12, KernelVersion::V7_3] {
            let kernel = environment(version);
            let names = kernel.functions.keys().chain(kernel.known.keys());
            for name in names.filter(|name| name.contains("scx_bpf") || name.starts_with("bpf_cpumask")) {
                assert!(all.contains_key(name), "{name}");
            }
        }
    }
}
