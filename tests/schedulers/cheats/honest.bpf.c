/* SPDX-License-Identifier: GPL-2.0-only */
/* No cheat: what the others are compared with. */
#include "base.bpf.h"
