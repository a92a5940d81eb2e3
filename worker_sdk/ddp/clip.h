/* SPDX-License-Identifier: Apache-2.0 */
/* Clipping of gradients by their global norm, as torch.nn.utils.clip_grad_norm_ does it. Every
 * rank has the same averages, and so computes the same norm by itself; with slices (slice.h) the
 * ranks add up their sums in between. For memory of the host. */
#pragma once

#include "worker_sdk/ddp/layout.h"

/* By slot: the sum of squares of this rank's part of the gradient, 0 where there is none. Pure. */
void ct_clip_sum(const struct ct_layout *layout, double *squares);
/* Scales this rank's parts so that the norm of all gradients is max_norm at most; *norm is what it
 * was. -1, or the first slot at which the sum of squares overflows or is not finite: then nothing
 * is scaled. Pure. */
long ct_clip(const struct ct_layout *layout, const double *squares, double max_norm,
             double *norm);
/* Multiplies a gradient in memory of the host. */
void ct_scale(const struct ct_slot *slot, double by);
/* Whether a gradient in memory of the host has neither NaN nor infinity. */
bool ct_is_finite(const struct ct_slot *slot);
