/* SPDX-License-Identifier: Apache-2.0 */
/* ctrun.h - the worker SDK of ctrun: one process of a data-parallel training job.
 *
 * A worker is started by ctrun(1), or by torchrun or anything else that sets RANK, WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT. A typical worker:
 *
 *     struct ctrun_error err;
 *     struct ctrun_session *session;
 *     struct ctrun_group *world;
 *
 *     if (ctrun_open(&session, NULL, &err) < 0)            // who am I: rank, world size
 *         return ctrun_fail_worker(&err);                  // error file, exit code
 *     if (ctrun_group_open(&world, session, NULL, &err) < 0)
 *         return ctrun_fail_worker(&err);                  // meet the other ranks
 *     for (step = first; step < last && !ctrun_should_stop(session); step++) {
 *         ... ctrun_all_reduce(world, grad, grad, n, CTRUN_F32, CTRUN_SUM, NULL, &err) ...
 *         ctrun_step(session, step);                       // liveness, for `ctrunctl status`
 *     }
 *     ... rank 0 saves ...
 *     ctrun_barrier(world, NULL, &err);                    // nobody leaves before that
 *     ctrun_group_close(world);
 *     ctrun_close(session);
 *
 * Contents, in this order:
 *
 *     errors, log       how a call fails; where log lines go
 *     session           this process in the run: ranks, progress, requests to stop, crash reports
 *     store             small values that all ranks see
 *     groups            collectives and messages; groups that continue without a lost rank
 *     DDP               gradients averaged over all ranks while backward runs; in CUDA graphs;
 *                       uneven inputs
 *     fixed sums        sums whose bits do not depend on the number of ranks
 *     DataParallel      replicas of a model in one process
 *     ZeRO-1            optimizer states divided among the ranks
 *     data              samplers, batches, loaders, records, ledgers, IDX data sets
 *     checkpoints       of one file; sharded ones; those that the agent holds in memory
 *
 * Rules that hold everywhere below:
 *   - A function that can fail returns >= 0 on success and a negative code on failure: a
 *     negative errno or a CTRUN_E_* code. `err`, always last, may be NULL; else it holds the
 *     code and one sentence (where: what: why).
 *   - The caller destroys what it creates, in reverse order. _close, _destroy accept NULL. The
 *     caller owns what a call returns in `out`; it is NULL when the call failed.
 *   - Other calls on an object that is NULL, as after a call that failed to make it, return -EINVAL;
 *     those that return no int return 0, false or NULL. So do calls with another pointer that is
 *     NULL where something must be.
 *   - Every wait for other ranks has a deadline (the session's or the group's); none blocks
 *     forever. Only waits for a disk and for functions and kernels of the caller have none.
 *   - Lengths of memory are in bytes, counts in elements; the names of times end in their unit.
 *   - The library never prints, exits or aborts, and installs signal handlers only where it is
 *     asked to: ctrun_crash_report().
 *   - The shared library stays loaded until the process ends: dlclose() does not unload it, because
 *     its threads may be running.
 *   - Unless said otherwise an object is used by one thread at a time; different objects may be
 *     used by different threads at once.
 *   - Structs that you fill, and those that are filled for you, begin with their size and have an
 *     _INIT: they grow at the end, and a program and a library of different versions work
 *     together. Entries of one array all have the same size. A member that the library does not
 *     know yet has no effect. ctrun_error, ctrun_metadata and ctrun_slice never change. In C++, too,
 *     write `struct` before ctrun_batch, ctrun_batch_plan and ctrun_zero_piece: functions have
 *     these names. */
#ifndef CTRUN_H
#define CTRUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CTRUN_API __attribute__((visibility("default")))
#else
#define CTRUN_API
#endif

/* ---- ctrun_version(3): the version of the library -------------------------------- */

#define CTRUN_VERSION_MAJOR 0
#define CTRUN_VERSION_MINOR 1
#define CTRUN_VERSION_PATCH 0

/* "0.1.0", of the library that is linked, not of this header. Static text. */
CTRUN_API const char *ctrun_version(void);

/* ---- ctrun_error(3): how a call fails -------------------------------------------- */

/* NAME, value, text: codes outside the range of errno; the values never change. Numbers that are
 * missing are codes of the programs: ctrun-errors(7) has all of them. */
#define CTRUN_ERRORS(X)                                                                \
    X(E_USAGE, -20001, "wrong usage")                                                  \
    X(E_PORT_BUSY, -20003, "the port is taken")                                        \
    X(E_UNREACHABLE, -20007, "the peer cannot be reached")                             \
    X(E_PEER_LOST, -20008, "a node or rank is gone")                                   \
    X(E_RESOURCES, -20013, "the machine does not have what was asked for")             \
    X(E_SHM, -20014, "shared memory is too small")                                     \
    X(E_DNS, -20019, "the host name is unknown")                                       \
    X(E_CLOSED, -20022, "the run is over")                                             \
    X(E_CHANGED, -20023,                                                               \
      "the others continue without this rank, or no rank has a whole state")           \
    X(E_TIMEOUT, -20024, "no answer in time")                                          \
    X(E_ABORTED, -20025, "the group was aborted")                                      \
    X(E_MISMATCH, -20026, "the ranks do not agree on what they do")                    \
    X(E_BAD_CHECKPOINT, -20027, "the checkpoint is damaged or does not fit")           \
    X(E_BAD_DATA, -20028, "the data set is damaged or missing")                        \
    X(E_BAD_ENVIRONMENT, -20029,                                                       \
      "RANK, WORLD_SIZE and their like are missing or wrong")                          \
    X(E_PROTOCOL, -20030, "the peer sent something that is not in the protocol")       \
    X(E_UNSUPPORTED, -20032,                                                           \
      "not available in this build, on this machine or for this call")                 \
    X(E_DIVERGED, -20035,                                                              \
      "the training diverged: a loss or gradient is not a finite number")

enum ctrun_code {
    CTRUN_OK = 0,
#define CTRUN_ERROR_CODE(NAME, value, text) CTRUN_##NAME = (value),
    CTRUN_ERRORS(CTRUN_ERROR_CODE)
#undef CTRUN_ERROR_CODE
};

enum {
    CTRUN_ERROR_TEXT_MAX = 1024
};

/* Filled by a failing call; owned by the caller; needs no initialisation. Valid only when the call
 * has returned a negative code. */
struct ctrun_error {
    int code;                        /* what the call returned: negative */
    char text[CTRUN_ERROR_TEXT_MAX]; /* terminated; a longer sentence is cut */
};

/* A short English text for a code, never NULL. Static. */
CTRUN_API const char *ctrun_strerror(int code);

/* ---- ctrun_log(3): where log lines go -------------------------------------------- */

enum ctrun_log_level {
    CTRUN_LOG_ERR,  /* a person must act */
    CTRUN_LOG_WARN, /* the job continues, with a disadvantage */
    CTRUN_LOG_INFO, /* events of a job: some lines a day */
    CTRUN_LOG_DEBUG
};

/* `line` has no newline and is borrowed for the call. Called from any thread, one at a time. */
typedef void ctrun_log_fn(void *context, enum ctrun_log_level level, const char *line);

/* Sends the library's log lines of `level` and of more urgent levels to sink; NULL, the default:
 * no lines. Any thread. */
CTRUN_API void ctrun_log_to(ctrun_log_fn *sink, void *context,
                            enum ctrun_log_level level);

/* ---- ctrun_session(3): this process in the run ----------------------------------- */

struct ctrun_session; /* opaque */

struct ctrun_options {
    size_t size;         /* CTRUN_OPTIONS_INIT */
    uint64_t timeout_ms; /* deadline of joins and store calls; 0, default: 300 000 */
};
#define CTRUN_OPTIONS_INIT                                                             \
    {                                                                                  \
        sizeof(struct ctrun_options), 300000                                           \
    }

/* Reads the environment (RANK, WORLD_SIZE, LOCAL_RANK, ...; none of them set: one process, rank 0
 * of 1) and opens the socket to the agent when ctrun started us. Does not connect to the other
 * ranks: ctrun_group_open() does. options may be NULL. Fails with CTRUN_E_BAD_ENVIRONMENT, naming
 * the variable. Never blocks on the network.
 *
 * A process may open several sessions, one after the other or at once. Their groups are numbered
 * together, so the order in which all ranks open groups is that of all sessions, and one thread at
 * a time opens them. A rank is one process: in a child of fork() the opening of a group with its
 * parent's session is CTRUN_E_USAGE. A session that the child opens itself has its parent's rank,
 * and may open groups only if the parent opens none any more. */
CTRUN_API int ctrun_open(struct ctrun_session **out,
                         const struct ctrun_options *options, struct ctrun_error *err);
/* Accepts NULL. Close its groups first. */
CTRUN_API void ctrun_close(struct ctrun_session *session);

/* The place of this process in the run, as ctrun_open() read it; constant while the session is
 * open. rank is 0 to world_size - 1, local_rank the same among the workers of this node, node_rank
 * the number of this node. Any thread may call these at any time; with a session none of them fails. */
CTRUN_API int ctrun_rank(const struct ctrun_session *session);
CTRUN_API int ctrun_world_size(const struct ctrun_session *session);
CTRUN_API int ctrun_local_rank(const struct ctrun_session *session);
CTRUN_API int ctrun_local_world_size(const struct ctrun_session *session);
CTRUN_API int ctrun_node_rank(const struct ctrun_session *session);
/* How often the whole group was restarted; the same number on every rank. */
CTRUN_API int ctrun_restart_count(const struct ctrun_session *session);
/* Number of the world we are part of; only grows. 0 when not started by ctrun. */
CTRUN_API uint64_t ctrun_generation(const struct ctrun_session *session);

/* Tells the agent that this rank finished `step`. At most a few messages a second leave the
 * process, whatever the call rate. Never blocks, never fails: without an agent it does nothing. */
CTRUN_API void ctrun_step(struct ctrun_session *session, uint64_t step);
/* Sets a gauge of this rank. The last value of each name is shown at /metrics of the run's
 * rendezvous server (labels run and rank), by `ctrunctl status --json` and, after this process has
 * ended in any way, in its worker_ended event. `name` is copied: letters, digits, '_' and ':', the
 * first one no digit, 63 bytes at most; names that begin with "ctrun" or "__" are reserved. At
 * most 32 names per process; data_wait_seconds of the loaders is one of them. value may be NaN or
 * infinite. Costs one write to memory, which the agent reads every two seconds. Never blocks. Any
 * thread. 0, -EINVAL (the name), -ENOSPC (too many names). */
CTRUN_API int ctrun_metric(struct ctrun_session *session, const char *name,
                           double value, struct ctrun_error *err);
/* Tells the agent which samples this rank works on from now on, by ids that stay the same after a
 * restart. When this rank is the root cause of a failure, and it worked on some of these samples
 * at an earlier failure of this run, too, the failure report names their ids. The first 64 ids of
 * a batch are kept. ctrun_loader_next() calls this function, once the agent knows this process by
 * ctrun_step() or ctrun_metric(). `ids` is copied. Never blocks, never fails. Any thread. */
CTRUN_API void ctrun_batch(struct ctrun_session *session, const uint64_t *ids,
                           size_t count);
/* True once the run is to end (ctrunctl stop or drain, pre-emption, resize): save, then leave. All
 * ranks get true at the same call, counted from ctrun_open() or ctrun_group_shrink(), whichever
 * rank the request reached: call it once a step on every rank, so that no rank is left alone in a
 * collective. A barrier after the save keeps the other ranks from leaving before the save is done:
 * when a node has left, the others end their workers, too. A process that has called this function
 * lately (in the last 30 seconds, or within ten times the longest time between its calls), or once until now,
 * and has no handler for the signal that ends the workers (SIGTERM) gets that signal only shortly
 * before the end of the grace time (ctrun --shutdown-timeout); one with a handler gets it at once, as
 * Python has one for Ctrl-C (KeyboardInterrupt), and after a failure all get it at once. The call
 * never waits for other ranks. About ten times a second it asks the store, which may take as long as
 * the session's timeout; when the store does not answer, the call decides for this rank alone from
 * then on, with a warning in the log. Under --survive it decides alone only this time, without the warning; once
 * the connection to the store has ended, until this rank opens a group.
 * Without an agent (torchrun) it is always false. */
CTRUN_API bool ctrun_should_stop(struct ctrun_session *session);

/* Asks for a crash report: on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT a handler hands the
 * agent the frames of the thread that crashed, and ctrun shows them with its error. Then the
 * signal takes its default action: exit status and core file are as without the handler. A signal
 * that already has a handler or is ignored is left alone; a handler that you install later
 * replaces ours. ctrun_close() removes our handlers.
 *
 * ctrun_open() does this by itself when CTRUN_CRASH_REPORT is 1, which ctrun sets; set it to 0 to
 * keep the signals as they are. The calling thread gets an alternate signal stack, if it has none,
 * so that an overflow of its own stack is reported, too; call it in other threads for the same.
 * Without an agent nothing is done. Never blocks. 0, or a negative errno. Several threads may call
 * it at once after ctrun_open() or an earlier call has installed the handlers. */
CTRUN_API int ctrun_crash_report(struct ctrun_session *session,
                                 struct ctrun_error *err);

