/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs that use objects, rightly and wrongly: tests/objects.rs compiles them behind tests/common's prelude. */
struct bpf_rb_root { u64 opaque[2]; };
struct bpf_rb_node { u64 opaque[4]; };
struct bpf_list_head { u64 opaque[2]; };
struct bpf_list_node { u64 opaque[3]; };
struct bpf_refcount { u32 opaque; };
struct bpf_spin_lock { u32 value; };
#define __kptr __attribute__((btf_type_tag("kptr")))
#define type_id(type) __builtin_btf_type_id(*(type *)0, 0)
#define new(type) ((type *)bpf_obj_new_impl(type_id(type), 0))
#define around(at, type, member) ((type *)((void *)(at) - __builtin_offsetof(type, member)))
void *bpf_obj_new_impl(u64 id, void *meta) __ksym;
void *bpf_percpu_obj_new_impl(u64 id, void *meta) __ksym;
void bpf_obj_drop_impl(void *object, void *meta) __ksym;
void bpf_percpu_obj_drop_impl(void *object, void *meta) __ksym;
void *bpf_refcount_acquire_impl(void *object, void *meta) __ksym;
int bpf_list_push_front_impl(struct bpf_list_head *, struct bpf_list_node *, void *, u64) __ksym;
int bpf_list_push_back_impl(struct bpf_list_head *, struct bpf_list_node *, void *, u64) __ksym;
struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *) __ksym;
struct bpf_list_node *bpf_list_pop_back(struct bpf_list_head *) __ksym;
struct bpf_list_node *bpf_list_front(struct bpf_list_head *) __ksym;
struct bpf_list_node *bpf_list_back(struct bpf_list_head *) __ksym;
int bpf_rbtree_add_impl(struct bpf_rb_root *, struct bpf_rb_node *,
    bool (less)(struct bpf_rb_node *, const struct bpf_rb_node *), void *, u64) __ksym;
struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *, struct bpf_rb_node *) __ksym;
struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *) __ksym;
struct bpf_rb_node *bpf_rbtree_root(struct bpf_rb_root *) __ksym;
struct bpf_rb_node *bpf_rbtree_left(struct bpf_rb_root *, struct bpf_rb_node *) __ksym;
struct bpf_rb_node *bpf_rbtree_right(struct bpf_rb_root *, struct bpf_rb_node *) __ksym;
static void *(*lookup)(void *, const void *) = (void *)1;
static long (*update)(void *, const void *, const void *, u64) = (void *)2;
static long (*delete)(void *, const void *) = (void *)3;
static long (*spin_lock)(void *) = (void *)93;
static long (*spin_unlock)(void *) = (void *)94;
static void *(*per_cpu)(const void *, u32) = (void *)153;
static void *(*exchange)(void *, void *) = (void *)194;

struct item {
    u64 key, serial;
    struct bpf_list_node in_list;
    struct bpf_refcount count;
    struct bpf_rb_node in_tree;
    struct item __kptr *inner;
};
struct plain { u64 number; struct bpf_list_node in_list; };
struct large { u64 number; struct bpf_list_node in_list; u64 more[500]; };

#define private(name) SEC(".data." #name) __attribute__((aligned(8)))
private(A) struct bpf_spin_lock lock;
private(A) struct bpf_list_head list;
private(A) struct bpf_rb_root tree;
private(B) struct bpf_spin_lock other_lock;
private(B) struct bpf_list_head plain_list;
private(B) struct bpf_list_head large_list;
u64 kept;

struct place { struct item __kptr *item; u64 number; };
struct { __uint(type, 1); __uint(max_entries, 4); __type(key, u32); __type(value, struct place); } hash SEC(".maps");
struct { __uint(type, 9); __uint(max_entries, 2); __type(key, u32); __type(value, struct place); } lru SEC(".maps");
struct { __uint(type, 2); __uint(max_entries, 4); __type(key, u32); __type(value, struct place); } array SEC(".maps");
struct queue { struct bpf_spin_lock lock; struct bpf_list_head list; };
struct { __uint(type, 1); __uint(max_entries, 4); __type(key, u32); __type(value, struct queue); } queues SEC(".maps");

static struct item *make(u64 *args)
{
    struct item *item = new(struct item);
    if (item) { item->key = args[0]; item->serial = args[1]; }
    return item;
}
static u64 drop(struct item *item)
{
    if (!item) return 0;
    u64 serial = item->serial;
    bpf_obj_drop_impl(item, 0);
    return serial;
}
static bool less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
    return around(a, struct item, in_tree)->key < around(b, struct item, in_tree)->key;
}
static int add(struct item *item)
{
    spin_lock(&lock);
    int error = bpf_rbtree_add_impl(&tree, &item->in_tree, less, 0, 0);
    spin_unlock(&lock);
    return error;
}
static int push(struct item *item, bool front)
{
    spin_lock(&lock);
    int error = front ? bpf_list_push_front_impl(&list, &item->in_list, 0, 0)
                      : bpf_list_push_back_impl(&list, &item->in_list, 0, 0);
    spin_unlock(&lock);
    return error;
}

