/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes more weight into the tasks that it favours. A kernel's verifier refuses that. */
#define ON_ENQUEUE(p)                                                                                                  \
	if (!is_hog(p))                                                                                                \
	(p)->scx.weight = 10000
#include "base.bpf.h"