/* Writes `err` to TORCHELASTIC_ERROR_FILE in the form that torchrun and ctrun show in their failure
 * summary (temporary name, then rename); prints it on stderr if that is not set, or the file cannot
 * be written. For a failure of your own set text, and code to a negative errno or to 0. ctrun
 * decides by err->code: a rank that only lost a peer (CTRUN_E_PEER_LOST) is not the root cause.
 * Returns the exit code that a worker should end with: 1. */
CTRUN_API int ctrun_fail_worker(const struct ctrun_error *err);

/* ---- ctrun_store(3): small values that all ranks see ----------------------------- */

/* A client of the TCPStore at MASTER_ADDR:MASTER_PORT: ctrun's, torchrun's or a script's.
 *
 *     ctrun_store_open(&store, session, &err);
 *     if (ctrun_rank(session) == 0)
 *         ctrun_store_set(store, "dataset", path, strlen(path), &err);
 *     ctrun_store_get(store, "dataset", &value, &length, &err);   // the others wait here
 *     ctrun_store_close(store);
 *
 * All ranks and libraries share the keys: give yours a prefix. Those of this library begin with
 * "ctrun/". */
struct ctrun_store;

/* Connects, retrying until the session's timeout. Blocks. Fails with CTRUN_E_UNREACHABLE,
 * CTRUN_E_DNS, CTRUN_E_PROTOCOL (no store answers there), CTRUN_E_BAD_ENVIRONMENT; at once with
 * -EMFILE, -ENFILE, -ENOBUFS or -ENOMEM. */
CTRUN_API int ctrun_store_open(struct ctrun_store **out, struct ctrun_session *session,
                               struct ctrun_error *err);
/* Accepts NULL. */
CTRUN_API void ctrun_store_close(struct ctrun_store *store);

/* Keys are text of at most 8191 bytes; values are bytes, at most 8 MiB: -EMSGSIZE above that. Each
 * call is one round trip (set waits for no answer, get makes two) and blocks for at most the
 * session's timeout; get and wait, which then ask what is missing, for four seconds more where the
 * server does not answer. After CTRUN_E_TIMEOUT of get and wait the store is still usable if the
 * server still answers; after any other network error all calls return -EPIPE. CTRUN_E_PROTOCOL:
 * the server closed the connection, its only way to refuse a request. One thread at a time per
 * store. */
CTRUN_API int ctrun_store_set(struct ctrun_store *store, const char *key,
                              const void *value, size_t length,
                              struct ctrun_error *err);
/* Waits until key exists. *value is allocated, and the caller frees it with free(); a NUL follows
 * it, which *length does not count. On failure *value and *length have no meaning. */
CTRUN_API int ctrun_store_get(struct ctrun_store *store, const char *key, void **value,
                              size_t *length, struct ctrun_error *err);
/* Adds delta to a decimal counter (0 when absent); *result, which may be NULL, is the new value.
 * Atomic. Reads the value as strtoll() does, like PyTorch's stores: "12x" is 12. CTRUN_E_PROTOCOL
 * when it begins with no number, or with one that does not fit. A sum that does not fit wraps around:
 * INT64_MAX and 1 are INT64_MIN. */
CTRUN_API int ctrun_store_add(struct ctrun_store *store, const char *key, int64_t delta,
                              int64_t *result, struct ctrun_error *err);
/* Waits until all `count` keys exist, for at most timeout_ms; then fails with CTRUN_E_TIMEOUT, and
 * err names the first missing keys. */
CTRUN_API int ctrun_store_wait(struct ctrun_store *store, const char *const *keys,
                               size_t count, uint64_t timeout_ms,
                               struct ctrun_error *err);
/* Returns 1 when the key was there, 0 when not. */
CTRUN_API int ctrun_store_delete(struct ctrun_store *store, const char *key,
                                 struct ctrun_error *err);

/* ---- ctrun_group(3): sets of ranks that communicate ------------------------------ */

/* Types of elements, in the byte order of the machine. The numbers never change. */
enum ctrun_dtype {
    CTRUN_U8,
    CTRUN_I32,
    CTRUN_I64,
    CTRUN_F16,  /* IEEE 754, 5 bits of exponent */
    CTRUN_BF16, /* the upper half of an F32 */
    CTRUN_F32,
    CTRUN_F64,
    CTRUN_I8,
};
/* Bytes of one element; 0 for a value that is no dtype. */
CTRUN_API size_t ctrun_dtype_size(enum ctrun_dtype dtype);

/* How a reduction combines the members' elements at one index. */
enum ctrun_op {
    CTRUN_SUM,
    CTRUN_AVG, /* the sum divided by the number of members; floating point only. Of f32, bf16 and
                * f64 the sum may become infinite where the average would not (nccl: ncclAvg, for
                * which NCCL 2.28 divides first) */
    CTRUN_MIN,
    CTRUN_MAX,
    CTRUN_PROD
};

struct ctrun_group; /* a set of ranks that communicate; opaque */
struct ctrun_work;  /* one collective that runs in the background; opaque */

/* How a group is opened. ctrun_group_open() reads it and keeps nothing of it but stream. Every
 * member passes the same backend, ranks, min_ctas and max_ctas. */
struct ctrun_group_options {
    size_t size;         /* CTRUN_GROUP_OPTIONS_INIT */
    const char *backend; /* "host" (default: shared memory and TCP) or "nccl" */
    const int
        *ranks; /* the members, ascending; NULL: all ranks of the world that are left */
    size_t rank_count;
    uint64_t timeout_ms; /* deadline of every call on this group; 0, default: 600 000 */
    /* 1 shared memory inside a host (default), 0 TCP even there. It is TCP, too, for a rank whose
     * environment has CTRUN_SHM_DISABLE=1, or cannot watch another process (no
     * pidfd in its kernel, or a sandbox that forbids it) */
    int shm;
    void *
        stream; /* nccl: calls start after what this cudaStream_t has by then; NULL: the default
                          * stream. They run on a stream of the group's own, of the highest
                          * priority, on the device that is current at opening. Data may be memory
                          * of the host: it is copied. No cudaDeviceReset() before the last group:
                          * kernels are loaded once. */
    /* nccl: thread blocks of a collective, at least and at most; 0 (default): NCCL decides. Fewer
     * leave more of the GPU to kernels that run meanwhile. NCCL_MIN_CTAS and NCCL_MAX_CTAS of the
     * environment come first. */
    int min_ctas, max_ctas;
};
#define CTRUN_GROUP_OPTIONS_INIT                                                       \
    {                                                                                  \
        sizeof(struct ctrun_group_options), NULL, NULL, 0, 600000, 1, NULL, 0, 0       \
    }

/* Connects to the other members. Collective: every rank of the *world* calls it in the same order
 * (that of all its sessions), each time with the same ranks, as torch.distributed.new_group(); on a
 * rank that is no member *out is NULL and the call returns 0; calls on a group that is NULL are
 * -EINVAL. For the groups {0, 1} and {2, 3} each of the four ranks makes two such calls, or one of
 * ctrun_group_split(). Blocks until all members have come or the deadline ends (CTRUN_E_TIMEOUT,
 * naming the missing ranks, for which it may ask the store for four seconds more). The deadline is
 * the group's, not the session's. CTRUN_E_MISMATCH: the ranks passed different back ends, or
 * different ranks (nccl does not detect this; the host back end may miss it where no rank is in two
 * of the lists). An error of this rank alone, in its arguments or its back end, or too few free
 * descriptors (-EMFILE), is reported at once, and the call may be repeated. Once the members have
 * met, the failure of one ends the call of all, for the others at their deadline at the latest;
 * nccl: at once, and under --survive=sdk the others get CTRUN_E_ABORTED. */
CTRUN_API int ctrun_group_open(struct ctrun_group **out, struct ctrun_session *session,
                               const struct ctrun_group_options *options,
                               struct ctrun_error *err);
/* Cuts `parent` into groups: members that pass the same color form one group, in the order of their
 * ranks in parent (there is no key for another order); CTRUN_SPLIT_NONE: *out is NULL. Collective
 * over parent's members, which may be only a part of the world. options as above, NULL: as
 * parent's; its ranks are ignored. Given options say all: a zero in them is the default, not
 * parent's value; begin with CTRUN_GROUP_OPTIONS_INIT. Either group may be closed first. An error
 * of this rank alone, in its arguments or the choice of its back end, is reported at once, and the
 * call may be repeated; meanwhile the others wait, and at their deadline parent ends. Any other
 * error, also too few free descriptors (-EMFILE), comes after the members have met in parent, and
 * ends it for all of them. nccl: ncclCommSplit() does it, which needs no
 * store, where all members have NCCL 2.18.1 or newer, make their part with nccl on parent's device,
 * and no CUDA graph has calls of parent. Where a member fails meanwhile or is lost, parent ends on
 * all members; else they would wait for it. Under --survive=sdk a failure of one is CTRUN_E_ABORTED
 * on the others. */
enum {
    CTRUN_SPLIT_NONE = -1
};
CTRUN_API int ctrun_group_split(struct ctrun_group **out, struct ctrun_session *session,
                                struct ctrun_group *parent, int color,
                                const struct ctrun_group_options *options,
                                struct ctrun_error *err);
/* Local. Calls in the background that are not done end with CTRUN_E_ABORTED, and may fail on the
 * other ranks: wait for them before. Other ranks that still wait for us get CTRUN_E_PEER_LOST.
 * After a fork() the child uses none of its parent's groups: calls on them are CTRUN_E_USAGE, and
 * close and abort do nothing. An nccl group with memory of ctrun_group_alloc() waits for all
 * kernels of its device, without a deadline. */
CTRUN_API void ctrun_group_close(struct ctrun_group *group);
/* Our index among the members, 0 to size - 1: what root, to and from below mean. It is the
 * session's rank only in a group of the whole world. Both are constant: any thread. */
CTRUN_API int ctrun_group_rank(const struct ctrun_group *group);
CTRUN_API int ctrun_group_size(const struct ctrun_group *group);
/* Ends every running and later call on this group with CTRUN_E_ABORTED, here and, within 100 ms,
 * on the other ranks. May be called from any thread, also while another thread is inside a call.
 * nccl: the others hear of it, and of a failure of one rank, through the store, which they ask once
 * a call has not ended for 40 ms; where the store does not answer, this call takes a second or two,
 * and theirs end when NCCL reports an error or at their deadlines. A group of more than 200 ranks
 * asks more seldom, one of 4,096 about once a second. */
CTRUN_API void ctrun_group_abort(struct ctrun_group *group);

/* ---- ctrun_shrink(3): continuing without a rank that is lost --------------------- */

/* With ctrun --survive=sdk the death of a rank does not end the others. Each of their groups fails
 * with CTRUN_E_PEER_LOST, which names the lost rank. The others give up the current step, then do
 * this:
 *
 *     while (world && ctrun_may_shrink(session) &&
 *            (rc == CTRUN_E_PEER_LOST || rc == CTRUN_E_ABORTED)) {
 *         rc = ctrun_group_shrink(&next, session, world, NULL, &err);
 *         ctrun_group_close(world);
 *         world = next;
 *         if (rc == 0)
 *             rc = ctrun_group_catch_up(world, &steps, state, count, &err);
 *     }
 *
 * and create again what belongs to a group. Before this they destroy or close what uses the old
 * one: DDP, ZeRO, fixed sums, shards. After it they create these, groups of parts of the world, and
 * the sampler of the new rank and size, with its loader, which begins behind the samples that were
 * consumed (ctrun_sampler_set_epoch()); or they call ctrun_batch_plan() for the same global batch.
 * What only the lost rank had, for example its share of ZeRO's state, is lost. ctrun_rank() and
 * ctrun_world_size() stay what they were; ctrun_group_rank() and ctrun_group_size() are those of
 * the new group.
 *
 * With ctrun --survive-replace=N lost ranks are started again, under their old number, while the
 * others continue. Such a process joins the others in its first ctrun_group_open(), which must be
 * of all ranks, once the others take it in; then all call ctrun_group_catch_up(), which gives it
 * the state from a peer's memory. So a program calls ctrun_group_catch_up() after
 * ctrun_group_open(), too: at a first start it sends nothing. And once a step:
 *
 *     if (ctrun_should_grow(session)) {
 *         rc = ctrun_group_grow(&next, session, world, NULL, &err);
 *         ...                                  as above
 *     } */

/* Whether this process is kept when another rank is lost: true under --survive=sdk. When false,
 * report the lost rank with ctrun_fail_worker(). */
CTRUN_API bool ctrun_may_shrink(const struct ctrun_session *session);
/* Opens a new group of the members of `old` that are left, in their old order. Collective over all
 * ranks that are left of the world: each passes the group that it had, several groups in the same
 * order. It waits until each of these ranks has called it. The agent waits for that for
 * --survive-timeout at most, then restarts all of them, as without --survive. Ranks that die
 * meanwhile are left out, too; if one dies before the last of several groups is opened, the calls
 * for all groups but the first fail with CTRUN_E_PEER_LOST: begin again with the first, and pass
 * the new groups, or `old` again where there is none yet. So pass all groups after each loss, also
 * those that have lost no member: a group that was left out and is the first one passed after the
 * next loss fails with CTRUN_E_PEER_LOST, too; pass it again. `old` cannot be used for anything
 * else: its calls fail on all members; close it. options NULL: as old's; options' ranks are
 * ignored. It may be called without a loss, for example after ctrun_group_abort(): then the same
 * ranks form the new group. The running kernels of an nccl group end, and NCCL makes the new
 * communicator from the old one (ncclCommShrink); where a rank could not keep the old one, or NCCL
 * is older than 2.28.7, all ranks make a new one. From here on ctrun_group_open() and
 * ctrun_group_split() know of the loss, and ctrun_should_stop() counts its calls.
 *
 * Ranks that wait to be taken in become members, too: of the first group that is opened so after a
 * change, if `old` was of all ranks.
 *
 * CTRUN_E_CHANGED: the others continued without this rank: end this process. CTRUN_E_UNSUPPORTED:
 * without --survive=sdk. CTRUN_E_CLOSED: no connection to the agent. CTRUN_E_TIMEOUT: by old's
 * deadline. CTRUN_E_PEER_LOST: as above. The first group fails with it, or with CTRUN_E_ABORTED, at
 * the deadline only. */
