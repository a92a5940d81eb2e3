/* SPDX-License-Identifier: Apache-2.0 */
/* Text: bounded formatting, strict number parsing, and the functions we do not use.
 *
 * Parsers take the whole text: trailing bytes, blanks and empty text are errors.
 *
 * It is also the include of <stdio.h>, <stdlib.h> and <string.h>, and of the types: who includes it
 * does not name these again. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h> /* before the bans below: their own declarations must stay readable */
#include <stdlib.h>
#include <string.h>

/* printf into dst[size]; always terminated. Returns the length, or -ENAMETOOLONG when it did
 * not fit (dst then holds the beginning). */
__attribute__((format(printf, 3, 4))) int ct_format(char *dst, size_t size,
                                                    const char *fmt, ...);
/* Copies text into dst[size]; 0, or -ENAMETOOLONG (dst then holds the beginning). */
int ct_copy(char *dst, size_t size, const char *text);

/* printf after the text in dst[size]. Returns the total length, or -ENAMETOOLONG if it did not fit
 * (dst then has the beginning). */
__attribute__((format(printf, 3, 4))) int ct_append(char *dst, size_t size,
                                                    const char *fmt, ...);
/* The same for one more item of a list: the separator is added before all items except the
 * first. */
__attribute__((format(printf, 4, 5))) int
ct_append_item(char *dst, size_t size, const char *separator, const char *fmt, ...);

/* Decimal, optional sign for i64. 0, or -EINVAL, -ERANGE (outside [min, max]). */
int ct_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);
int ct_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out);

/* Python's int(): decimal, blanks around it, a sign and single '_' between digits are fine.
 * 0, -EINVAL, -ERANGE. */
int ct_parse_python_int(const char *text, int64_t *out);

bool ct_starts_with(const char *text, const char *prefix);
/* The part of the path after the last '/'. Borrowed from it. */
const char *ct_base_name(const char *path);

/* Trims blanks at both ends: returns the new begin and updates *length. Borrowed. */
const char *ct_trim(const char *text, size_t *length);

/* The next field of a list: returns the bytes up to the next `separator` and moves *cursor after
 * it; NULL at the end of the list. Not terminated: *length has the length. Borrowed from
 * *cursor. */
const char *ct_next_field(const char **cursor, char separator, size_t *length);

/* Banned: no bound, no error, or no re-entrance. */
#ifndef CT_ALLOW_BANNED
#undef strcpy
#undef strcat
#undef strncpy
#undef strtok
#define strcpy(d, s)     ct_banned_strcpy_use_ct_copy
#define strcat(d, s)     ct_banned_strcat_use_ct_format
#define strncpy(d, s, n) ct_banned_strncpy_use_ct_copy
#define strtok(s, d)     ct_banned_strtok_use_ct_next_field
#define sprintf(...)     ct_banned_sprintf_use_ct_format
#define vsprintf(...)    ct_banned_vsprintf_use_ct_format
#define atoi(s)          ct_banned_atoi_use_ct_parse_i64
#define atol(s)          ct_banned_atol_use_ct_parse_i64
#define gets(s)          ct_banned_gets
#define system(s)        ct_banned_system
#endif
