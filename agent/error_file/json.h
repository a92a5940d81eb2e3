/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of agent and launcher: text and files to a tree of cJSON, and its fields in C. Each file
 * format has a json_*.c that reads and writes it; no other code of theirs uses cJSON. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;

enum {
    JSON_FILE_MAX_BYTES = 1 << 20
};

/* Parses text that is a JSON object; NULL when it is not, when it nests too deep for the stack
 * of a recursive parser, or when memory is short. Owned by the caller: cJSON_Delete(). */
struct cJSON *json_parse(const char *text, size_t length);
/* 0 and the object that is the whole content of a regular file; on error -EBADMSG, -EFBIG,
 * -ENOMEM or -errno, and *out is NULL. Does not wait for a FIFO or a device. */
int json_parse_file(const char *path, struct cJSON **out);

/* Fields of an object, which may be NULL. A field that is missing or has another type is NULL,
 * the fallback, 0, or "". */
const struct cJSON *json_get(const struct cJSON *object, const char *key);
/* A number, or a text that has one. */
int64_t json_get_i64(const struct cJSON *object, const char *key, int64_t fallback);
/* The same; 0 too where it does not fit. */
int json_get_int(const struct cJSON *object, const char *key);
unsigned json_get_unsigned(const struct cJSON *object, const char *key);
uint64_t json_get_u64(const struct cJSON *object, const char *key);
/* One line for people: cut where it does not fit, and with plain characters only (plain.h),
 * since JSON may have any. */
void json_get_text(const struct cJSON *object, const char *key, char *dst, size_t size);
/* The same for a text of several lines. */
void json_get_lines(const struct cJSON *object, const char *key, char *dst,
                    size_t size);

/* Applies redact() to all texts in it, except names of fields. */
void json_redact(struct cJSON *root);
/* Writes text as a JSON string, quotes included; "null" when memory is short. */
void json_print_text(FILE *out, const char *text);
