/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/merge.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "launcher/batch/batch_systems.h"
#include "launcher/batch/nested.h"
#include "launcher/config/rdzv_batch.h"
#include "launcher/config/rdzv_pmi.h"
#include "launcher/hardware/devices.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/client.h"
#include "worker_sdk/wire/contract.h"

enum {
    MERGE_MAGIC = 0x6d657267,
    AGAIN_MS = 10 /* between tries while task 0 does not listen yet */
};

/* Sender and receiver are one program on one machine, so no byte order and no version is needed. */
struct hello {
    uint32_t magic;
    uint32_t local_id;
    struct cpuset cpus;
};

struct bye {
    uint32_t magic;
    int32_t code;
};

static void name_socket(char name[CTL_DIR_NAME_MAX], const struct batch_place *place)
{
    ctl_dir_name(name, place->run_id, place->node_id, CTL_MERGE_SUFFIX);
}

/* ---- The first task ------------------------------------------------------------------ */

/* Accepts another task; other users cannot open the socket's folder. True when it is a task of
 * this node; its CPUs are added to `cpus`. SEQPACKET: a hello arrives whole or not at all. The
 * descriptor stays open until merge_close(), so that the other task sees end-of-file when this
 * task is killed. */
static bool accept_one(struct merge *merge, int listener, uint64_t deadline_ms,
                       struct cpuset *cpus)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct hello hello;

    if (fd < 0)
        return false;
    if (ct_client_poll(fd, POLLIN, deadline_ms) < 0 ||
        recv(fd, &hello, sizeof hello, MSG_DONTWAIT) != (ssize_t)sizeof hello ||
        hello.magic != MERGE_MAGIC) {
        close(fd);
        return false;
    }
    merge->fds[merge->count++] = fd;
    cpuset_unite(cpus, &hello.cpus);
    return true;
}

static int gather(struct merge *merge, int listener, int others,
                  const struct batch_place *place, struct ctrun_error *err)
{
    uint64_t deadline_ms = ct_deadline_ms(MERGE_GATHER_MS);
    struct cpuset cpus;

    devices_cpus(&cpus);
    while (merge->count < others) {
        if (ct_client_poll(listener, POLLIN, deadline_ms) < 0)
            return ct_fail(err, CTRUN_E_TIMEOUT,
                           "%s: %d of %d tasks on %s did not connect within %d s; all "
                           "tasks of a node must run ctrun with the same options",
                           place->system, others - merge->count, others + 1,
                           place->nodes.names[place->node_id], MERGE_GATHER_MS / 1000);
        (void)accept_one(merge, listener, deadline_ms, &cpus);
    }
    /* The other tasks only sleep: their CPUs are for the workers of this task. */
    if (sched_setaffinity(0, sizeof cpus.sets, cpus.sets) < 0)
        ct_warn("the CPUs of this node's other tasks cannot be used: %s",
                strerror(errno));
    return 0;
}

/* The socket's name, for on_signal(). */
static struct {
    int dir;
    char name[CTL_DIR_NAME_MAX];
} waiting;

/* SA_RESETHAND: raise() acts as if there were no handler. */
static void on_signal(int number)
{
    (void)unlinkat(waiting.dir, waiting.name, 0);
    (void)raise(number);
}

static const int ending[] = {SIGTERM, SIGINT, SIGHUP};

/* While the socket has its name, a signal that ends this task removes it. */
static void catch_signals(int dir, const char *name,
                          struct sigaction before[sizeof ending / sizeof *ending])
{
    const struct sigaction action = {.sa_handler = on_signal,
                                     .sa_flags = (int)SA_RESETHAND};

    waiting.dir = dir;
    (void)ct_copy(waiting.name, sizeof waiting.name, name); /* same size */
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (sigaction(ending[i], NULL, &before[i]) == 0 &&
            before[i].sa_handler == SIG_DFL)
            (void)sigaction(ending[i], &action, NULL);
}

/* Signals wait meanwhile: on_signal() does not know the hidden name that the socket has at first. */
static int listen_whole(int dir, const char *name)
{
    sigset_t all, before;
    int listener;

    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    listener = ctl_dir_listen(dir, name, SOCK_SEQPACKET);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return listener;
}

static int lead(struct merge *merge, const struct batch_place *place,
                struct ctrun_error *err)
{
    int others = place->tasks[place->node_id] - 1;
    struct sigaction before[sizeof ending / sizeof *ending];
    char folder[PATH_MAX];
    char name[CTL_DIR_NAME_MAX];
    int listener;
    int dir;
    int rc;

    if (others == 0)
        return 0;
    if (!(merge->fds = ct_zalloc_array((size_t)others, sizeof *merge->fds)))
        return ct_fail(err, -ENOMEM, "tasks of this node: out of memory");
    name_socket(name, place);
    if ((dir = ctl_dir_choose(folder, PATH_MAX, false, err)) < 0)
        return ct_wrap(err, "tasks of this node"), err->code;
    catch_signals(dir, name, before);
    listener = listen_whole(dir, name);
    if (listener < 0)
        rc = ct_fail(err, listener, "tasks of this node: socket %.300s/%s: %s", folder,
                     name, strerror(-listener));
    else
        rc = gather(merge, listener, others, place, err);
    if (listener >= 0) {
        /* All tasks have connected: the name is not needed any more, and a killed agent leaves
         * none. */
        (void)unlinkat(dir, name, 0);
        close(listener);
    }
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        (void)sigaction(ending[i], &before[i], NULL);
    close(dir);
    return rc;
}

