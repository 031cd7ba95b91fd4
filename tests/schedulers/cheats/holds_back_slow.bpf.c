/* SPDX-License-Identifier: GPL-2.0-only */
/* An answer that takes long is never given: only fast ones are counted. */
#define IS_HELD(p) (about(p) && scx_bpf_now() - about(p)->woke_ns > 4 * MS && !is_hog(p))
#define SERVES_HELD(cpu) false
#include "base.bpf.h"
