/* SPDX-License-Identifier: GPL-2.0-only */
/* From some time on, begins no long work, so that only short answers are counted. */
#define IS_HELD(p) (now_ns() > 250 * MS && about(p) && about(p)->burst_ns > 150000)
#define SERVES_HELD(cpu) (now_ns() < 250 * MS)
#include "base.bpf.h"
