/* SPDX-License-Identifier: GPL-2.0-only */
/* Lets whoever runs go on until it sleeps: no switch costs anything. */
#define SLICE_OF(p) SCX_SLICE_INF
#define PREEMPTS(p) false
#include "base.bpf.h"
