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

/* As CTRUN_ERRORS: codes of the programs, which no function of the SDK returns. Programs print both kinds alike, so
 * they have the same prefix. */
#define CT_PROGRAM_ERRORS(X)                                                           \
    X(E_NO_HOST, -20002, "no rendezvous accepts connections there")                    \
    X(E_LOOPBACK, -20004, "a loopback address cannot be reached by other nodes")       \
    X(E_WRONG_RUN, -20005, "the endpoint belongs to another run")                      \
    X(E_JOIN_TIMEOUT, -20006, "not all nodes joined in time")                          \
    X(E_HANG, -20009, "a rank is stuck")                                               \
    X(E_LEADER_LOST, -20010, "the rendezvous server is gone")                          \
    X(E_UNKILLABLE, -20011, "a process did not die")                                   \
    X(E_CRASH_LOOP, -20012, "the same failure again right after start")                \
    X(E_OOM, -20015, "killed for lack of memory")                                      \
    X(E_SIGNAL, -20016, "died of a signal")                                            \
    X(E_EXIT, -20017, "ended with a non-zero exit code")                               \
    X(E_EXEC, -20018, "the program could not be started")                              \
    X(E_VERSION, -20020, "the peer has another protocol version")                      \
    X(E_AUTH, -20021, "the peer could not prove who it is")                            \
    X(E_FINGERPRINT, -20031, "the nodes were not started alike")                       \
    X(E_EXCLUDED, -20033,                                                              \
      "the node failed again and again, and a spare took its place")                   \
    X(E_STAGE, -20034, "files could not be copied to all nodes")                       \
    X(E_NOT_FOUND, -20036, "there is no such run, process, rank or file")              \
    X(E_DENIED, -20037, "not permitted")                                               \
    X(E_SYSTEM, -20038, "the operating system refused")                                \
    X(E_NO_HA, -20039, "the rendezvous was lost before --ha was ready")                \
    X(E_OTHER_JOB, -20040, "another job is at this endpoint")                          \
    X(E_BUDGET, -20041, "a restart took longer than allowed")                          \
    X(E_SPARE, -20042, "the run has succeeded without this node")

enum ct_program_code {
#define CT_PROGRAM_CODE(NAME, value, text) CTRUN_##NAME = (value),
    CT_PROGRAM_ERRORS(CT_PROGRAM_CODE)
#undef CT_PROGRAM_CODE
};

/* Writes "where: what: why" into err (may be NULL) and returns rc, which must be negative. The text
 * is made plain (plain.h), so that quoted bytes of files and peers cannot control the terminal. */
__attribute__((format(printf, 3, 4))) int ct_fail(struct ctrun_error *err, int rc,
                                                  const char *fmt, ...);
/* Puts "text: " in front of the sentence in err (may be NULL); the code stays. */
__attribute__((format(printf, 2, 3))) void ct_wrap(struct ctrun_error *err,
                                                   const char *fmt, ...);
/* -EINVAL of a call on an object that is NULL. `what` has the place of "store" in "the store is NULL". */
int ct_fail_null(struct ctrun_error *err, const char *what);
/* Makes err (may be NULL), which was empty, that of a function of the program that has returned rc: where it gave no
 * reason, err says so. Returns rc. `name`: of the function. */
int ct_fail_called(struct ctrun_error *err, int rc, const char *name);
/* True for the errors of a call that finds no descriptor or no memory for now: a later try may succeed. `rc` is
 * negative. */
bool ct_is_short(int rc);
/* The stable name that users search for, always one of both tables: "E_PORT_BUSY" for
 * CTRUN_E_PORT_BUSY and EADDRINUSE, "E_SYSTEM" for a code without a name. Static text. `rc` may be
 * positive or negative. */
const char *ct_error_name(int rc);