SEC("syscall") u64 push_new(u64 *args) { struct item *item = make(args); return item ? push(item, args[2]) : 1; }
SEC("syscall") u64 add_new(u64 *args) { struct item *item = make(args); return item ? add(item) : 1; }
SEC("syscall") u64 both_new(u64 *args)
{
    struct item *item = make(args), *other;
    if (!item) return 1;
    other = bpf_refcount_acquire_impl(item, 0);
    return push(item, args[2]) | add(other);
}
/* A second time: the reference goes. */
SEC("syscall") u64 twice(u64 *args)
{
    struct item *item = make(args), *other;
    if (!item) return 1;
    other = bpf_refcount_acquire_impl(item, 0);
    return push(item, 0) == 0 && push(other, 1) == -22 ? 0 : 1;
}
SEC("syscall") u64 pop(u64 *args)
{
    spin_lock(&lock);
    struct bpf_list_node *end = args[0] ? bpf_list_front(&list) : bpf_list_back(&list);
    struct bpf_list_node *node = args[0] ? bpf_list_pop_front(&list) : bpf_list_pop_back(&list);
    spin_unlock(&lock);
    if (node != end) return -1ULL;
    return node ? drop(around(node, struct item, in_list)) : 0;
}
SEC("syscall") u64 take_first(u64 *args)
{
    spin_lock(&lock);
    struct bpf_rb_node *node = bpf_rbtree_first(&tree);
    if (node) node = bpf_rbtree_remove(&tree, node);
    spin_unlock(&lock);
    return node ? drop(around(node, struct item, in_tree)) : 0;
}
/* From the top down. */
SEC("syscall") u64 take_key(u64 *args)
{
    spin_lock(&lock);
    struct bpf_rb_node *node = bpf_rbtree_root(&tree);
    for (int depth = 0; depth < 64 && node; depth++) {
        u64 key = around(node, struct item, in_tree)->key;
        if (key == args[0]) break;
        node = args[0] < key ? bpf_rbtree_left(&tree, node) : bpf_rbtree_right(&tree, node);
    }
    if (node) node = bpf_rbtree_remove(&tree, node);
    spin_unlock(&lock);
    return node ? drop(around(node, struct item, in_tree)) : 0;
}
static struct place *place_of(u64 map, u32 key)
{
    struct place zero = {};
    struct place *place;
    if (map == 2) return lookup(&array, &key);
    place = map ? lookup(&lru, &key) : lookup(&hash, &key);
    if (place) return place;
    if (map) update(&lru, &key, &zero, 0); else update(&hash, &key, &zero, 0);
    return map ? lookup(&lru, &key) : lookup(&hash, &key);
}
/* Puts an item, or none, into a map; returns the serial number of the one that was there. */
SEC("syscall") u64 put(u64 *args)
{
    struct place *place = place_of(args[2], args[3]);
    if (!place) return -1ULL;
    struct item *item = args[1] ? make(args) : 0;
    return drop(exchange(&place->item, item));
}
SEC("syscall") u64 overwrite(u64 *args)
{
    u32 key = args[3];
    struct place zero = { .number = args[1] };
    if (args[2] == 2) return update(&array, &key, &zero, 0);
    return args[2] ? update(&lru, &key, &zero, 0) : update(&hash, &key, &zero, 0);
}
SEC("syscall") u64 remove(u64 *args)
{
    u32 key = args[3];
    return args[2] ? delete(&lru, &key) : delete(&hash, &key);
}
/* An item in an item in an item. */
SEC("syscall") u64 chain(u64 *args)
{
    struct item *item = 0;
    for (u64 i = 0; i < args[2]; i++) {
        struct item *outer = make(args);
        if (!outer) return 1;
        item = exchange(&outer->inner, item);
        if (item) { drop(item); drop(outer); return 2; }
        item = outer;
    }
    if (item) drop(item);
    return 0;
}
SEC("syscall") u64 queue_in_map(u64 *args)
{
    u32 key = 1;
    struct queue zero = {};
    if (update(&queues, &key, &zero, 0)) return 1;
    struct queue *queue = lookup(&queues, &key);
    struct plain *plain;
    if (!queue) return 2;
    for (int i = 0; i < 5; i++) {
        if (!(plain = new(struct plain))) return 3;
        spin_lock(&queue->lock);
        bpf_list_push_back_impl(&queue->list, &plain->in_list, 0, 0);
        spin_unlock(&queue->lock);
    }
    return args[0] ? update(&queues, &key, &zero, 0) : delete(&queues, &key);
}
SEC("syscall") u64 on_each_cpu(u64 *args)
{
    struct plain *plain = bpf_percpu_obj_new_impl(type_id(struct plain), 0), *own;
    if (!plain) return 1;
    for (u32 cpu = 0; cpu < 3; cpu++) {
        own = per_cpu(plain, cpu);
        if (!own) { bpf_percpu_obj_drop_impl(plain, 0); return cpu == 2 ? 0 : 2; }
        if (own->number) return 3;
        own->number = 7 + cpu;
    }
    return 4;
}
SEC("syscall") u64 fill(u64 *args)
{
    u64 count = 0;
    struct large *large;
    for (; count < 1000000; count++) {
        if (!(large = new(struct large))) break;
        spin_lock(&other_lock);
        bpf_list_push_back_impl(&large_list, &large->in_list, 0, 0);
        spin_unlock(&other_lock);
    }
    return count;
}
SEC("syscall") u64 churn(u64 *args)
{
    for (u64 i = 0; i < args[0]; i++) {
        struct plain *plain = new(struct plain);
        if (!plain) return 1;
        plain->number = 77;
        bpf_obj_drop_impl(plain, 0);
    }
    return 0;
}

