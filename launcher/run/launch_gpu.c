/* SPDX-License-Identifier: Apache-2.0 */
/* --gpu-wait: the GPU memory of a dead worker is freed a moment after its end, or later, if a
 * child of it still runs. A thread reads the memory in use while the first workers start, and names another
 * program that has most of it. Before each restart a thread waits until no more than that is in use. The driver may hang, so only
 * threads call it, and they share struct launch_gpu with the launch. */
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "agent/process/process_name.h"
#include "launcher/hardware/gpu_memory.h"
#include "launcher/hardware/own_gpu.h"
#include "launcher/report/messages.h"
#include "launcher/run/launch_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    LOOK_EVERY_MS = 100
};

/* Freed by its last user. Until is_ready is set only look_first() writes gpus, nvml and before;
 * from then on they are constant. */
struct launch_gpu {
    _Atomic int users;     /* the launch, and each thread */
    _Atomic bool is_ready; /* gpus, nvml and before are set */
    uint64_t limit_ms;
    bool is_quiet; /* another task of this node prints */
    char *visible; /* owned; NULL: CUDA_VISIBLE_DEVICES is not set */
    struct gpus gpus;
    struct nvml nvml; /* stays open: opening it again would slow down a restart */
    struct gpu_memory before;
};

/* Owned by its thread, as is `fd`. The agent has the other end of the socket, and may close that
 * end at any time. */
struct job {
    struct launch_gpu *gpu;
    int fd;
};

static void leave(struct launch_gpu *gpu)
{
    if (atomic_fetch_sub(&gpu->users, 1) != 1)
        return;
    free(gpu->visible);
    free(gpu);
}

static void describe(char *dst, size_t size, const struct launch_gpu *gpu,
                     const struct gpu_memory_held *held, const char *holds)
{
    char name[PROCESS_NAME_MAX], who[64] = "a process that cannot be seen from here";

    if (held->pid)
        (void)ct_format(who, sizeof who, "pid %u (%s)", held->pid,
                        process_name(name, (pid_t)held->pid));
    (void)ct_format(dst, size, "%s %s %.1f GiB of GPU %s", who, holds,
                    (double)held->bytes / (1 << 30), gpu->gpus.pci[held->gpu]);
}

/* The first workers may have begun: a process that is younger than this one may be one of them. */
static void warn_of_full(const struct launch_gpu *gpu)
{
    struct gpu_memory_held held;
    uint64_t started;
    char text[192];

    if (gpu->is_quiet ||
        (gpu->visible &&
         strstr(gpu->visible, "MIG-")) || /* memory is of the whole GPU */
        !gpu_memory_find_full(&held, &gpu->before))
        return;
    started = held.pid ? ct_small_file_started((pid_t)held.pid) : 0;
    if (started > ct_small_file_started(getpid()))
        return;
    if (started == 0)
        held.pid = 0;
    describe(text, sizeof text, gpu, &held, "holds");
    messages_warn(0, "GPU memory is in use before the first start: %s", text);
}

static void *look_first(void *argument)
{
    struct launch_gpu *gpu = argument;
    char why[NVML_TEXT_MAX];
    struct gpus all;

    gpus_find(&all);
    if (all.count > 0 && gpus_select(&gpu->gpus, &all, gpu->visible, NULL) == 0 &&
        gpu->gpus.count > 0 && nvml_open(&gpu->nvml, why, sizeof why) == 0) {
        gpu_memory_read(&gpu->before, &gpu->nvml, &gpu->gpus);
        warn_of_full(gpu);
        atomic_store(&gpu->is_ready, gpu->before.count > 0);
    }
    leave(gpu);
    return NULL;
}

