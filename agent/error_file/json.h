/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of agent and launcher: text and files to a tree of cJSON, and its fields in C. What has a format
 * of its own is read and written by a json_*.c; nobody else sees cJSON. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;

enum {
    JSON_FILE_MAX_BYTES = 1 << 20
};

/* The object that the text is; NULL when it is none, nests deeper than is good for the stack of
 * a parser by recursion, or memory is short. Owned by the caller: cJSON_Delete(). */
struct cJSON *json_parse(const char *text, size_t length);
/* 0 and the object that is all of a regular file; -EBADMSG, -EFBIG, -ENOMEM, -errno, and
 * *out is NULL. Does not wait for a FIFO or a device. */
int json_parse_file(const char *path, struct cJSON **out);

/* Fields of an object, which may be NULL. What is missing or of another type is NULL, the
 * fallback, 0, or "". */
const struct cJSON *json_get(const struct cJSON *object, const char *key);
/* A number, or a text that is one. */
int64_t json_get_i64(const struct cJSON *object, const char *key, int64_t fallback);
/* The same; 0 too where it does not fit. */
int json_get_int(const struct cJSON *object, const char *key);
unsigned json_get_unsigned(const struct cJSON *object, const char *key);
uint64_t json_get_u64(const struct cJSON *object, const char *key);
/* For people: cut where it does not fit, and plain (plain.h), for JSON may have any character. One line. */
void json_get_text(const struct cJSON *object, const char *key, char *dst, size_t size);
/* The same of a text of several lines. */
void json_get_lines(const struct cJSON *object, const char *key, char *dst,
                    size_t size);

/* redact() of all texts in it, names left out. */
void json_redact(struct cJSON *root);
/* Writes text as a JSON string, quotes included; "null" when memory is short. */
void json_print_text(FILE *out, const char *text);
