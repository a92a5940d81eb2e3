/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/guard/fence.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/guard/fence_page.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/net/tcp.h"
#include "worker_sdk/base/kernel.h"

struct fence {
    struct fence_page page;
    _Atomic uint64_t suspended_ms; /* ct_suspended_ms() at the last renewal */
    pid_t second;
    _Atomic pid_t agent;
    _Atomic int fd;
};

/* Written by the agent, read by the guards. All but `second`, which is written before the agent
 * is forked, is atomic: a guard that reads while the agent writes gets the older value or the
 * newer one. */
static struct fence *fence; /* shared; NULL: none */
static int first = -1;      /* pidfd of the first guard, for the agent */
/* the guard's: no look before this time, as the server was alive */
static uint64_t look_again_ms;

void fence_create(void)
{
    void *page = mmap(NULL, sizeof *fence, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    fence = page == MAP_FAILED ? NULL : page;
    /* a pidfd, because the agent is no child of the first guard but a grandchild: after the
     * guard's death its pid may be another process's */
    first = ct_pidfd_open(getpid());
    fence_set_socket(-1);
}

void fence_join(void)
{
    if (fence)
        fence->second = getpid();
}

void fence_begin(void)
{
    if (fence)
        atomic_store(&fence->agent, getpid());
}

pid_t fence_agent(void)
{
    return fence ? atomic_load(&fence->agent) : 0;
}

/* The guards sleep until this signal. */
static void wake_guards(void)
{
    if (getppid() == fence->second)
        (void)kill(fence->second, FENCE_SIGNAL);
    if (first >= 0) /* Linux 5.3 has pidfds */
        (void)ct_pidfd_send_signal(first, FENCE_SIGNAL);
}

void fence_arm(uint64_t until_ms, uint64_t patience_ms)
{
    if (!fence)
        return;
    atomic_store(&fence->suspended_ms, ct_suspended_ms());
    fence_page_arm(&fence->page, until_ms, patience_ms);
    wake_guards();
}

void fence_set_socket(int fd)
{
    if (fence)
        atomic_store(&fence->fd, fd);
}

void fence_renew(uint64_t until_ms)
{
    if (!fence)
        return;
    atomic_store(&fence->suspended_ms, ct_suspended_ms());
    fence_page_renew(&fence->page, until_ms);
}

void fence_finish(void)
{
    if (fence)
        fence_page_finish(&fence->page);
}

void fence_disarm(void)
{
    if (fence)
        fence_page_disarm(&fence->page);
}

bool fence_has_cut(void)
{
    return fence && atomic_load(&fence->page.has_cut);
}

uint64_t fence_next_ms(void)
{
    uint64_t until_ms = fence ? atomic_load(&fence->page.until_ms) : 0;

    if (until_ms == 0)
        return UINT64_MAX;
    return until_ms > look_again_ms ? until_ms : look_again_ms;
}

/* The clock of the kernel's TCP stops while this machine is suspended; the server's host
 * continues, unless it is this machine. */
static uint64_t unseen_ms(int fd)
{
    const uint64_t now_ms = ct_suspended_ms();
    const uint64_t then_ms = atomic_load(&fence->suspended_ms);

    return now_ms <= then_ms || ct_tcp_is_same_host(fd) ? 0 : now_ms - then_ms;
}

/* True when the server's host has sent something lately. */
static bool is_server_alive(void)
{
    const uint64_t patience_ms = atomic_load(&fence->page.patience_ms);
    const int fd = atomic_load(&fence->fd);
    struct ct_tcp_view view = {0};
    int process, copy = -1;

    if (fd < 0 || patience_ms == 0)
        return false;
    process = ct_pidfd_open(atomic_load(&fence->agent));
    if (process >= 0)
        copy = ct_pidfd_getfd(process, fd);
    if (copy >= 0 && ct_tcp_look(copy, &view) < 0)
        view.is_open = false;
    if (copy >= 0)
        view.quiet_ms += unseen_ms(copy);
    ct_close(&copy);
    ct_close(&process);
    return view.is_open && view.quiet_ms < patience_ms; /* not open: no copy */
}

bool fence_is_over(void)
{
    const uint64_t now_ms = ct_now_ms();
    uint64_t until_ms = fence ? atomic_load(&fence->page.until_ms) : 0;

    if (until_ms == 0 || now_ms < until_ms || now_ms < look_again_ms)
        return false;
    if (is_server_alive()) {
        look_again_ms = now_ms + atomic_load(&fence->page.patience_ms) / 8;
        return false;
    }
    return fence_page_cut(&fence->page, until_ms);
}
