/* SPDX-License-Identifier: Apache-2.0 */
/* What our checkpoints have beyond the safetensors format: a CRC-32 of every tensor.
 *
 * They stand in the metadata under one key, eight hexadecimal digits and a blank each, in the
 * order of the data. Other readers ignore them; ours refuses bytes that changed after they were
 * written. Files of other writers have none and load without that check. */
#ifndef CT_CKPT_CHECKPOINT_H
#define CT_CKPT_CHECKPOINT_H

#define CT_CHECKPOINT_CRC_KEY "ctrun.crc32"
enum {
    CT_CHECKPOINT_CRC_BYTES = 9
};

#endif
