/* SPDX-License-Identifier: Apache-2.0 */
/* Which workers can be asked to stop, and not signalled: those that ask whether they should. */
#include <sys/mman.h>

#include "agent/control/worker_socket_private.h"
#include "tests/lib/test.h"
#include "worker_sdk/wire/progress.h"

enum {
    NOW_MS = 1000000
};

static bool polls(const struct ct_progress *page, size_t length, uint64_t now_ms)
{
    const int fd = memfd_create("page", MFD_CLOEXEC);
    bool answer;

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, page, length, 0), length);
    answer = worker_socket_page_polls(fd, now_ms);
    close(fd);
    return answer;
}

TEST(a_worker_that_has_not_asked_for_long_does_not_ask)
{
    struct ct_progress page = {.magic = CT_PROGRESS_MAGIC,
                               .polls = 1,
                               .polled_ms = NOW_MS,
                               .poll_gap_ms = 100};

    assert_true(polls(&page, sizeof page, NOW_MS));
    assert_true(polls(&page, sizeof page, NOW_MS + 30000));
    assert_false(polls(&page, sizeof page, NOW_MS + 30001));
    assert_true(polls(&page, sizeof page, NOW_MS - 1)); /* it has asked since */
    page.poll_gap_ms = 60000;
    assert_true(polls(&page, sizeof page, NOW_MS + 600000));
    assert_false(polls(&page, sizeof page, NOW_MS + 600001));
    page.poll_gap_ms = UINT64_MAX;
    assert_true(polls(&page, sizeof page, UINT64_MAX));
    page.polls = 0;
    assert_false(polls(&page, sizeof page, NOW_MS));
}

TEST(a_page_of_an_older_library_does_not_say_when)
{
    struct ct_progress page = {.magic = CT_PROGRESS_MAGIC, .polls = 1};
    const size_t old = offsetof(struct ct_progress, polls) + sizeof page.polls;

    assert_true(polls(&page, old, NOW_MS));
    assert_true(polls(&page, sizeof page, NOW_MS));
    assert_false(polls(&page, old - 1, NOW_MS));
    page.magic++;
    assert_false(polls(&page, old, NOW_MS)); /* no page of ours */
}