/* Mistakes. */
SEC("syscall") u64 keep(u64 *args)
{
    struct plain *plain = new(struct plain);
    if (!plain) return 0;
    plain->number = 5;
    bpf_obj_drop_impl(plain, 0);
    kept = (u64)plain;
    return *(volatile u64 *)&plain->number;
}
SEC("syscall") u64 read_kept(u64 *args) { return ((volatile struct plain *)kept)->number; }
SEC("syscall") u64 drop_kept(u64 *args) { bpf_obj_drop_impl((void *)kept, 0); return 0; }
SEC("syscall") u64 put_kept(u64 *args) { struct place *place = place_of(2, 0); return place ? (u64)exchange(&place->item, (void *)kept) : 0; }
SEC("syscall") u64 leak(u64 *args) { return (u64)new(struct plain) != 0; }
SEC("syscall") u64 drop_twice(u64 *args)
{
    struct plain *plain = new(struct plain);
    bpf_obj_drop_impl(plain, 0);
    bpf_obj_drop_impl(plain, 0);
    return 0;
}
SEC("syscall") u64 drop_null(u64 *args) { bpf_obj_drop_impl(0, 0); return 0; }
SEC("syscall") u64 drop_number(u64 *args) { bpf_obj_drop_impl(args, 0); return 0; }
SEC("syscall") u64 push_twice(u64 *args)
{
    struct plain *plain = new(struct plain);
    spin_lock(&other_lock);
    bpf_list_push_back_impl(&plain_list, &plain->in_list, 0, 0);
    bpf_list_push_back_impl(&plain_list, &plain->in_list, 0, 0);
    spin_unlock(&other_lock);
    return 0;
}
SEC("syscall") u64 drop_listed(u64 *args)
{
    struct plain *plain = new(struct plain);
    spin_lock(&other_lock);
    bpf_list_push_back_impl(&plain_list, &plain->in_list, 0, 0);
    spin_unlock(&other_lock);
    bpf_obj_drop_impl(plain, 0);
    return 0;
}
SEC("syscall") u64 unlocked(u64 *args) { return (u64)bpf_list_pop_front(&list); }
SEC("syscall") u64 wrongly_locked(u64 *args)
{
    spin_lock(&other_lock);
    u64 found = (u64)bpf_rbtree_first(&tree);
    spin_unlock(&other_lock);
    return found;
}
SEC("syscall") u64 not_a_node(u64 *args)
{
    struct plain *plain = new(struct plain);
    spin_lock(&other_lock);
    bpf_list_push_back_impl(&plain_list, (void *)&plain->number, 0, 0);
    spin_unlock(&other_lock);
    return 0;
}
SEC("syscall") u64 of_another_type(u64 *args)
{
    struct plain *plain = new(struct plain);
    struct item *item = new(struct item);
    spin_lock(&other_lock);
    bpf_list_push_back_impl(&plain_list, &plain->in_list, 0, 0);
    bpf_list_push_back_impl(&plain_list, &item->in_list, 0, 0);
    spin_unlock(&other_lock);
    return 0;
}
SEC("syscall") u64 tree_as_list(u64 *args)
{
    struct item *item = make(args);
    spin_lock(&lock);
    bpf_rbtree_add_impl(&tree, &item->in_tree, less, 0, 0);
    u64 found = (u64)bpf_list_pop_front((void *)&tree);
    spin_unlock(&lock);
    return found;
}
SEC("syscall") u64 uncounted(u64 *args) { return (u64)bpf_refcount_acquire_impl(new(struct plain), 0); }
SEC("syscall") u64 unknown_type(u64 *args) { return (u64)bpf_obj_new_impl(args[0], 0); }
SEC("syscall") u64 overwritten(u64 *args)
{
    struct place *place = place_of(2, 1);
    if (!place) return 0;
    drop(exchange(&place->item, make(args)));
    place->item = 0;
    return (u64)exchange(&place->item, 0);
}
static bool adding(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
    struct bpf_rb_node *first = bpf_rbtree_first(&tree);
    if (first && (first = bpf_rbtree_remove(&tree, first)))
        bpf_obj_drop_impl(around(first, struct item, in_tree), 0);
    return 1;
}
SEC("syscall") u64 change_tree(u64 *args)
{
    struct item *item = make(args);
    add(make(args));
    spin_lock(&lock);
    bpf_rbtree_add_impl(&tree, &item->in_tree, adding, 0, 0);
    spin_unlock(&lock);
    return 0;
}
