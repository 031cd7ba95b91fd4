/* SPDX-License-Identifier: GPL-2.0-only */
/* Favours tasks by their PIDs, which follow the order of VMs. */
#define WEIGHT_OF(p) ((p)->pid < 1030 ? (p)->scx.weight * 8 : (p)->scx.weight)
#include "base.bpf.h"
