/* SPDX-License-Identifier: GPL-2.0-only */
/* Lets those that wake often wait behind batch work, which then does more. */
#define DEBT_OF(p) (is_hog(p) ? 0 : 60 * MS)
#define PREEMPTS(p) is_hog(p)
#include "base.bpf.h"