void launch_begin_gpu(struct launch *launch)
{
    const char *visible = ct_env_find(launch->config->env, "CUDA_VISIBLE_DEVICES");
    struct launch_gpu *gpu;

    if (launch->config->stop.finds_stragglers)
        launch->gpu_watch = gpu_watch_create(visible,
                                             launch->config->run.task.local_id);
    if (access("/proc/driver/nvidia", F_OK) == 0)
        own_gpu_look(); /* while none has fallen off its bus */
    if (launch->config->stop.gpu_wait_ms == 0 || !(gpu = ct_zalloc(sizeof *gpu)))
        return;
    gpu->users = 1;
    gpu->limit_ms = launch->config->stop.gpu_wait_ms;
    gpu->is_quiet = launch->config->run.task.is_quiet;
    if (launch->config->run.max_restarts > 0) {
        launch->gpu = gpu;
        gpu->users++;
    }
    if ((visible && !(gpu->visible = ct_strdup(visible))) ||
        blocking_call_start(look_first, gpu) < 0)
        leave(gpu);
}

void launch_end_gpu(struct launch *launch)
{
    if (launch->gpu)
        leave(launch->gpu);
    launch->gpu = NULL;
    gpu_watch_destroy(launch->gpu_watch);
    launch->gpu_watch = NULL;
}

void launch_look_at_gpus(void *context, struct rank_gpu *out, int count)
{
    const struct launch *launch = context;

    gpu_watch_look(launch->gpu_watch, out, count);
}

/* False: the agent has closed its end. */
static bool send_word(int fd, enum agent_gpu_kind kind,
                      const struct agent_gpu_word *word)
{
    struct agent_gpu_word out = *word;

    out.kind = kind;
    return send(fd, &out, sizeof out, MSG_NOSIGNAL) == sizeof out;
}

static void *wait_until_free(void *argument)
{
    static const struct timespec pause = {.tv_nsec = LOOK_EVERY_MS * 1000000l};
    struct job *job = argument;
    struct launch_gpu *gpu = job->gpu;
    const uint64_t until_ms = ct_deadline_ms(gpu->limit_ms);
    struct agent_gpu_word word = {0};
    struct gpu_memory_held held;
    struct gpu_memory now;
    bool is_sent = true;

    for (bool is_first = true; is_sent; is_first = false) {
        gpu_memory_read(&now, &gpu->nvml, &gpu->gpus);
        if (!gpu_memory_find_held(&held, &gpu->before, &now)) {
            (void)send_word(job->fd, AGENT_GPU_FREE, &word);
            break;
        }
        describe(word.text, sizeof word.text, gpu, &held, "still holds");
        if (ct_left_ms(until_ms) == 0) {
            (void)send_word(job->fd, AGENT_GPU_LATE, &word);
            break;
        }
        if (is_first)
            is_sent = send_word(job->fd, AGENT_GPU_HELD, &word);
        (void)nanosleep(&pause, NULL);
    }
    close(job->fd);
    free(job);
    leave(gpu);
    return NULL;
}

int launch_wait_for_gpus(void *context)
{
    struct launch *launch = context;
    struct launch_gpu *gpu = launch->gpu;
    struct job *job;
    int fds[2];

    if (!gpu || !atomic_load(&gpu->is_ready))
        return -1;
    if (!(job = ct_zalloc(sizeof *job)))
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
        free(job);
        return -1;
    }
    *job = (struct job){.gpu = gpu, .fd = fds[1]};
    atomic_fetch_add(&gpu->users, 1);
    if (blocking_call_start(wait_until_free, job) == 0)
        return fds[0];
    close(fds[0]);
    close(fds[1]);
    free(job);
    leave(gpu);
    return -1;
}

void launch_on_gpu(void *context, const struct agent_gpu_word *word)
{
    const struct launch *launch = context;
    char limit[MESSAGES_SPAN_MAX];

    messages_format_span(limit, launch->config->stop.gpu_wait_ms);
    if (word->kind == AGENT_GPU_HELD)
        messages_notice("waiting up to %s for GPU memory (--gpu-wait): %s", limit,
                        word->text);
    else if (word->kind == AGENT_GPU_LATE)
        messages_warn(0, "GPU memory is not free after %s, starting anyway: %s", limit,
                      word->text);
}
