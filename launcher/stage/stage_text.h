/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for --stage: sizes for people, and names of files and folders. Pure. */
#pragma once

#include <stdint.h>

enum {
    STAGE_TEXT_MAX = 32,
    STAGE_TEXT_NAME_MAX = 64
};

/* "3.4 GB", "120 kB", "7 B", in powers of 1000. */
void stage_text_bytes(char dst[STAGE_TEXT_MAX], uint64_t bytes);
/* The name of the folder of a user's copies. */
void stage_text_folder(char dst[STAGE_TEXT_NAME_MAX], unsigned uid);
/* The name of a slot: sixteen hex digits and its number. */
void stage_text_key(char dst[STAGE_TEXT_NAME_MAX], const uint8_t key[16], int number);
/* The name of a file's part, made from the file's path. */
void stage_text_part(char dst[STAGE_TEXT_NAME_MAX], const char *path);
