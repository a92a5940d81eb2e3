/* SPDX-License-Identifier: Apache-2.0 */
/* When the thread of --ha takes its next turn. What it does in a turn is not tested here. */
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "launcher/ha/ha_private.h"
#include "tests/lib/test.h"

enum {
    LIMIT_MS = 60000,
    SUSPENDED_S = 86400 /* the clock since boot is ahead of the monotonic one by this */
};

static int changed; /* eventfd: one of the next three has changed */
static atomic_int turns, waits;
static atomic_ullong found; /* the epoch of the plan that the last turn has taken */
static bool is_long;        /* a wait lasts a day longer than its deadline */

static void tell(void)
{
    const uint64_t one = 1;

    assert_int_equal(write(changed, &one, sizeof one), sizeof one);
}

void ha_take_found(struct ha *ha)
{
    pthread_mutex_lock(&ha->mutex);
    atomic_store(&found, ha->found.epoch);
    pthread_mutex_unlock(&ha->mutex);
    atomic_fetch_add(&turns, 1);
    tell();
}

static bool do_nothing(struct ha *ha, const struct ct_ha_plan *plan)
{
    return false;
}

bool ha_keep_member(struct ha *ha, const struct ct_ha_plan *plan)
{
    return do_nothing(ha, plan);
}

bool ha_follow(struct ha *ha, const struct ct_ha_plan *plan)
{
    return do_nothing(ha, plan);
}

bool ha_lead(struct ha *ha, const struct ct_ha_plan *plan)
{
    return do_nothing(ha, plan);
}

void ha_lead_end(struct ha *ha)
{
}

void ha_send_messenger(struct ha *ha, const struct ct_ha_plan *plan)
{
    (void)do_nothing(ha, plan);
}

int __real_clock_gettime(clockid_t id, struct timespec *at);
int __wrap_clock_gettime(clockid_t id, struct timespec *at);
int __wrap_clock_gettime(clockid_t id, struct timespec *at)
{
    const int rc = __real_clock_gettime(id, at);

    if (id == CLOCK_BOOTTIME)
        at->tv_sec += SUSPENDED_S;
    return rc;
}

/* Called with the mutex locked: whoever locks it next finds the thread waiting. */
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    struct timespec end = *until;

    if (is_long)
        end.tv_sec += SUSPENDED_S;
    atomic_fetch_add(&waits, 1);
    tell();
    return __real_pthread_cond_timedwait(cond, mutex, &end);
}

static void wait_until(atomic_int *what, int least)
{
    struct pollfd one = {.fd = changed, .events = POLLIN};
    uint64_t count;

    while (atomic_load(what) < least) {
        if (poll(&one, 1, LIMIT_MS) != 1)
            fail_msg("%d in place of %d after %d ms", atomic_load(what), least,
                     LIMIT_MS);
        assert_int_equal(read(changed, &count, sizeof count), sizeof count);
    }
}

static struct ha *start(bool waits_long)
{
    const struct ha_options options = {0};
    struct ctrun_error err;
    struct ha *ha;

    is_long = waits_long;
    atomic_store(&turns, 0);
    atomic_store(&waits, 0);
    assert_true((changed = eventfd(0, EFD_CLOEXEC)) >= 0);
    assert_int_equal(ha_create(&ha, &options, &err), 0);
    assert_int_equal(ha_start(ha, NULL, 0, false, NULL, NULL, &err), 0);
    return ha;
}

static void end(struct ha *ha)
{
    ha_stop(ha);
    ha_destroy(ha);
    close(changed);
}

TEST(turns_go_on_without_news_though_the_machine_was_suspended)
{
    struct ha *ha = start(false);

    wait_until(&turns, 3);
    end(ha);
}

/* The end of the thread, too, does not wait for a day. */
TEST(news_end_a_wait)
{
    const struct ct_ha_plan plan = {.epoch = 7};
    struct ha *ha = start(true);
    const struct ha_hooks *hooks = ha_hooks(ha);

    wait_until(&waits, 1);
    assert_int_equal(atomic_load(&turns), 1);
    hooks->on_found(hooks->context, &plan);
    wait_until(&turns, 2);
    assert_int_equal(atomic_load(&found), 7);
    hooks->on_gone(hooks->context, 1);
    wait_until(&turns, 3);
    end(ha);
}

TEST(a_node_that_can_become_no_member_takes_its_offer_back)
{
    const struct ct_ha_report offer = {
        .key = 5, .addr = "10.0.0.1", .client_port = 2379, .peer_port = 2380};
    const struct ct_ha_report none = {.key = 7};
    const struct ha_options options = {0};
    const struct ha_hooks *hooks;
    struct ctrun_error err;
    struct ha *ha;

    assert_int_equal(ha_create(&ha, &options, &err), 0);
    hooks = ha_hooks(ha);
    hooks->on_report(hooks->context, 1, &offer);
    assert_int_equal(ha->nodes[0].report.key, 5);
    hooks->on_report(hooks->context, 1, &none);
    assert_int_equal(ha->node_count, 1);
    assert_int_equal(ha->nodes[0].report.key, 7);
    ha_destroy(ha);
}