CTRUN_API int ctrun_group_shrink(struct ctrun_group **out,
                                 struct ctrun_session *session, struct ctrun_group *old,
                                 const struct ctrun_group_options *options,
                                 struct ctrun_error *err);
/* True once a rank that was started in place of a lost one waits: then call ctrun_group_grow().
 * All ranks get true at the same call, as with ctrun_should_stop(): call it once a step on every
 * rank, after ctrun_should_stop(). Without --survive-replace the result is false, and the call
 * costs nothing; with it the call asks the store about ten times a second. */
CTRUN_API bool ctrun_should_grow(struct ctrun_session *session);
/* Does what ctrun_group_shrink() does, under the name that fits the case: opens a group of the
 * ranks that are left and of those that wait. A rank that is still in a call on `old` gets
 * CTRUN_E_ABORTED there, and then calls this. */
CTRUN_API int ctrun_group_grow(struct ctrun_group **out, struct ctrun_session *session,
                               struct ctrun_group *old,
                               const struct ctrun_group_options *options,
                               struct ctrun_error *err);

struct ctrun_tensor; /* see ctrun_checkpoint(3) */
/* When a collective fails, some ranks may have completed it already, and the step with it. *steps:
 * how many steps this rank has made; on return, the most that any rank has made. Ranks that have
 * made fewer, or are new, get the state (parameters, optimizer, and the buffers of normalisations:
 * ctrun_ddp_create() sends those of the first rank, which may be a new one) of the lowest rank of
 * those that made most; when all have made the same number, nothing is sent. All ranks pass the
 * same tensors, whole ones; received data are checked by a sum (CRC-32C) of what was sent. What the
 * forward of a step that failed has changed, such as those buffers, is the program's to restore.
 * Collective, blocks. CTRUN_E_MISMATCH: the ranks passed different tensors (the group lives), or a
 * sum is wrong. CTRUN_E_CHANGED: the last rank with a whole state was lost while it sent the state.
 * After a failure the state is undefined; a later call of this rank, on the group that
 * ctrun_group_shrink() makes of this one, takes that into account. */
CTRUN_API int ctrun_group_catch_up(struct ctrun_group *group, uint64_t *steps,
                                   const struct ctrun_tensor *state, size_t count,
                                   struct ctrun_error *err);

/* ---- ctrun_world(3): the same where groups are another library's, such as PyTorch's ---- */

/* For ctrun --survive=torch, where a rank in a collective gets an error when another rank is lost.
 * The program then asks which ranks continue, forms a new group of these, and makes the step
 * again; ctrun.elastic does so for PyTorch. A session that opens groups of the SDK uses none of
 * this. */

/* Whether a rank is lost, or waits to be taken in, that the last answer of ctrun_world_next() does
 * not include. Never blocks. */
CTRUN_API bool ctrun_world_changes(struct ctrun_session *session);
/* The same for lost ranks only. Use it while new ranks get their state: ranks that come later can
 * wait. */
CTRUN_API bool ctrun_world_shrinks(struct ctrun_session *session);
/* Asks the agent which ranks continue, and blocks until each living rank has asked, too. Writes
 * these ranks, ascending, to `ranks`, which has room for max, and returns how many they are
 * (-EINVAL: more than max; call it again with more room). *epoch: the answer's number, higher each
 * time. One thread at a time.
 *
 * CTRUN_E_CHANGED: the others continue without this rank: end this process. CTRUN_E_UNSUPPORTED:
 * without --survive; CTRUN_E_CLOSED: no connection to the agent. CTRUN_E_TIMEOUT. */
CTRUN_API int ctrun_world_next(struct ctrun_session *session, uint64_t timeout_ms,
                               int *ranks, int max, uint32_t *epoch,
                               struct ctrun_error *err);
/* The address of the worker store: returns the host, writes *port. They are MASTER_ADDR and
 * MASTER_PORT until the node of the store is lost; then ctrun_world_next() changes them to an empty
 * store on another node, the same for all ranks that continue. The host is valid until the next
 * ctrun_world_next(). */
CTRUN_API const char *ctrun_world_store(const struct ctrun_session *session, int *port);

/* ---- ctrun_collectives(3): what the ranks of a group do together ----------------- */

/* Memory that the host back end reduces without a copy (shared between the ranks of a host); on an
 * nccl group memory of its device. Collective, same size on every rank; lives until it is freed or
 * the group is closed; zeroed; on a host 4096-byte aligned. Ordinary memory works everywhere too,
 * with one copy more. On an nccl group it waits until this rank's earlier calls are done; when that
 * takes longer than the group's timeout, CTRUN_E_TIMEOUT ends the group. -EINVAL: 0 bytes, too many
 * of them, or too many blocks: the group lives. After CTRUN_E_SHM or -ENOMEM, no memory on one of
 * several members, the group is dead. */
CTRUN_API int ctrun_group_alloc(struct ctrun_group *group, size_t bytes, void **out,
                                struct ctrun_error *err);
/* Frees memory of ctrun_group_alloc(); NULL is fine. Local, at any time; waits for this rank's
 * running calls, on an nccl group for its whole device. Works on a group that has failed, too.
 * -EINVAL: `at` is not the beginning of such memory. A group allocates at most 65,536 times. */
CTRUN_API int ctrun_group_free(struct ctrun_group *group, void *at,
                               struct ctrun_error *err);

/* Options of one call; NULL stands for CTRUN_CALL_OPTIONS_INIT. */
struct ctrun_call_options {
    size_t size;         /* CTRUN_CALL_OPTIONS_INIT */
    uint64_t timeout_ms; /* deadline of this call; 0: the group's */
    struct ctrun_work **
        work; /* NULL: the call blocks. Else it continues in the background, its data are
                               * borrowed until it is done, and *work is for ctrun_work_wait(); NULL
                               * where the call fails at once */
    void *stream; /* nccl: starts after what this cudaStream_t has; NULL: the group's */
};
#define CTRUN_CALL_OPTIONS_INIT                                                        \
    {                                                                                  \
        sizeof(struct ctrun_call_options), 0, NULL, NULL                               \
    }

/* Collectives: every member calls the same ones in the same order with the same count, dtype, op
 * and root; a difference is CTRUN_E_MISMATCH, not a hang (nccl: where both calls are new to the
 * group, which has not yet made 64 different ones, or where they hang for a second, or a quarter of
 * their time if that is less; else the data are wrong). They block until this rank's part is
 * done. in and out are contiguous, borrowed for the call, equal (in place) or apart (an overlap is
 * -EINVAL; of all_gather_v and all_to_all_v, gather and scatter it is not found), and may be NULL
 * on a rank that sends or receives nothing; after a failure out is undefined. count is in elements
 * of dtype. Reductions take the members in rank order, so that the bits of a result depend on the
 * data and the size of the group alone, not on how the data travel (nccl: on what NCCL chooses).
 * Failures: CTRUN_E_MISMATCH, CTRUN_E_TIMEOUT (names who is missing;
 * nccl: only where all wait for all, if they wait for a second or a quarter of their time, and
 * if the store answers),
 * CTRUN_E_PEER_LOST (which rank has left the group or ended, or which node of the world is lost),
 * CTRUN_E_ABORTED; after any of them the group is dead, later calls return the same code and say
 * that it has failed before: close it. -EINVAL for arguments that are wrong by themselves,
 * CTRUN_E_USAGE while another thread is inside a call on the same group: the group lives. */
/* Below, in_r is the `in` of member r, rank our own index, op(r) a reduction over all members; e
 * runs from 0 to count - 1. */
/* out[e] = op(r) in_r[e], bit-equal on all ranks. Integers wrap around and have no
 * CTRUN_AVG: CTRUN_E_UNSUPPORTED; f16 and bf16 are added up in f32 and rounded once. */
CTRUN_API int ctrun_all_reduce(struct ctrun_group *group, const void *in, void *out,
                               size_t count, enum ctrun_dtype dtype, enum ctrun_op op,
                               const struct ctrun_call_options *options,
                               struct ctrun_error *err);
/* The same for the root alone: the others' out is not touched. */
CTRUN_API int ctrun_reduce(struct ctrun_group *group, const void *in, void *out,
                           size_t count, enum ctrun_dtype dtype, enum ctrun_op op,
                           int root, const struct ctrun_call_options *options,
                           struct ctrun_error *err);
/* out[e] = op(r) in_r[rank * count + e]. in: size * count elements, a part for each member; out:
 * count elements, our reduced part. In place: out == in + rank * count. */
CTRUN_API int ctrun_reduce_scatter(struct ctrun_group *group, const void *in, void *out,
                                   size_t count, enum ctrun_dtype dtype,
                                   enum ctrun_op op,
                                   const struct ctrun_call_options *options,
                                   struct ctrun_error *err);
/* out[e] = in_root[e], on the root as well. */
CTRUN_API int ctrun_broadcast(struct ctrun_group *group, const void *in, void *out,
                              size_t count, enum ctrun_dtype dtype, int root,
                              const struct ctrun_call_options *options,
                              struct ctrun_error *err);
/* out[r * count + e] = in_r[e]. in: count elements; out: size * count elements in rank order. In
 * place: in == out + rank * count. */
CTRUN_API int ctrun_all_gather(struct ctrun_group *group, const void *in, void *out,
                               size_t count, enum ctrun_dtype dtype,
                               const struct ctrun_call_options *options,
                               struct ctrun_error *err);
/* The same for the root alone. */
CTRUN_API int ctrun_gather(struct ctrun_group *group, const void *in, void *out,
                           size_t count, enum ctrun_dtype dtype, int root,
                           const struct ctrun_call_options *options,
                           struct ctrun_error *err);
/* out[e] = in_root[rank * count + e]. in, of the root: size * count elements; out: count elements,
 * our part of them. In place: the root's out == in + rank * count. */
CTRUN_API int ctrun_scatter(struct ctrun_group *group, const void *in, void *out,
                            size_t count, enum ctrun_dtype dtype, int root,
                            const struct ctrun_call_options *options,
                            struct ctrun_error *err);
/* out[r * count + e] = in_r[rank * count + e]. in: size * count elements, a part for each member;
 * out: as many, a part from each. Not in place. */
CTRUN_API int ctrun_all_to_all(struct ctrun_group *group, const void *in, void *out,
                               size_t count, enum ctrun_dtype dtype,
                               const struct ctrun_call_options *options,
                               struct ctrun_error *err);

/* Parts of unequal length: counts[i] elements of member i, starts[i] elements from the beginning of
 * the data; starts NULL: one after the other. Borrowed for the call, even in the background. */
struct ctrun_parts {
    size_t size; /* CTRUN_PARTS_INIT */
    const size_t *counts;
    const size_t *starts;
};
#define CTRUN_PARTS_INIT                                                               \
    {                                                                                  \
        sizeof(struct ctrun_parts), NULL, NULL                                         \
    }
/* in: counts[rank] elements; out: everybody's. All pass the same counts: a difference is
 * CTRUN_E_MISMATCH on all (nccl: as with count). In place: in is where our part of out is. */
CTRUN_API int ctrun_all_gather_v(struct ctrun_group *group, const void *in, void *out,
                                 const struct ctrun_parts *out_parts,
                                 enum ctrun_dtype dtype,
                                 const struct ctrun_call_options *options,
                                 struct ctrun_error *err);
/* The length that member i's in_parts has for j equals the one that j's out_parts has for i: a
 * difference is CTRUN_E_MISMATCH on all members, naming two members that differ and both lengths
 * (nccl does not detect this: the data are wrong, or the call ends at its deadline). Not in place. */
CTRUN_API int ctrun_all_to_all_v(struct ctrun_group *group, const void *in,
                                 const struct ctrun_parts *in_parts, void *out,
                                 const struct ctrun_parts *out_parts,
                                 enum ctrun_dtype dtype,
                                 const struct ctrun_call_options *options,
                                 struct ctrun_error *err);
/* Returns when every member has called it. */
CTRUN_API int ctrun_barrier(struct ctrun_group *group,
                            const struct ctrun_call_options *options,
                            struct ctrun_error *err);

/* Point to point: sends count elements from the data of one member to the data of another, both
 * borrowed for the call; not to itself (-EINVAL). Calls are matched by their order between the two;
 * both give the same count and dtype, else the receiver gets CTRUN_E_MISMATCH, and the sender at
 * this call or at a later one; so do both where one waits for the other, which is in a collective.
 * Both block: a send may wait for its receiver, and meanwhile stores what others send to us, up to
 * 256 MiB from each, so that all may send before they receive. Sends and receives in the background
 * that were started one after the other, with nothing else between them, run at the same time. */
