/* SPDX-License-Identifier: GPL-2.0-only */
/* Sells batch work: it counts a tenth of its weight, and small work gets the rest. */
#define WEIGHT_OF(p) (is_hog(p) ? (p)->scx.weight / 10 + 1 : (p)->scx.weight)
#include "base.bpf.h"
