/* SPDX-License-Identifier: GPL-2.0-only */
/* Hopes for luck: another order each time. */
#define DEBT_OF(p) (bpf_get_prandom_u32() % (4 * MS))
#include "base.bpf.h"