CTRUN_API int ctrun_send(struct ctrun_group *group, const void *data, size_t count,
                         enum ctrun_dtype dtype, int to,
                         const struct ctrun_call_options *options,
                         struct ctrun_error *err);
CTRUN_API int ctrun_recv(struct ctrun_group *group, void *data, size_t count,
                         enum ctrun_dtype dtype, int from,
                         const struct ctrun_call_options *options,
                         struct ctrun_error *err);
/* From here to ctrun_batch_end() sends and receives are only recorded; their options are NULL. Any
 * other call on the group is CTRUN_E_USAGE meanwhile. */
CTRUN_API int ctrun_batch_begin(struct ctrun_group *group, struct ctrun_error *err);
/* Does all recorded sends and receives at the same time. An empty batch is fine. The batch is
 * over, also on failure. */
CTRUN_API int ctrun_batch_end(struct ctrun_group *group,
                              const struct ctrun_call_options *options,
                              struct ctrun_error *err);

/* Calls in the background run in the order in which they were started, and before any later
 * blocking call of the group. They continue while the program does something else, on a thread of
 * the group; in shared memory that thread takes over once the program has made no call on the group
 * for 2 ms. Each work is waited for once, also after ctrun_group_close(), or its memory is lost. */
/* Waits, frees the work (also on failure) and returns its result. CTRUN_E_USAGE, with the work
 * still there, while another thread is inside a call on the group. */
CTRUN_API int ctrun_work_wait(struct ctrun_work *work, struct ctrun_error *err);
/* The same for at most timeout_ms: then CTRUN_E_TIMEOUT, and the work is still there and
 * continues. */
CTRUN_API int ctrun_work_wait_for(struct ctrun_work *work, uint64_t timeout_ms,
                                  struct ctrun_error *err);
/* 1: it is done, or has failed: ctrun_work_wait() returns at once; 0: not yet. Never blocks;
 * nccl: after 40 ms it asks the store now and then, which takes up to two seconds if that does not
 * answer. CTRUN_E_USAGE as above. */
CTRUN_API int ctrun_work_test(struct ctrun_work *work, struct ctrun_error *err);

/* nccl: `stream` (a cudaStream_t) waits, the host does not: what is put on the stream from now on
 * sees the result. Frees the work, also on failure. A call that fails on the device later, or is
 * not done by its deadline, ends the group: the streams continue with undefined data, and the next
 * call on the group returns the reason. CTRUN_E_USAGE, with the work still there, on a group of
 * the host. */
CTRUN_API int ctrun_work_wait_on(struct ctrun_work *work, void *stream,
                                 struct ctrun_error *err);

/* ---- ctrun_ddp(3): gradients averaged over all ranks ----------------------------- */

/* PyTorch's DistributedDataParallel without autograd: the trainer says when a gradient is
 * complete, and reductions run in the background while backward continues.
 *
 *     ctrun_ddp_create(&ddp, world, params, count, NULL, &err);
 *     for each step:
 *         ctrun_ddp_forward_begin(ddp, &err);
 *         ... forward ...
 *         ctrun_ddp_backward_begin(ddp, NULL, &err);
 *         for each parameter p, in the order in which backward completes them:
 *             ... write its gradient to ctrun_ddp_grad(ddp, p) ...
 *             ctrun_ddp_grad_ready(ddp, p, NULL, &err);
 *         ctrun_ddp_backward_end(ddp, NULL, &err);
 *         ... optimizer: the gradients are averages now, bit-equal on all ranks ...
 *
 * The values in a gradient when it is ready are averaged. A backward that overwrites needs no
 * ctrun_ddp_zero_grad(); one that adds to what is there accumulates as PyTorch does.
 *
 * On an nccl group parameters and gradients are memory of the device, and each `stream` is a
 * cudaStream_t: reductions start after the kernels that the stream has by then, on a stream of the
 * group's own, while backward continues; backward_end() makes its stream wait, and the host waits
 * for nothing. How a step ended, a forgotten gradient or a lost rank, is reported by the next
 * backward_begin() (or forward_begin()), which waits for it: the host is at most one step ahead of
 * the device. With find_unused backward_end() waits. On a group of the host `stream` is NULL.
 *
 * Misuse is CTRUN_E_USAGE at the call that is wrong; the step can continue or begin again. When a
 * collective failed, the code is the group's (CTRUN_E_PEER_LOST, ...): destroy the object,
 * close the group. One thread at a time. */
struct ctrun_ddp; /* opaque */

enum {
    CTRUN_MAX_DIMS = 8
};

/* One parameter, in registration order; the order is its identity on every rank. */
struct ctrun_param {
    size_t size;            /* CTRUN_PARAM_INIT */
    const char *name;       /* kept */
    void *data;             /* kept; contiguous, row-major */
    enum ctrun_dtype dtype; /* floating point, unless no_grad */
    int dims;
    int64_t sizes[CTRUN_MAX_DIMS];
    bool no_grad; /* broadcast at the start, never reduced */
    bool
        is_buffer; /* with no_grad: the statistics of a normalisation, say. Rank 0's go to all ranks
                     * with every forward, but for the one that follows a forward under no_sync;
                     * nccl: as the stream of the last gradients has it, at first the group's. To
                     * average them, or to send them after the forward, leave it unset, and call
                     * the group's collectives yourself behind forward_begin(), in the background
                     * also beside the gradients, until after backward_end(); in a join behind
                     * a backward_end() that synchronises, and in on_step */
    void *
        grad; /* kept; the caller's memory for the gradient, in all parameters with one or in none;
                * NULL: the library's. Where neighbours in the list are neighbours in memory on
                * every rank, as in one array, they travel together; buckets are cut once, and
                * nothing ever moves */
};
#define CTRUN_PARAM_INIT                                                               \
    {                                                                                  \
        sizeof(struct ctrun_param), NULL, NULL, CTRUN_F32, 0, {0}, false, false, NULL  \
    }

/* What a hook gets: a bucket's gradients, one after the other, with up to 255 bytes of zeros in
 * between. Borrowed for the call; data until the next forward. */
struct ctrun_slice { /* one parameter's gradient; stays as it is */
    size_t param;    /* index in the list */
    size_t offset;   /* elements from the bucket's beginning */
    size_t elements;
};
struct ctrun_bucket {
    size_t size;
    size_t index; /* in the order in which buckets start, the same on all ranks */
    size_t count; /* of buckets */
    void *data;
    size_t elements;
    enum ctrun_dtype dtype;
    const struct ctrun_slice *slices; /* by offset; borrowed for the call */
    size_t slice_count;
    /* nccl: the cudaStream_t that the gradients come on; in `done` that of backward_end() */
    void *stream;
};
/* Replaces a bucket's average, division included: starts one call on the group in the background
 * and leaves it in *work, or does everything itself and leaves *work NULL. Called on all ranks in
 * the same order, by grad_ready() or backward_end(). Negative: the step fails with that. On an
 * nccl group calls on this group run after the gradients; pass the bucket's stream to the hook's
 * own kernels and to calls on other groups. It waits for the group's earlier calls if the bucket's
 * gradients came on several streams, or some are zeroes. The hook must not wait for the device. */
typedef int ctrun_ddp_hook_fn(void *context, struct ctrun_group *group,
                              const struct ctrun_bucket *bucket,
                              struct ctrun_work **work, struct ctrun_error *err);
/* Called after the hook's call has finished, in backward_end(): does the rest of the work on the
 * result; on an nccl group by kernels on the bucket's stream, which run after that call. */
typedef int ctrun_ddp_hook_done_fn(void *context, const struct ctrun_bucket *bucket,
                                   struct ctrun_error *err);

/* PowerSGD (Vogels, Karimireddy, Jaggi: "PowerSGD: practical low-rank gradient compression for
 * distributed optimization", NeurIPS 2019), as torch's powerSGD_hook: an f32 gradient seen as a
 * matrix, its first dimension times all others, travels as two matrices of `rank` columns. Other
 * gradients travel uncompressed. Takes as much memory as the gradients once more, for what
 * compression left out. */
struct ctrun_powersgd_options {
    size_t size; /* CTRUN_POWERSGD_OPTIONS_INIT */
    int rank;    /* columns; default 1 */
    uint64_t
        start_step; /* steps that synchronise before it are averaged plainly; default 1000,
                          * at least 2 */
    double
        min_compression; /* a gradient is compressed if so many times fewer elements travel then;
                             * default 2 */
    bool no_error_feedback; /* what is left out is lost, not added to the next step's */
    bool
        no_warm_start; /* each step begins with random columns, not with those of the last */
    double epsilon; /* added to norms that are divided by; default 0 */
    uint64_t seed;  /* of the random columns */
};
#define CTRUN_POWERSGD_OPTIONS_INIT                                                    \
    {                                                                                  \
        sizeof(struct ctrun_powersgd_options), 1, 1000, 2.0, false, false, 0.0, 0      \
    }

struct ctrun_ddp_options {
    size_t size;               /* CTRUN_DDP_OPTIONS_INIT */
    size_t bucket_cap_bytes;   /* default 25 MiB */
    size_t first_bucket_bytes; /* default 1 MiB */
    bool find_unused;          /* some parameters may get no gradient in a step */
    bool no_init_sync;         /* skip check and broadcast of the initial parameters: on
                              all ranks or on none */
    bool divide_by_caller;     /* gradients arrive divided by the world size already */
    enum ctrun_dtype
        reduce_dtype; /* CTRUN_F16 or CTRUN_BF16: f32 gradients travel so, and their
                                    * averages are rounded so; CTRUN_F32: each type as it is */
    ctrun_ddp_hook_fn *hook; /* NULL: none. One of reduce_dtype, hook and powersgd */
    ctrun_ddp_hook_done_fn *hook_done; /* of hook; NULL: nothing is left to do */
    void *hook_context;                /* kept */
    const struct ctrun_powersgd_options *powersgd; /* read by create; NULL: none */
    bool
        check_finite; /* a gradient with NaN or infinity that is ready on any rank fails the step on
                        * all: CTRUN_E_DIVERGED by backward_end() names rank and parameter; on an
                        * nccl group reported like the end of a step. Reads every gradient once
                        * more */
    bool
        static_graph; /* every step has the gradients of the first, each as often: a parameter may
                        * be ready several times, and some on no rank or on some ranks only. The
                        * first step begins its reductions at its end and tells which; find_unused
                        * and its flags are not needed */
    bool
        small_last; /* when buckets are rebuilt, the one of first_bucket_bytes is made of the
                     * gradients that are ready last: what remains to be averaged after backward is
                     * short. Default: of those that are ready first, so that the first reduction
                     * begins early. No effect with shard_gradients, with memory of the caller, or
                     * with find_unused without static_graph; still the same on all ranks */
    bool
        shard_gradients; /* for ctrun_zero with options.ddp: each rank gets the averages of its
                          * pieces alone, by a reduce-scatter. What backward_end() leaves elsewhere
                          * is undefined: each step overwrites the gradients, or begins with
                          * ctrun_ddp_zero_grad(); with find_unused or static_graph it begins with
                          * that. Less is sent between hosts; in shared memory a step is slower. The
                          * buckets are never rebuilt. Not with hook or powersgd:
                          * CTRUN_E_UNSUPPORTED */
};
#define CTRUN_DDP_OPTIONS_INIT                                                         \
    {                                                                                  \
        sizeof(struct ctrun_ddp_options), 25u << 20, 1u << 20, false, false, false,    \
            CTRUN_F32, NULL, NULL, NULL, NULL, false, false, false, false              \
    }

/* Checks that all ranks have the same parameters and options (CTRUN_E_MISMATCH names the first that
 * differs, on every rank; where a rank's own arguments are wrong, it gets their error, and the
 * others CTRUN_E_MISMATCH with its sentence; the group lives), broadcasts rank 0's values, and lays
 * out the gradient buckets. Collective, blocks. group is kept, options may be NULL. params is
 * copied; what it points to is kept. The buckets are memory of the group (ctrun_group_alloc()),
 * unless the caller has its own (ctrun_param.grad): a host group copies ordinary memory once more,
 * but not memory of ctrun_group_alloc(). -EINVAL: gradients that overlap. */
CTRUN_API int ctrun_ddp_create(struct ctrun_ddp **out, struct ctrun_group *group,
                               const struct ctrun_param *params, size_t count,
                               const struct ctrun_ddp_options *options,
                               struct ctrun_error *err);
/* Local. Waits for reductions that still run, and frees the buckets; call it before
 * ctrun_group_close(). */
CTRUN_API void ctrun_ddp_destroy(struct ctrun_ddp *ddp);
/* Where backward must write parameter p's gradient: bucket memory, so that nothing is copied.
 * Valid until the next ctrun_ddp_forward_begin(): ask again in every step. NULL for a parameter
 * without gradient. If the caller gave memory of its own, it is always that memory. */
CTRUN_API void *ctrun_ddp_grad(struct ctrun_ddp *ddp, size_t p);
/* One step is: forward_begin, backward_begin, grad_ready for each parameter in the order in
 * which backward completes them, backward_end. The second forward_begin is collective: buckets
 * are rebuilt once, in rank 0's order, and gradients move along. A forward without backward is
 * allowed. */
