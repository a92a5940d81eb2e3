/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/fence.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/tcp.h"

struct fence {
    _Atomic uint64_t until_ms; /* 0: not armed */
    _Atomic uint64_t lost_after_ms;
    _Atomic int fd;
    _Atomic bool has_cut; /* the guard has killed the workers since it was armed */
};

static struct fence *fence;    /* shared; NULL: none */
static uint64_t look_again_ms; /* the guard's: the kernel was asked, and said: paused */

void fence_create(void)
{
    void *page = mmap(NULL, sizeof *fence, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    fence = page == MAP_FAILED ? NULL : page;
    fence_set_socket(-1);
}

void fence_arm(uint64_t until_ms, uint64_t lost_after_ms)
{
    if (!fence)
        return;
    atomic_store(&fence->has_cut, false);
    atomic_store(&fence->lost_after_ms, lost_after_ms);
    atomic_store(&fence->until_ms, until_ms);
}

void fence_set_socket(int fd)
{
    if (fence)
        atomic_store(&fence->fd, fd);
}

void fence_renew(uint64_t until_ms)
{
    uint64_t before_ms = fence ? atomic_load(&fence->until_ms) : 0;

    /* The guard disarms when it has killed. */
    if (before_ms > 0)
        (void)atomic_compare_exchange_strong(&fence->until_ms, &before_ms, until_ms);
}

void fence_disarm(void)
{
    if (fence)
        atomic_store(&fence->until_ms, 0);
}

bool fence_has_cut(void)
{
    return fence && atomic_load(&fence->has_cut);
}

uint64_t fence_next_ms(void)
{
    uint64_t until_ms = fence ? atomic_load(&fence->until_ms) : 0;

    if (until_ms == 0)
        return UINT64_MAX;
    return until_ms > look_again_ms ? until_ms : look_again_ms;
}

/* True when the server's host has sent something lately. */
static bool hears_server(pid_t agent)
{
    const uint64_t patience_ms = atomic_load(&fence->lost_after_ms) / 5 * 2;
    const int fd = atomic_load(&fence->fd);
    struct ct_tcp_view view = {0};
    int process, copy = -1;

    if (fd < 0)
        return false;
    process = pidfd_open(agent, 0);
    if (process >= 0)
        copy = pidfd_getfd(process, fd, 0);
    if (copy >= 0 && ct_tcp_look(copy, &view) < 0)
        view.is_open = false;
    if (copy >= 0)
        close(copy);
    if (process >= 0)
        close(process);
    return copy >= 0 && view.is_open && view.quiet_ms < patience_ms;
}

bool fence_is_over(pid_t agent)
{
    const uint64_t now_ms = ct_now_ms();

    if (now_ms < fence_next_ms())
        return false;
    if (hears_server(agent)) {
        look_again_ms = now_ms + atomic_load(&fence->lost_after_ms) / 20;
        return false;
    }
    atomic_store(&fence->has_cut, true);
    fence_disarm();
    return true;
}
