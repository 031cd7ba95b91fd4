/* SPDX-License-Identifier: GPL-2.0-only */
/* Starves what computes for long, so that all others answer at once. */
#define IS_HELD(p) is_hog(p)
#define SERVES_HELD(cpu) false
#include "base.bpf.h"
