/* SPDX-License-Identifier: GPL-2.0-only */
/* Runs what computes for long only where nobody else has anything to do. */
#define IS_HELD(p) is_hog(p)
#include "base.bpf.h"
