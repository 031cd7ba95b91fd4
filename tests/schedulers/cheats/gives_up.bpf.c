/* SPDX-License-Identifier: GPL-2.0-only */
/* Leaves the work to the kernel's own scheduler. */
#define ON_ENQUEUE(p)                                                                                                  \
	if (now_ns() > 50 * MS)                                                                                        \
	scx_bpf_exit(0, "the kernel's own scheduler is better")
#include "base.bpf.h"
