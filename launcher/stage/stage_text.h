/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and names of --stage as people see them. Pure. */
#pragma once

#include <stdint.h>

enum {
    STAGE_TEXT_MAX = 32,
    STAGE_TEXT_NAME_MAX = 64
};

/* "3.4 GB", "12 kB", "7 B", in powers of 1000. */
void stage_text_bytes(char dst[STAGE_TEXT_MAX], uint64_t bytes);
/* The name of the folder that a user's copies lie in. */
void stage_text_folder(char dst[STAGE_TEXT_NAME_MAX], unsigned uid);
/* The name of a slot: sixteen digits, and its number. */
void stage_text_key(char dst[STAGE_TEXT_NAME_MAX], const uint8_t key[16], int number);
/* A name for the part of a file, from what it will be called. */
void stage_text_part(char dst[STAGE_TEXT_NAME_MAX], const char *path);