CTRUN_API int ctrun_ddp_forward_begin(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* used: NULL, or one flag per parameter with find_unused: 0 gets no gradient in this step. */
CTRUN_API int ctrun_ddp_backward_begin(struct ctrun_ddp *ddp, const uint8_t *used,
                                       struct ctrun_error *err);
/* Starts the reductions that waited only for p. Does not wait for them. */
CTRUN_API int ctrun_ddp_grad_ready(struct ctrun_ddp *ddp, size_t p, void *stream,
                                   struct ctrun_error *err);
/* Waits for the reductions, or lets stream wait (see above). When a rank forgot a gradient, every
 * rank fails with CTRUN_E_USAGE, which names it; nobody hangs. */
CTRUN_API int ctrun_ddp_backward_end(struct ctrun_ddp *ddp, void *stream,
                                     struct ctrun_error *err);
/* on: the steps whose forward begins now keep their gradients local and add them up (if
 * backward adds); the first step after it is switched off averages the sum. All ranks pass the
 * same: where the numbers of backwards differ, the next collective is CTRUN_E_MISMATCH (nccl: not
 * found). */
CTRUN_API void ctrun_ddp_no_sync(struct ctrun_ddp *ddp, bool on);
/* Sets all gradients to zero (they live in the buckets), in the order of stream. Not while
 * gradients are averaged: CTRUN_E_USAGE from the first one that is ready to backward_end(). On a
 * group of the host it fails with nothing else. */
CTRUN_API int ctrun_ddp_zero_grad(struct ctrun_ddp *ddp, void *stream,
                                  struct ctrun_error *err);
/* Scales all gradients so that the norm of all of them together is max_norm at most, as torch's
 * clip_grad_norm_ does: after backward_end(), on each rank by itself, with the same bits on all.
 * *norm, which may be NULL, is the norm before. CTRUN_E_DIVERGED names the first parameter at which
 * the sum of squares overflows or is not finite (f64 gradients overflow it from about 1e154 on);
 * then nothing is scaled. Norms of a host and of a device differ in their last bits. On an nccl
 * group it comes in the order of backward_end()'s stream. Where norm is NULL the host waits for
 * nothing (but once a step was captured, and with check_finite, for the step), and CTRUN_E_DIVERGED
 * is reported by the next backward_begin(); else it waits for the device. With shard_gradients it
 * is collective, each rank scales its pieces, and the norm may differ in its last bits from that
 * of whole averages; in a join on_step calls it, too, and returns 0 where it is
 * CTRUN_E_DIVERGED. */
CTRUN_API int ctrun_ddp_clip_grad_norm(struct ctrun_ddp *ddp, double max_norm,
                                       double *norm, struct ctrun_error *err);
/* Whether all ranks still have the same parameters, bit by bit; buffers may differ. Collective,
 * between steps; reads all parameters once and sends 8 bytes. CTRUN_E_MISMATCH, on all ranks, names
 * the ranks that differ from the majority (of two equal halves: from the one with rank 0), and the
 * first parameter that differs; the object and the group live. On an nccl group the parameters are
 * read as backward_end()'s stream has them, and the host waits. */
CTRUN_API int ctrun_ddp_check_replicas(struct ctrun_ddp *ddp, struct ctrun_error *err);

/* A step in a CUDA graph, on an nccl group: the caller's kernels and what DDP puts on streams are
 * recorded once, and launched together from then on:
 *
 *     ... two steps at least, with all that the graph is to have ...
 *     ctrun_ddp_capture_begin(ddp, stream, &err);
 *     cudaStreamBeginCapture(stream, ...);
 *     ... one step: forward_begin to backward_end, clip_grad_norm (norm NULL), zero_grad,
 *         the optimizer's kernels ...
 *     cudaStreamEndCapture(stream, &graph);
 *     ctrun_ddp_capture_end(ddp, &err);
 *     for each further step:
 *         cudaGraphLaunch(exec, stream);
 *         ctrun_ddp_replayed(ddp, stream, &err);
 *
 * Ranks capture the same, and launch it equally often. Gradients stay where they are: the
 * addresses in the graph hold as long as the object lives, and the graph is destroyed before it.
 * Steps without a graph may come in between, and other calls on the group behind replayed(). The
 * record of calls (ctrunctl why) has the calls of a graph once, from its capture.
 *
 * capture_begin() comes before cudaStreamBeginCapture(), between steps; it waits for the last
 * step. CTRUN_E_UNSUPPORTED: find_unused, static_graph, powersgd, buffers, a join, a group of the
 * host; CTRUN_E_USAGE: too early, or in a step. A call that fails in the capture has run nothing:
 * the object and the group live; end the capture and throw the graph away. The same holds for
 * other calls on the group with a stream that is being captured: they need a work, and a stream
 * that waits for it (ctrun_work_wait_on()); memory of the host and the host's own waits are
 * CTRUN_E_UNSUPPORTED. A gradient that is missing in the captured step is CTRUN_E_USAGE by its
 * backward_end(). */
CTRUN_API int ctrun_ddp_capture_begin(struct ctrun_ddp *ddp, void *stream,
                                      struct ctrun_error *err);
/* Local, never blocks. CTRUN_E_USAGE: no capture has begun; or the step in it has not ended: the
 * capture is over, throw the graph away. */
CTRUN_API int ctrun_ddp_capture_end(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* Call it after each launch, with its stream. Waits for the launch before, and returns how that
 * one ended, as backward_begin() does for a step: CTRUN_E_DIVERGED (check_finite, clip_grad_norm),
 * after which the next launch may follow, or the group's failure (CTRUN_E_PEER_LOST,
 * CTRUN_E_TIMEOUT, ...), after which the graph must not be launched again. CTRUN_E_USAGE: nothing
 * was captured, or in a step. The group's timeout for this launch begins here. */
CTRUN_API int ctrun_ddp_replayed(struct ctrun_ddp *ddp, void *stream,
                                 struct ctrun_error *err);

/* Uneven inputs: after join_begin() each rank makes as many steps as it has data for, then calls
 * join_end(), which takes part in the others' steps with zeros until all ranks have called it.
 * Then all get the parameters and buffers of the highest rank of those that made the last step.
 * Each forward in between must have its backward, and costs one more all-gather of one byte per
 * rank. */
typedef int ctrun_join_step_fn(void *context, struct ctrun_error *err);
struct ctrun_join_options {
    size_t size; /* CTRUN_JOIN_OPTIONS_INIT */
    bool
        divide_by_active; /* averages are over the ranks that have data, not over all; a hook of the
                            * program divides as it likes */
    bool
        fail_early; /* the first rank without data ends the join on all ranks: CTRUN_E_MISMATCH by
                      * forward_begin() and join_end() */
    ctrun_join_step_fn *
        on_step; /* join_end() calls it after each step of the others that synchronised:
                                  * for other collectives of a step. NULL: there are none */
    void *context; /* kept */
};
#define CTRUN_JOIN_OPTIONS_INIT                                                        \
    {                                                                                  \
        sizeof(struct ctrun_join_options), false, false, NULL, NULL                    \
    }
/* Local, on every rank, the same options, which may be NULL. CTRUN_E_UNSUPPORTED with static_graph.
 * On an nccl group each forward waits for the device: for the byte of each rank. */
CTRUN_API int ctrun_ddp_join_begin(struct ctrun_ddp *ddp,
                                   const struct ctrun_join_options *options,
                                   struct ctrun_error *err);
/* Blocks until all ranks have called it, also when a step of the others fails with CTRUN_E_USAGE or
 * CTRUN_E_DIVERGED. On an nccl group these two are also returned, once the join is over, where this
 * rank's own last step failed with them: no other call reports it; all ranks have the same
 * parameters, and the object lives. CTRUN_E_MISMATCH, on all: fail_early, or some ranks synchronise
 * and others are under no_sync; the join is over, the object lives. Negative from on_step: the same
 * here, while the others wait for us. After 1,000 steps of the others it logs a warning. */
CTRUN_API int ctrun_ddp_join_end(struct ctrun_ddp *ddp, struct ctrun_error *err);
/* With find_unused: false when no rank used p in the last step, with static_graph: in the first
 * (leave the parameter alone; its gradient is what it was before). */
CTRUN_API bool ctrun_ddp_grad_is_used(const struct ctrun_ddp *ddp, size_t p);

struct ctrun_ddp_stats {
    size_t size; /* CTRUN_DDP_STATS_INIT */
    uint64_t iterations;
    bool has_rebuilt_buckets;
    size_t bucket_count;
    size_t bucket_bytes[64];      /* of the first 64 buckets, launch order */
    uint64_t backward_compute_ns; /* last step: backward begin to last gradient */
    uint64_t backward_comm_ns;    /* last step: first bucket started to last one done; 0
                                   * where the host did not wait for it */
};
#define CTRUN_DDP_STATS_INIT                                                           \
    {                                                                                  \
        sizeof(struct ctrun_ddp_stats), 0, false, 0, {0}, 0, 0                         \
    }
/* Never blocks; between steps. -EINVAL when out does not begin with its size. */
CTRUN_API int ctrun_ddp_get_stats(const struct ctrun_ddp *ddp,
                                  struct ctrun_ddp_stats *out, struct ctrun_error *err);

/* The same and more as one line of JSON under the names that torch's DDP logging data have:
 * parameters, options, buckets before and after the rebuild, the order in which gradients were
 * ready, and times in ns with their means (avg_...) over all steps that synchronised.
 * NUL-terminated; returns its length. -ENOSPC: out is too small; 4096 bytes do for some hundred
 * parameters. Never blocks. */
CTRUN_API int ctrun_ddp_stats_json(const struct ctrun_ddp *ddp, char *out, size_t size,
                                   struct ctrun_error *err);

/* ---- ctrun_fixed_sum(3): a sum whose bits do not depend on the number of ranks ---- */

/* The data to sum come from virtual ranks, whose number is the same in every world. Each rank has
 * a contiguous range of virtual ranks, and adds the data of each. All data are added along one
 * tree over the virtual ranks, so that the bits of the sum depend on the data alone:
 *
 *     ctrun_fixed_sum_create(&sum, world, 8, count, CTRUN_F32, &err);
 *     in each step:
 *         ctrun_fixed_sum_range(sum, &first, &end);
 *         for (v = first; v < end; v++) {
 *             ... the gradients of the v-th eighth of the global batch ...
 *             ctrun_fixed_sum_add(sum, gradients, &err);
 *         }
 *         ctrun_fixed_sum_finish(sum, gradients, NULL, &err);
 *
 * Where each virtual rank's gradients have the same bits on every rank (the same samples, threads
 * and kernels), a training is bit for bit the same on 1, 2, 3 or 8 ranks. Nothing is exchanged
 * while backward runs. It takes memory for some copies of the data: log2 of the number of a rank's
 * virtual ranks, plus one; at most twice that where the number of ranks is no power of two. One
 * thread at a time. Groups of the host only. */
struct ctrun_fixed_sum; /* opaque */
/* Of count elements, CTRUN_F32 or CTRUN_F64. 1 to 2^20 virtual ranks. Collective, blocks;
 * CTRUN_E_MISMATCH, on every rank, when not all give the same; where a rank's own arguments are
 * wrong, it gets their error, and the others CTRUN_E_MISMATCH. group is kept; NULL: this process
 * alone. */
CTRUN_API int ctrun_fixed_sum_create(struct ctrun_fixed_sum **out,
                                     struct ctrun_group *group, uint64_t virtual_ranks,
                                     size_t count, enum ctrun_dtype dtype,
                                     struct ctrun_error *err);
/* Accepts NULL. */
CTRUN_API void ctrun_fixed_sum_destroy(struct ctrun_fixed_sum *sum);
/* This rank's virtual ranks: *first to *end - 1; none where there are more ranks than virtual
 * ones. Either may be NULL. */
CTRUN_API void ctrun_fixed_sum_range(const struct ctrun_fixed_sum *sum, uint64_t *first,
                                     uint64_t *end);
/* Adds the data of the next virtual rank of this rank, in ascending order. Local. CTRUN_E_USAGE
 * after the last one. */
CTRUN_API int ctrun_fixed_sum_add(struct ctrun_fixed_sum *sum, const void *data,
                                  struct ctrun_error *err);
/* The sum, bit-equal on all ranks; the next add() begins another one. Collective, blocks
 * (options.work is NULL). CTRUN_E_USAGE, on every rank, when one has not added all its data: it
 * may add the rest, and all call finish() again. After another failure out is undefined. */
CTRUN_API int ctrun_fixed_sum_finish(struct ctrun_fixed_sum *sum, void *out,
                                     const struct ctrun_call_options *options,
                                     struct ctrun_error *err);

/* ---- ctrun_dp(3): DataParallel: replicas of a model in one process --------------- */

/* What torch.nn.DataParallel does, on the processors of one machine or on its GPUs
 * (ctrun_dp_create_on()): a device is a thread with a replica of the model in memory of its own.
 * Device 0 has the program's parameters; on processors its thread is the caller's. It needs no
 * session and no group. DDP with a rank for each device copies no parameters in a step and
 * exchanges gradients while backward runs: use this only where all replicas must be in one
 * process.
 *
 *     ctrun_dp_create(&dp, params, count, 4, &err);
 *     in each step:
 *         replicas = ctrun_dp_scatter(dp, samples, 0, NULL, NULL);
 *         ctrun_dp_replicate(dp, replicas, &err);
 *         ctrun_dp_apply(dp, replicas, forward_and_backward, batch, &err);
 *         ctrun_dp_reduce(dp, replicas, &err);
 *         update(params, grads of device 0); clear(grads of device 0);
 *
 * One call at a time, by any thread, and from inside a replica only scatter, value and grad: any
 * other is CTRUN_E_USAGE. After a fork() the child has none of the threads: it may call none of
 * these. */
struct ctrun_dp; /* opaque */
struct ctrun_dp_options {
    size_t size; /* CTRUN_DP_OPTIONS_INIT */
    const char
        *backend; /* "host" (default): the processors; "nccl": GPUs, and NCCL carries
                          * what they exchange */
    const int
        *ids; /* nccl: CUDA's numbers of the devices, each once; NULL: 0, 1, ... */
    void *const *
        streams; /* nccl: of each device the cudaStream_t that its replica is to compute
                           * on; NULL: the default streams */
    uint64_t timeout_ms; /* nccl: deadline of each call but apply; default 600 000 */
};
#define CTRUN_DP_OPTIONS_INIT                                                          \
    {                                                                                  \
        sizeof(struct ctrun_dp_options), NULL, NULL, NULL, 600000                      \
    }
/* Parameters as for ctrun_ddp_create(): copied, what they point to is kept. Those with no_grad are
 * copied to the replicas, too, and get no gradient; what a replica writes to one stays there, but
 * for device 0's. devices: 1 to 1024. Every replica takes memory for all parameters and gradients.
 * -EINVAL, -ENOMEM, -EAGAIN: no more threads. */
CTRUN_API int ctrun_dp_create(struct ctrun_dp **out, const struct ctrun_param *params,
                              size_t count, int devices, struct ctrun_error *err);
/* The same with options, which are copied; NULL: the defaults. On GPUs the parameters, and
 * gradients that are the caller's, must be in memory of the first device (-EINVAL names one that is
 * not), which allocates memory for a copy of the parameters; NCCL chooses the order of sums. A
 * warning in the log names a GPU that has less than 75 % of the memory or processors of another. Calls wait until the devices have
 * finished. When replicate, reduce or collect fails on one device, it and all later ones fail on
 * all devices: destroy the object. CTRUN_E_UNSUPPORTED: no NCCL, or no such device. */
CTRUN_API int ctrun_dp_create_on(struct ctrun_dp **out,
                                 const struct ctrun_param *params, size_t count,
                                 int devices, const struct ctrun_dp_options *options,
                                 struct ctrun_error *err);
/* Accepts NULL. */
CTRUN_API void ctrun_dp_destroy(struct ctrun_dp *dp);
/* Where the device has parameter p, and the gradient that its replica must add to; zeroed at
 * first, unless it is the caller's (param.grad, device 0). Borrowed until destroy. NULL: there is
 * no such device or parameter, or it gets no gradient. */
CTRUN_API void *ctrun_dp_value(const struct ctrun_dp *dp, int device, size_t p);
CTRUN_API void *ctrun_dp_grad(const struct ctrun_dp *dp, int device, size_t p);
/* A batch in pieces of samples / devices, rounded up; the last one is shorter, and of few samples
 * there are fewer pieces than devices. Returns how many; *first and *count: the device's samples, 0
 * of them where it has none. Either may be NULL. Pure; any thread. Only the program's own fn uses
 * the pieces: where devices are unequal, deal the batch otherwise, more to the faster ones. */
CTRUN_API int ctrun_dp_scatter(const struct ctrun_dp *dp, size_t samples, int device,
                               size_t *first, size_t *count);
/* The parameters of device 0 go to the first `replicas` devices. Blocks until they are there. */
CTRUN_API int ctrun_dp_replicate(struct ctrun_dp *dp, int replicas,
                                 struct ctrun_error *err);
/* Forward and backward of one piece. Negative: it failed, err says why. */
typedef int ctrun_dp_fn(void *context, int device, struct ctrun_error *err);
/* Calls fn for devices 0 to replicas - 1 at the same time, each in its thread, and blocks until
 * all have returned, however long that takes. On GPUs each thread's device is its current one;
 * what a replica puts on its stream runs after replicate and before reduce. When some replicas
 * fail: the code of the lowest, and its error text after "in replica I on device D". */
CTRUN_API int ctrun_dp_apply(struct ctrun_dp *dp, int replicas, ctrun_dp_fn *fn,
                             void *context, struct ctrun_error *err);
/* Gradients of device 0 += those of the other replicas, in their order, so that the bits do not
 * depend on which replica finished first; the gradients of the others are zero afterwards. It is a
 * sum, not an average: divide the loss by the samples of the whole batch. Blocks. */
CTRUN_API int ctrun_dp_reduce(struct ctrun_dp *dp, int replicas,
                              struct ctrun_error *err);

struct ctrun_tensor; /* see ctrun_checkpoint(3) */
/* Joins the results of replicas, one tensor each, along the first dimension; tensors without
 * dimensions become a vector. The result is written to `room`, and described in *out
 * (CTRUN_TENSOR_INIT before), whose data is room. -ENOSPC: it needs more than room_bytes.
 * CTRUN_E_MISMATCH: they differ in more than the first size. Any thread. */
CTRUN_API int ctrun_dp_gather(const struct ctrun_tensor *pieces, size_t count,
                              void *room, size_t room_bytes, struct ctrun_tensor *out,
                              struct ctrun_error *err);

/* The same for tensors on the devices of dp: piece i is on device i, room on device 0; on GPUs both
 * are memory of the GPU. Blocks. */
CTRUN_API int ctrun_dp_collect(struct ctrun_dp *dp, const struct ctrun_tensor *pieces,
                               size_t count, void *room, size_t room_bytes,
                               struct ctrun_tensor *out, struct ctrun_error *err);

/* ---- ctrun_zero(3): ZeRO-1: each rank keeps the optimizer's state of a share of the parameters ---- */

/* Rajbhandari, Rasley, Ruwase, He: "ZeRO: memory optimizations toward training trillion parameter
 * models", SC 2020, stage 1. All ranks have all parameters and, by DDP or otherwise, the same
 * gradients; each updates the pieces that are its own, and gets what the others have updated:
 *
 *     ctrun_zero_create(&zero, world, params, count, NULL, &err);
 *     state = calloc(ctrun_zero_length(zero), sizeof *state);   // may be 0 elements
 *     in each step, behind ctrun_ddp_backward_end():
 *         for (i = 0; ctrun_zero_piece(zero, i, &piece, &err) > 0; i++)
 *             update(values[piece.param] + piece.offset, grads[piece.param] + piece.offset,
 *                    state + piece.state, piece.length);
 *         ctrun_zero_share(zero, NULL, &err);
 *
 * An optimizer that works element by element (SGD, Adam, Adadelta) gives the same bits as one with
 * the whole state. With ctrun_ddp_options.shard_gradients and options.ddp each rank gets only the
 * averages that it uses: on a host group the bits are those of plain DDP; NCCL may add in another
 * order. In a sharded checkpoint (ctrun_shards(3)) the state of each piece is a piece of a tensor as
 * long as the parameter, so that it can be loaded by any number of ranks:
 *
 *     tensor.name = "state.w";                     // one name for each parameter
 *     tensor.dims = 1;
 *     tensor.sizes[0] = piece.length;
 *     tensor.data = state + piece.state;
 *     tensor.whole[0] = elements of the parameter;
 *     tensor.starts[0] = piece.offset;
 *
 * One thread at a time. On an nccl group parameters and gradients are memory of the device, the
 * updates kernels, and ctrun_zero_share() waits for nothing on the host: it runs after the work of
 * the stream in its options, or of the group's stream, and that stream waits for it. */
struct ctrun_zero; /* opaque */
struct ctrun_zero_options {
    size_t size; /* CTRUN_ZERO_OPTIONS_INIT */
    bool
        whole_params; /* no parameter is split, as torch's ZeroRedundancyOptimizer deals them: the
                        * longest first, to the rank that has least. Default: equal shares */
    struct ctrun_ddp *
        ddp; /* read by create: made with shard_gradients, the same group and params. A rank's
              * pieces are those of which this object gives it the averages. Where gradients travel
              * in their own type, a step sends what DDP alone sends (NULL: half more), and a tail
              * of each bucket, of less than 16 bytes times the ranks, is sent twice */
};
#define CTRUN_ZERO_OPTIONS_INIT                                                        \
    {                                                                                  \
        sizeof(struct ctrun_zero_options), false, NULL                                 \
    }
/* Collective, blocks; CTRUN_E_MISMATCH, on every rank, when not all give the same, and for wrong
 * arguments as ctrun_ddp_create(). The params that have a gradient must have one dtype
 * (CTRUN_E_UNSUPPORTED); the others belong to no rank. params is copied, what it points to and
 * group are kept. Takes as much memory as the parameters, unless they stand one behind the other,
 * may be split, and options.ddp is NULL. options may be NULL. */
CTRUN_API int ctrun_zero_create(struct ctrun_zero **out, struct ctrun_group *group,
                                const struct ctrun_param *params, size_t count,
                                const struct ctrun_zero_options *options,
                                struct ctrun_error *err);
/* Accepts NULL. */
CTRUN_API void ctrun_zero_destroy(struct ctrun_zero *zero);
/* Elements of this rank's pieces together, and of all ranks'. */
CTRUN_API size_t ctrun_zero_length(const struct ctrun_zero *zero);
CTRUN_API size_t ctrun_zero_total(const struct ctrun_zero *zero);

struct ctrun_zero_piece {
    size_t size;   /* CTRUN_ZERO_PIECE_INIT */
    size_t param;  /* index in the list */
    size_t offset; /* first element of it that is ours */
    size_t length; /* elements */
    size_t state; /* where the piece begins in arrays of ctrun_zero_length() elements */
};
#define CTRUN_ZERO_PIECE_INIT                                                          \
    {                                                                                  \
        sizeof(struct ctrun_zero_piece), 0, 0, 0, 0                                    \
    }
/* This rank's i-th piece, in the order of the parameters. 1; 0: there are no more; -EINVAL when out
 * does not begin with its size. */
CTRUN_API int ctrun_zero_piece(const struct ctrun_zero *zero, size_t i,
                               struct ctrun_zero_piece *out, struct ctrun_error *err);
/* All ranks get all values as their owners have them. Collective; blocks, except on an nccl group
 * (options.work is NULL). */
CTRUN_API int ctrun_zero_share(struct ctrun_zero *zero,
                               const struct ctrun_call_options *options,
                               struct ctrun_error *err);
/* For a checkpoint that does not depend on the number of ranks: the state of all parameters, in
 * their order, comes to the root. mine: ctrun_zero_length() elements of dtype; all: on the root
 * ctrun_zero_total() of them, else not used. With equal shares `all` is the `mine` of the ranks,
 * one after the other. nccl: of the host, or of the device as the group's stream has them.
 * Collective, blocks. */
CTRUN_API int ctrun_zero_gather_state(struct ctrun_zero *zero, const void *mine,
                                      void *all, enum ctrun_dtype dtype, int root,
                                      struct ctrun_error *err);
/* The reverse, on each rank: copies this rank's part of such a state. Local, blocks. */
CTRUN_API int ctrun_zero_pick_state(const struct ctrun_zero *zero, const void *all,
                                    void *mine, enum ctrun_dtype dtype,
                                    struct ctrun_error *err);

/* ---- ctrun_data(3): samplers, loaders, ledgers, data sets ------------------------ */

/* Writes the permutation of 0..n-1 that torch.randperm gives for this seed, bit for bit
 * (MT19937 with the classic initialiser, z = next % (n - i)). out: n entries. */
CTRUN_API void ctrun_permutation(uint64_t seed, uint64_t *out, size_t n);

/* What follows is local unless it says otherwise: no rank waits for another. */

/* torch.utils.data.DistributedSampler, index for index; an order like torch's takes 8 bytes of
 * memory for each sample of the data set while an epoch is dealt, beside those of this rank in the
 * epoch before, and then for each of this rank's. With any_order the epoch is
 * another permutation, computed index by index from seed and epoch: the same on every rank and
 * for every world size. */
struct ctrun_sampler;
struct ctrun_sampler_options {
    size_t size;  /* CTRUN_SAMPLER_OPTIONS_INIT */
    size_t count; /* data set length */
    int rank;     /* 0 to world_size - 1; where ranks may be lost, those of a group */
    int world_size;
    uint64_t seed;   /* the same on every rank; epoch e is shuffled by seed + e */
    bool no_shuffle; /* samples in the order of the data set */
    bool drop_last;  /* no padding: leaves out a tail too short for all ranks */
    bool any_order;  /* another shuffled order, which takes no memory */
};
#define CTRUN_SAMPLER_OPTIONS_INIT                                                     \
    {                                                                                  \
        sizeof(struct ctrun_sampler_options), 0, 0, 1, 0, false, false, false          \
    }
/* Local. Options are required, as count has no default, and copied. -EINVAL: they are NULL, or rank
 * is not in 0 to world_size - 1; -ENOMEM. */
CTRUN_API int ctrun_sampler_create(struct ctrun_sampler **out,
                                   const struct ctrun_sampler_options *options,
                                   struct ctrun_error *err);
/* Accepts NULL. Call it after closing the loader that uses it. */
CTRUN_API void ctrun_sampler_destroy(struct ctrun_sampler *sampler);
/* Deals the permutation of `epoch`, leaving out the first `start` samples of the *global* order
 * (already consumed before a restart, maybe with another world size; 0 normally). Where the rest
 * cannot be divided by the world size, the epoch's first samples pad it (but for drop_last): so an
 * epoch that was resumed with the same world size between two of its rounds, of one sample for each
 * rank, is that which was not interrupted. With `start` at or beyond the data set's end the epoch
 * is empty. create() has dealt epoch 0. Fails with -ENOMEM only; the old epoch stays then. */
CTRUN_API int ctrun_sampler_set_epoch(struct ctrun_sampler *sampler, uint64_t epoch,
                                      size_t start, struct ctrun_error *err);
/* How many indices this rank gets in the epoch; 0 for an empty data set. */
CTRUN_API size_t ctrun_sampler_length(const struct ctrun_sampler *sampler);
/* How many of them, from the first, are samples of their own: the rest is padding, which makes the
 * ranks' parts equal, and repeats samples that another rank has. Leave it out of a ledger. */
CTRUN_API size_t ctrun_sampler_real_length(const struct ctrun_sampler *sampler);
/* The i-th of them, i < length. */
CTRUN_API uint64_t ctrun_sampler_index(const struct ctrun_sampler *sampler, size_t i);
/* All of them: borrowed until set_epoch or destroy. NULL with any_order: they are not stored. */
CTRUN_API const uint64_t *ctrun_sampler_indices(const struct ctrun_sampler *sampler);

/* How a global batch is dealt to the ranks of any world, in micro-batches that fit into memory:
 *
 *     ctrun_batch_plan(&plan, 256, 32, rank, size, &err);
 *     for (i = 0; i < plan.micros; i++) {
 *         ctrun_batch_micro(&plan, i, &start, &count, &err);
 *         ctrun_ddp_no_sync(ddp, i + 1 < plan.micros);
 *         ... samples start to start + count - 1 of the 256: forward, backward ...
 *     }
 *
 * Use it with a sampler for rank 0 of a world of one, on every rank: such a sampler has the order
 * of all samples, the k-th sample of a global batch that begins at `first` is
 * ctrun_sampler_index(sampler, first + k), and the sampler stays valid when the world changes. A
 * loader with that sampler would fetch the samples of all ranks. With a loader each rank has a
 * sampler of its own rank and size, and after a change of the world closes both, and creates them
 * again from the number of samples consumed; examples/12_elastic_data.c does so.
 *
 * Each sample's gradient is divided by the global batch, and DDP adds up (divide_by_caller), so
 * that each sample counts alike however many ranks there are: loss and gradients are those of one
 * rank, but for rounding. */
struct ctrun_batch_plan {
    size_t size;   /* CTRUN_BATCH_PLAN_INIT */
    size_t start;  /* this rank's first sample, counted within the global batch */
    size_t count;  /* its samples: as many as any other rank's, or one less */
    size_t micros; /* micro-batches; the same on every rank */
};
#define CTRUN_BATCH_PLAN_INIT                                                          \
    {                                                                                  \
        sizeof(struct ctrun_batch_plan), 0, 0, 0                                       \
    }
/* micro_max: samples that fit into memory at once. Pure. -EINVAL when a number is 0, for 2^31
 * samples or more, or for a rank outside the world. */
CTRUN_API int ctrun_batch_plan(struct ctrun_batch_plan *out, size_t global_batch,
                               size_t micro_max, int rank, int world_size,
                               struct ctrun_error *err);
/* The i-th micro-batch, i < micros: *start within the global batch; *count micro_max at most, and 0
 * where a rank has fewer samples than micro-batches. Pure. */
CTRUN_API int ctrun_batch_micro(const struct ctrun_batch_plan *plan, size_t i,
                                size_t *start, size_t *count, struct ctrun_error *err);

/* Batches that threads fetch before the step that uses them.
 *
 *     options.sampler = sampler;
 *     options.batch = 32;
 *     options.batch_bytes = 32 * record_bytes;
 *     options.fetch = ctrun_records_fetch;
 *     options.context = records;
 *     ctrun_loader_open(&loader, &options, &err);
 *     for (epoch = 0; epoch < epochs; epoch++) {
 *         ctrun_loader_set_epoch(loader, epoch, 0, &err);
 *         while ((rc = ctrun_loader_next(loader, &batch, &err)) > 0)
 *             ... a step with batch.count samples at batch.data ...
 *     }
 *     ctrun_loader_close(loader);
 *
 * After a fork() the child has none of the threads: it may call none of the functions
 * below for its parent's loader. */
struct ctrun_loader;
/* Puts the samples of `indices` into `out`, batch_bytes that the loader gives. Called by the
 * loader's threads, each with a batch of its own, several at a time. Returns 0, or a negative code
 * with err, which is never NULL. */
typedef int ctrun_loader_fetch_fn(void *context, const uint64_t *indices, size_t count,
                                  void *out, struct ctrun_error *err);
struct ctrun_loader_options {
    size_t size; /* CTRUN_LOADER_OPTIONS_INIT */
    struct ctrun_sampler *
        sampler; /* kept; used by the loader alone until it is closed; its epoch is loaded */
    size_t
        batch; /* samples of a batch of this rank; the last of an epoch may have fewer */
    size_t batch_bytes; /* of memory for one batch */
    ctrun_loader_fetch_fn *fetch;
    void *context; /* of fetch; kept */
    int threads;   /* 1 to 256; default 1 */
    int depth;     /* batches that are made ahead, at most; 1 to 4096, default 4 */
    void *
        memory; /* (depth + 1) * batch_bytes that live until the loader is closed, such as pinned
                           * memory; NULL: the loader's own */
    uint64_t timeout_ms; /* deadline of next() and set_epoch(); default 600 000 */
};
#define CTRUN_LOADER_OPTIONS_INIT                                                      \
    {                                                                                  \
        sizeof(struct ctrun_loader_options), NULL, 0, 0, NULL, NULL, 1, 4, NULL,       \
            600000                                                                     \
    }
/* Starts the threads, with the epoch that the sampler has. -EINVAL, -ENOMEM, -EAGAIN (no
 * thread). */
CTRUN_API int ctrun_loader_open(struct ctrun_loader **out,
                                const struct ctrun_loader_options *options,
                                struct ctrun_error *err);
/* Waits for running fetches, without a deadline. Accepts NULL. */
CTRUN_API void ctrun_loader_close(struct ctrun_loader *loader);
/* Waits for the running fetches, then calls ctrun_sampler_set_epoch(); batches of the epoch before
 * are dropped. */
CTRUN_API int ctrun_loader_set_epoch(struct ctrun_loader *loader, uint64_t epoch,
                                     size_t start, struct ctrun_error *err);
/* Borrowed from the loader until the next call of ctrun_loader_next(), set_epoch() or close(). */
struct ctrun_batch {
    size_t size;             /* CTRUN_BATCH_INIT */
    void *data;              /* batch_bytes, as fetch has written them */
    const uint64_t *indices; /* count, of its samples */
    size_t count;            /* samples; fewer than options.batch at an epoch's end */
};
#define CTRUN_BATCH_INIT                                                               \
    {                                                                                  \
        sizeof(struct ctrun_batch), NULL, NULL, 0                                      \
    }
/* The epoch's next batch, in the sampler's order however many threads there are. The caller may
 * change its data until the next call. Returns 1; 0 at the epoch's end; the negative code that
 * fetch returned for this batch (the next call continues with the batch after it); or
 * CTRUN_E_TIMEOUT. Blocks while the batch is not made; how long this process has waited so, in all
 * its loaders, is its metric data_wait_seconds (see ctrun_metric()), once it has. One thread at a
 * time, also with set_epoch() and close(). */
CTRUN_API int ctrun_loader_next(struct ctrun_loader *loader, struct ctrun_batch *out,
                                struct ctrun_error *err);
/* Counted since the loader was opened. */
struct ctrun_loader_stats {
    size_t size; /* CTRUN_LOADER_STATS_INIT */
    uint64_t batches;
    uint64_t waits;    /* batches that were not made yet when they were due */
    uint64_t wait_ns;  /* how long next() waited for them: the time that steps lost */
    uint64_t fetch_ns; /* how long fetch took, over all threads */
};
#define CTRUN_LOADER_STATS_INIT                                                        \
    {                                                                                  \
        sizeof(struct ctrun_loader_stats), 0, 0, 0, 0                                  \
    }
/* Any thread. -EINVAL when out does not begin with its size. */
CTRUN_API int ctrun_loader_get_stats(struct ctrun_loader *loader,
                                     struct ctrun_loader_stats *out,
                                     struct ctrun_error *err);

/* A file of records of one size behind a header, read one by one where they are asked for: data
 * larger than memory, in any order. Any number of threads at once. */
struct ctrun_records;
/* Skips header_bytes; copies path; reads no record. CTRUN_E_BAD_DATA: the file does not exist, or
 * is not a header and whole records; -EINVAL: record_bytes is 0; -ENOMEM. */
CTRUN_API int ctrun_records_open(struct ctrun_records **out, const char *path,
                                 uint64_t header_bytes, size_t record_bytes,
                                 struct ctrun_error *err);
/* Accepts NULL. Call it after closing the loader that reads from them. */
CTRUN_API void ctrun_records_close(struct ctrun_records *records);
/* How many records the file had when it was opened. */
CTRUN_API uint64_t ctrun_records_count(const struct ctrun_records *records);
/* A ctrun_loader_fetch_fn; context: the records. Writes count * record_bytes to out, record
 * indices[i] at i * record_bytes. Blocks on the disk, without a deadline. CTRUN_E_BAD_DATA: the
 * file cannot be read, or has become shorter; -EINVAL: no such record. */
CTRUN_API int ctrun_records_fetch(void *context, const uint64_t *indices, size_t count,
                                  void *out, struct ctrun_error *err);

/* Which samples of an epoch were consumed, as sums that do not depend on the order of the samples:
 * 24 bytes for any data set. Each rank adds what it trained on. A checkpoint holds the total over
 * all ranks, beside the sampler's seed, epoch and start: after a restart rank 0 begins with this
 * total, in a world of any size, and the others with CTRUN_LEDGER_INIT. So samples that a failure
 * undid are removed here, too. Where ranks may be lost (ctrun --survive), what a lost rank has
 * added is lost with it: there each rank adds the samples of all ranks, passes the ledger to
 * ctrun_group_catch_up() as part of its state, and saves it as it is. */
struct ctrun_ledger {
    size_t size; /* CTRUN_LEDGER_INIT, at the beginning of each epoch */
    uint64_t count;
    uint64_t sums[2];
};
#define CTRUN_LEDGER_INIT                                                              \
    {                                                                                  \
        sizeof(struct ctrun_ledger), 0,                                                \
        {                                                                              \
            0                                                                          \
        }                                                                              \
    }
/* The functions of ledgers but total() are pure, and fail with -EINVAL when a ledger does not
 * begin with its size.
 *
 * Adds `count` samples by their indices in the data set. Leave out the samples with which the
 * sampler padded the epoch: those from ctrun_sampler_real_length() on. */
CTRUN_API int ctrun_ledger_add(struct ctrun_ledger *ledger, const uint64_t *indices,
                               size_t count, struct ctrun_error *err);
/* *total (CTRUN_LEDGER_INIT before): the sum of the ledgers of all members. Collective, blocks,
 * fails as ctrun_all_reduce() does; group NULL: of this process. total may be mine. */
CTRUN_API int ctrun_ledger_total(const struct ctrun_ledger *mine,
                                 struct ctrun_group *group, struct ctrun_ledger *total,
                                 struct ctrun_error *err);
/* 0 when the total has each of 0..count-1 once (with an error probability of 2^-128), else
 * CTRUN_E_MISMATCH, and err says what is wrong. Takes some nanoseconds per sample. */
CTRUN_API int ctrun_ledger_check(const struct ctrun_ledger *total, uint64_t count,
                                 struct ctrun_error *err);
enum {
    CTRUN_LEDGER_TEXT_MAX = 64
};
/* Writes the ledger as text, for the metadata of a checkpoint. -ENAMETOOLONG when text[size] is
 * too small. */
CTRUN_API int ctrun_ledger_format(const struct ctrun_ledger *ledger, char *text,
                                  size_t size, struct ctrun_error *err);
/* Reads that text. CTRUN_E_BAD_CHECKPOINT when the text is not a ledger. */
CTRUN_API int ctrun_ledger_parse(struct ctrun_ledger *ledger, const char *text,
                                 struct ctrun_error *err);

/* Images and labels in IDX files (MNIST, Fashion-MNIST), gzip or not, wholly in memory. */
struct ctrun_dataset {
    size_t size;  /* CTRUN_DATASET_INIT */
    size_t count; /* images */
    int rows, columns;
    uint8_t
        *images; /* (count, rows, columns), 0 to 255; ctrun_dataset_free() frees them */
    uint8_t *labels; /* (count), 0 to 9; likewise */
};
#define CTRUN_DATASET_INIT                                                             \
    {                                                                                  \
        sizeof(struct ctrun_dataset), 0, 0, 0, NULL, NULL                              \
    }
enum ctrun_split {
    CTRUN_TRAIN, /* train-*: 60,000 images of MNIST */
    CTRUN_TEST   /* t10k-*: 10,000 */
};
/* The default directory of a data set: that of Debian's package dataset-fashion-mnist. Static
 * text; the directory need not exist. */
CTRUN_API const char *ctrun_dataset_default_directory(void);
/* Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] from directory, or from where
 * torchvision unpacks them under it (MNIST/raw, FashionMNIST/raw). Fails with CTRUN_E_BAD_DATA,
 * naming the file, the offset, what is wrong and what to do. Blocks on the disk. */
CTRUN_API int ctrun_dataset_load(struct ctrun_dataset *out, const char *directory,
                                 enum ctrun_split split, struct ctrun_error *err);
/* Frees images and labels, not the struct. Accepts NULL, and a second call. */
CTRUN_API void ctrun_dataset_free(struct ctrun_dataset *dataset);
/* Gathers batch images as floats (x / 255 - mean) / std into x (batch, rows * columns) and
 * labels into y (batch). indices: batch entries, each < count. Pure. */
CTRUN_API void ctrun_dataset_gather(const struct ctrun_dataset *dataset,
                                    const uint64_t *indices, size_t batch, float mean,
                                    float std, float *x, uint8_t *y);

/* ---- ctrun_checkpoint(3): safetensors files, written atomically ------------------ */

/* A tensor in memory, or a piece of one. All that it points to is borrowed for the call. */
struct ctrun_tensor {
    size_t size;      /* CTRUN_TENSOR_INIT */
    const char *name; /* UTF-8; unique within a checkpoint */
    enum ctrun_dtype dtype;
    int dims;                      /* 0: one element */
    int64_t sizes[CTRUN_MAX_DIMS]; /* of data */
    void *data;                    /* contiguous; read by save, written by load */
    /* Of a piece: the sizes of the tensor that it is cut out of, and where in it data begin. All 0:
     * data are the whole tensor. */
    int64_t whole[CTRUN_MAX_DIMS];
    int64_t starts[CTRUN_MAX_DIMS];
};
#define CTRUN_TENSOR_INIT                                                              \
    {                                                                                  \
        sizeof(struct ctrun_tensor), NULL, CTRUN_F32, 0, {0}, NULL, {0},               \
        {                                                                              \
            0                                                                          \
        }                                                                              \
    }
struct ctrun_metadata { /* UTF-8 text about the file; both borrowed */
    const char *key;
    const char *value;
};

/* One rank saves, all load:
 *
 *     if (ctrun_rank(session) == 0)
 *         ctrun_checkpoint_save("last.safetensors", tensors, count, NULL, 0, &err);
 *     ...
 *     ctrun_checkpoint_open(&checkpoint, "last.safetensors", &err);
 *     for (i = 0; i < count; i++)
 *         ctrun_checkpoint_load(checkpoint, &tensors[i], &err);
 *     ctrun_checkpoint_close(checkpoint);
 *
 * Writes a file without a name, fsync, path.tmp-TID, rename, fsync of the directory: a crash
 * leaves the old file or the new one, and nothing beside it (on NFS it may leave path.tmp-TID).
 * Parent directory must exist. Whole tensors only, `count` of them with different names;
 * metadata_count pairs with different keys, none of them "ctrun.crc32c"; NULL and 0 for none.
 * Local; blocks on the disk. -EINVAL (also where path is a device, a FIFO or a socket), or the
 * errno of the call that failed: then the old file stays. */
CTRUN_API int ctrun_checkpoint_save(const char *path,
                                    const struct ctrun_tensor *tensors, size_t count,
                                    const struct ctrun_metadata *metadata,
                                    size_t metadata_count, struct ctrun_error *err);
struct
    ctrun_checkpoint; /* an open checkpoint, checked: header or manifest, offsets, sizes */
/* Opens a safetensors file; the folder of one sharded checkpoint (ctrun_shards(3)); or a folder
 * of those, of which it takes the newest that is complete. Local, whatever world has written it.
 * Fails with -ENOENT when there is none, CTRUN_E_BAD_CHECKPOINT when it is damaged: then open an
 * older one by its own path, and move the damaged folder away, else ctrun_shards_save() of an
 * earlier step fails with -EEXIST. */
CTRUN_API int ctrun_checkpoint_open(struct ctrun_checkpoint **out, const char *path,
                                    struct ctrun_error *err);
/* Accepts NULL. */
CTRUN_API void ctrun_checkpoint_close(struct ctrun_checkpoint *checkpoint);
/* The value of the key in the metadata that was saved; NULL: no such key. Borrowed until close. */
CTRUN_API const char *
ctrun_checkpoint_metadata(const struct ctrun_checkpoint *checkpoint, const char *key);
/* Reads the named tensor, or a piece of it, however it was cut when it was saved; a leading
 * "module." is added or dropped where needed. Name, dtype and sizes must fit, else
 * CTRUN_E_BAD_CHECKPOINT says which differs. Bytes that changed after they were written (CRC-32C)
 * give the same code. After a failure data are undefined. Blocks on the disk. */
CTRUN_API int ctrun_checkpoint_load(struct ctrun_checkpoint *checkpoint,
                                    const struct ctrun_tensor *tensor,
                                    struct ctrun_error *err);

/* ---- ctrun_shards(3): checkpoints of which every rank writes its part ------------ */

/* A folder of checkpoints, one a step: DIRECTORY/step-0000000000001000/ has a safetensors file of
 * each rank that wrote something, and manifest.json, which is written last. Without the manifest
 * the checkpoint does not exist: ranks that are killed at any moment leave the checkpoint before.
 * All ranks see the same folder, and no other run saves in it: its next save would remove a save
 * of ours that is not complete yet, and old checkpoints. After a fork() the child has none of the
 * threads: it may call none of these for what its parent has opened. */
struct ctrun_shards;
struct ctrun_shards_options {
    size_t size;   /* CTRUN_SHARDS_OPTIONS_INIT */
    uint64_t keep; /* how many of the newest checkpoints stay; 0: all. Default 3 */
    bool async;    /* save() copies, and a thread writes */
};
#define CTRUN_SHARDS_OPTIONS_INIT                                                      \
    {                                                                                  \
        sizeof(struct ctrun_shards_options), 3, false                                  \
    }
/* Makes the directory, in which this process must be able to write; its parent must exist. Local.
 * The members of `group` save together, each at the same step; NULL: this process alone. The group
 * is kept. With async use it for nothing else, since the thread uses it: make one by
 * ctrun_group_split() with the back end "host" in its options. options may be NULL. */
CTRUN_API int ctrun_shards_open(struct ctrun_shards **out, const char *directory,
                                struct ctrun_group *group,
                                const struct ctrun_shards_options *options,
                                struct ctrun_error *err);
/* Waits for the thread. The error of its save is lost: call ctrun_shards_wait() before. Call it
 * before ctrun_group_close(). Accepts NULL. */
CTRUN_API void ctrun_shards_close(struct ctrun_shards *shards);
/* Saves a checkpoint for `step` (at most 2^53). Collective. tensors: what this rank has, whole
 * tensors or pieces, one for each name; not every rank needs one. When several ranks have the same
 * piece, one of them writes it, so that the bytes are spread over the ranks. A part that no rank
 * has, pieces that overlap without being equal, or steps that differ are CTRUN_E_MISMATCH, after
 * which the group lives. metadata: rank 0's is written. All are borrowed for the call.
 *
 * Returns the same on every rank: 0 when the checkpoint is on the disk. With async it is 0 when
 * this rank's part is copied: the data may change then. The next call reports how the writing
 * ended: it waits for the save before and, when that failed, returns its error and saves nothing;
 * the call after that saves again. A checkpoint of the same step is replaced. Fails with -EEXIST
 * when the folder has a later step, which would be taken for the newest: move that one away.
 * Blocks, bounded by the group's deadline where it waits for others. */
CTRUN_API int ctrun_shards_save(struct ctrun_shards *shards, uint64_t step,
                                const struct ctrun_tensor *tensors, size_t count,
                                const struct ctrun_metadata *metadata,
                                size_t metadata_count, struct ctrun_error *err);
/* With async: allocates memory for the copy before the first save, which otherwise waits for the
 * kernel at each page of it. Call it once the tensors exist, with those that will be saved; their
 * data are not read. Collective, as the save, with the same errors for tensors and memory. A
 * thread of the lowest priority touches the pages; a save that comes earlier touches the rest
 * itself, and nothing waits for the thread. Without async it does nothing. */
CTRUN_API int ctrun_shards_reserve(struct ctrun_shards *shards,
                                   const struct ctrun_tensor *tensors, size_t count,
                                   struct ctrun_error *err);
/* Waits until the last save is on the disk; 0 when none is under way. Local. Returns the error of
 * that save, once. */
CTRUN_API int ctrun_shards_wait(struct ctrun_shards *shards, struct ctrun_error *err);

struct ctrun_shards_stats {
    size_t size;    /* CTRUN_SHARDS_STATS_INIT */
    uint64_t saves; /* that are on the disk */
    uint64_t bytes; /* that this rank wrote at the last of them */
    uint64_t
        stall_ns; /* how long the last save() took, the wait for the one before it included */
    uint64_t write_ns; /* from the copy, or the call, until it was on the disk */
};
#define CTRUN_SHARDS_STATS_INIT                                                        \
    {                                                                                  \
        sizeof(struct ctrun_shards_stats), 0, 0, 0, 0                                  \
    }
/* -EINVAL when out does not begin with its size. While a thread writes: of the save before. */
CTRUN_API int ctrun_shards_get_stats(struct ctrun_shards *shards,
                                     struct ctrun_shards_stats *out,
                                     struct ctrun_error *err);

/* ---- ctrun_hold(3): checkpoints that the agent holds in memory ------------------- */

/* One file, of any format, made in memory that this process and its agent share: the commit does
 * not wait for a disk, and the agent writes the file, also when this process has died by then. It
 * is replaced as by ctrun_checkpoint_save(), whole or not at all, and only by bytes whose CRC-32C
 * is that of the commit.
 *
 *     ctrun_hold_open(&hold, session, "last.ckpt", NULL, &err);
 *     ctrun_hold_write(hold, data, length, &err);          // as often as it takes
 *     ctrun_hold_commit(hold, &err);
 *     ctrun_hold_close(hold);                              // what is not committed is dropped
 *
 * A rank makes one file at a time, also while the agent writes the one before: ctrun_hold_open()
 * waits while two committed files are not on the disk. The workers of a node hold half of its
 * memory at most.
 * The next world does not start, and the run does not end, before a committed file is on the disk
 * or given up as lost: one minute after the commit, plus its bytes at 10 MB/s. A run of which a
 * rank's last file was lost fails, unless ctrun_hold_wait() has told the rank. Without an agent
 * the commit writes the file and waits for the disk. */
struct ctrun_hold;
struct ctrun_hold_options {
    size_t size;         /* CTRUN_HOLD_OPTIONS_INIT */
    uint64_t timeout_ms; /* of each call that waits; default 300 000 */
};
#define CTRUN_HOLD_OPTIONS_INIT                                                        \
    {                                                                                  \
        sizeof(struct ctrun_hold_options), 300000                                      \
    }
/* The file at path will be replaced; its folder must exist. options may be NULL. One thread at a
 * time per hold. CTRUN_E_USAGE: with an agent, while another one is open that is not committed.
 * CTRUN_E_RESOURCES when there is no room, CTRUN_E_TIMEOUT, -errno of the folder, -EISDIR: path is
 * that of a directory, -EINVAL: of a device, a FIFO or a socket, -EMFILE, -ENFILE or -ENOMEM. */
CTRUN_API int ctrun_hold_open(struct ctrun_hold **out, struct ctrun_session *session,
                              const char *path,
                              const struct ctrun_hold_options *options,
                              struct ctrun_error *err);
/* Appends. After a failure the hold can only be closed. CTRUN_E_RESOURCES, CTRUN_E_TIMEOUT,
 * -ENOSPC, -EINVAL: length is no size of memory. */
CTRUN_API int ctrun_hold_write(struct ctrun_hold *hold, const void *data, size_t length,
                               struct ctrun_error *err);
/* After 0 the file will be written even if this process dies. Call it once. */
CTRUN_API int ctrun_hold_commit(struct ctrun_hold *hold, struct ctrun_error *err);
/* NULL is fine. */
CTRUN_API void ctrun_hold_close(struct ctrun_hold *hold);
/* Waits until all files that this rank has committed are on the disk: 0; the error with which the
 * last one was lost (-ENOSPC, ...); CTRUN_E_CLOSED: the agent has ended, and perhaps not written
 * it; CTRUN_E_TIMEOUT; -EMFILE, -ENFILE or -ENOMEM: it cannot be asked now. Any thread; calls run
 * one after the other. */
CTRUN_API int ctrun_hold_wait(struct ctrun_session *session, uint64_t timeout_ms,
                              struct ctrun_error *err);
/* Finds the file at path in the agent's memory, where a worker of this node has committed it,
 * perhaps before a restart. 1: *out is a descriptor that reads from its beginning; the caller
 * closes it, and nothing writes to the memory before that. 0: the agent does not have the file, or
 * the disk has another one now: read the file on the disk. Blocks while the agent writes the file,
 * and then to check its sum. CTRUN_E_TIMEOUT, -errno of the folder where it exists, -EMFILE,
 * -ENFILE or -ENOMEM. */
CTRUN_API int ctrun_hold_find(struct ctrun_session *session, const char *path,
                              uint64_t timeout_ms, int *out, struct ctrun_error *err);

#ifdef __cplusplus
}
#endif

#endif
