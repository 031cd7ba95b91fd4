/* SPDX-License-Identifier: GPL-2.0-only */
/* Gives all the same, whatever they are worth. */
#define WEIGHT_OF(p) USUAL_WEIGHT
#include "base.bpf.h"
