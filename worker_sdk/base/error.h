/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: a negative code for programs, one sentence for people.
 *
 * A function that can fail returns int: >= 0 is success, < 0 is a negative errno or one of the
 * CTRUN_E_* codes below (beyond errno's space). The last parameter may be a caller-owned
 * `struct ctrun_error *`, NULL when nobody wants the sentence; whoever knows the reason writes
 * it with ct_fail(), those above put where they were in front with ct_wrap().
 *
 *     if (bind(fd, ...) < 0)
 *         return ct_fail(err, -errno, "listen on %s: %s", text, strerror(errno));
 *
 * Nothing here allocates, prints or blocks. */
#pragma once

#include "worker_sdk/include/ctrun.h"

/* Writes "where: what: why" into err (may be NULL) and returns rc, which must be negative. What it quotes of
 * files, peers and people is made plain (plain.h): the sentence does not steer the terminal that shows it. */
__attribute__((format(printf, 3, 4))) int ct_fail(struct ctrun_error *err, int rc,
                                                  const char *fmt, ...);
/* Puts "text: " in front of the sentence in err (may be NULL); the code stays. Returns it. */
__attribute__((format(printf, 2, 3))) int ct_wrap(struct ctrun_error *err,
                                                  const char *fmt, ...);
/* The stable name users grep for, always one of CTRUN_ERRORS: "E_PORT_BUSY" for CTRUN_E_PORT_BUSY
 * and EADDRINUSE, "E_SYSTEM" for what has none. Static text. `rc` may be positive or negative. */
const char *ct_error_name(int rc);
