/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: a negative code for programs, one sentence for users.
 *
 * A function that can fail returns int: >= 0 is success, < 0 is a negative errno or one of the
 * CTRUN_E_* codes below (outside the range of errno). The last parameter may be a caller-owned
 * `struct ctrun_error *`, or NULL if the sentence is not needed. The function that knows the reason
 * writes the sentence with ct_fail(); its callers put their context in front with ct_wrap().
 *
 *     if (bind(fd, ...) < 0)
 *         return ct_fail(err, -errno, "listen on %s: %s", text, strerror(errno));
 *
 * Nothing here allocates, prints or blocks. */
#pragma once

#include "worker_sdk/include/ctrun.h"

/* Writes "where: what: why" into err (may be NULL) and returns rc, which must be negative. The text
 * is made plain (plain.h), so that quoted bytes of files and peers cannot control the terminal. */
__attribute__((format(printf, 3, 4))) int ct_fail(struct ctrun_error *err, int rc,
                                                  const char *fmt, ...);
/* Puts "text: " in front of the sentence in err (may be NULL); the code stays. */
__attribute__((format(printf, 2, 3))) void ct_wrap(struct ctrun_error *err,
                                                   const char *fmt, ...);
/* -EINVAL of a call on an object that is NULL. `what` has the place of "store" in "the store is NULL". */
int ct_fail_null(const char *what, struct ctrun_error *err);
/* Makes err (may be NULL), which was empty, that of a function of the program that has returned rc: where it gave no
 * reason, err says so. Returns rc. `name`: of the function. */
int ct_fail_called(struct ctrun_error *err, int rc, const char *name);
/* True for the errors of a call that finds no descriptor or no memory for now: a later try may succeed. `rc` is
 * negative. */
bool ct_is_short(int rc);
/* The stable name that users search for, always one of CTRUN_ERRORS: "E_PORT_BUSY" for
 * CTRUN_E_PORT_BUSY and EADDRINUSE, "E_SYSTEM" for a code without a name. Static text. `rc` may be
 * positive or negative. */
const char *ct_error_name(int rc);