void merge_close(struct merge *merge, int code)
{
    const struct bye bye = {MERGE_MAGIC, code};

    for (int i = 0; i < merge->count; i++) {
        (void)send(merge->fds[i], &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(merge->fds[i]);
    }
    free(merge->fds);
    *merge = (struct merge){0};
}

/* ---- The others ---------------------------------------------------------------------- */

/* Tries all folders that task 0 may have chosen. A connected descriptor, or -errno. */
static int connect_to_leader(const struct batch_place *place)
{
    char paths[CTL_DIRS_MAX][PATH_MAX];
    const int count = ctl_dir_list(paths, getuid());
    char name[CTL_DIR_NAME_MAX];
    int fd = -ENOENT;

    name_socket(name, place);
    for (int i = 0; i < count && fd < 0; i++) {
        const int dir = ctl_dir_open(paths[i], false, NULL);

        if (dir < 0)
            continue;
        fd = ctl_dir_connect(dir, name, SOCK_SEQPACKET);
        close(dir);
    }
    return fd;
}

/* A descriptor connected to task 0, or a code. */
static int find_leader(const struct batch_place *place, struct ctrun_error *err)
{
    uint64_t deadline_ms = ct_deadline_ms(MERGE_GATHER_MS);
    struct timespec pause = {0, AGAIN_MS * 1000000};
    int fd;

    while ((fd = connect_to_leader(place)) < 0) {
        if (ct_left_ms(deadline_ms) == 0)
            return ct_fail(
                err, CTRUN_E_TIMEOUT,
                "%s: this task could not connect to task 0 of %s within %d "
                "s; all tasks of a node must run ctrun with the same options",
                place->system, place->nodes.names[place->node_id],
                MERGE_GATHER_MS / 1000);
        if (fd != -ENOENT && fd != -ECONNREFUSED && fd != -EAGAIN)
            return ct_fail(err, fd, "connecting to task 0 of this node: %s",
                           strerror(-fd));
        (void)nanosleep(&pause, NULL);
    }
    (void)fcntl(fd, F_SETFL, 0); /* blocking: recv() waits for task 0 */
    return fd;
}

/* Sleeps until task 0 ends. This task blocks signals: the batch system sends them to task 0, too,
 * which handles them. */
static int follow(struct merge *merge, const struct batch_place *place,
                  struct ctrun_error *err)
{
    struct hello hello = {MERGE_MAGIC, (uint32_t)place->local_id, {{{{0}}}}};
    struct bye bye = {0};
    sigset_t all;
    ssize_t n;
    int fd;

    /* Signals are blocked before the CPUs are sent: after that, a signal that the batch system
     * sends to all tasks must not kill this one. */
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    devices_cpus(&hello.cpus);
    if ((fd = find_leader(place, err)) < 0)
        return fd;
    n = send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
    while (n == (ssize_t)sizeof hello && (n = recv(fd, &bye, sizeof bye, 0)) < 0 &&
           errno == EINTR)
        n = (ssize_t)sizeof hello;
    close(fd);
    merge->is_done = true;
    merge->code = n == (ssize_t)sizeof bye && bye.magic == MERGE_MAGIC
                      ? bye.code
                      : CT_EXIT_FAILURE;
    if (n != (ssize_t)sizeof bye)
        ct_warn("task 0 of this node, the agent, ended without reporting an exit code");
    return 0;
}

int merge_tasks(struct merge *out, const struct options *options, char *const *env,
                struct ctrun_error *err)
{
    const struct batch_source source = batch_source_of(&env);
    bool only_looks = options->values[OPTION_DRY_RUN].is_on ||
                      options->values[OPTION_PRINT_CONFIG].is_on;
    struct batch_place place;
    int rc;

    *out = (struct merge){0};
    if (options->values[OPTION_STANDALONE].is_on)
        return 0;
    /* Other errors are reported by config_resolve(). Not -ENOMEM: config_resolve() may have enough
     * memory, and then the other tasks would wait for this one. */
    if ((rc = batch_find(&place, &source, err)) <= 0)
        return rc == -ENOMEM ? rc : 0;
    if (batch_shape(&place, options) != BATCH_MERGE ||
        nested_is_in_task(env, place.run_id))
        rc = 0;
    else if (only_looks && place.local_id > 0)
        rc = out->is_done = true; /* task 0 prints */
    else if (only_looks)
        rc = 0;
    else if (place.local_id == 0)
        rc = lead(out, &place, err);
    else {
        if (!rdzv_batch_is_given(options))
            rdzv_pmi_attend(options, &place, &source);
        rc = follow(out, &place, err);
    }
    batch_place_deinit(&place);
    return rc < 0 ? rc : 0;
}
