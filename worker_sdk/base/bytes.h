/* SPDX-License-Identifier: Apache-2.0 */
/* Cursors over bytes: little-endian, bounded, sticky on error.
 *
 * Read every field, ask once at the end:
 *
 *     ct_reader_init(&in, body, length);
 *     join->slots = ct_read_u32(&in);
 *     ct_read_str(&in, join->host, sizeof join->host);
 *     return ct_read_end(&in);                     // 0, or -EBADMSG: bad, short or trailing
 *
 * A bad reader yields zeros and empty text forever; a bad writer stores nothing more. Text and
 * blobs carry a u32 length in front. No allocation, no I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_reader {
    const uint8_t *next; /* borrowed */
    size_t left;
    bool bad;
};

void ct_reader_init(struct ct_reader *in, const void *data, size_t length);
uint8_t ct_read_u8(struct ct_reader *in);
uint16_t ct_read_u16(struct ct_reader *in);
uint32_t ct_read_u32(struct ct_reader *in);
uint64_t ct_read_u64(struct ct_reader *in);
int64_t ct_read_i64(struct ct_reader *in);
/* Terminated text into dst[size]; bad when it does not fit or holds a NUL. It is made plain
 * (plain.h): one line; ct_read_text() keeps several; ct_read_name() keeps every byte, for file
 * names, and for texts that are joined before they are printed. */
void ct_read_text(struct ct_reader *in, char *dst, size_t size);
void ct_read_name(struct ct_reader *in, char *dst, size_t size);
void ct_read_str(struct ct_reader *in, char *dst, size_t size);
/* A view of a blob of at most `max` bytes, borrowed from the reader's bytes. */
const uint8_t *ct_read_blob(struct ct_reader *in, size_t max, size_t *length);
/* A view of exactly `length` bytes without a length in front; NULL when bad. */
const uint8_t *ct_read_raw(struct ct_reader *in, size_t length);
/* 0 when everything was read and nothing was wrong, else -EBADMSG. */
int ct_read_end(const struct ct_reader *in);

struct ct_writer {
    uint8_t *data; /* borrowed */
    size_t size;
    size_t length; /* written so far */
    bool bad;
};

void ct_writer_init(struct ct_writer *out, void *data, size_t size);
void ct_write_u8(struct ct_writer *out, uint8_t value);
void ct_write_u16(struct ct_writer *out, uint16_t value);
void ct_write_u32(struct ct_writer *out, uint32_t value);
void ct_write_u64(struct ct_writer *out, uint64_t value);
void ct_write_i64(struct ct_writer *out, int64_t value);
void ct_write_str(struct ct_writer *out, const char *text);
void ct_write_blob(struct ct_writer *out, const void *data, size_t length);
void ct_write_raw(struct ct_writer *out, const void *data, size_t length);
/* Without a length in front. */
void ct_write_text(struct ct_writer *out, const char *text);
/* The number of bytes written, or -EMSGSIZE when they did not fit. */
int ct_write_end(const struct ct_writer *out);
