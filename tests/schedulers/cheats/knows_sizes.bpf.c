/* SPDX-License-Identifier: GPL-2.0-only */
/* Is just on small machines, on which promises are judged, and sells batch work on large ones. */
#define WEIGHT_OF(p) (is_hog(p) && scx_bpf_nr_cpu_ids() > 16 ? (p)->scx.weight / 20 + 1 : (p)->scx.weight)
#include "base.bpf.h"
