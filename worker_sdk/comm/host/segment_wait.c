/* SPDX-License-Identifier: Apache-2.0 */
/* Posts, bells and waits in the memory of segment.c; notices members that die or leave. */
#include <linux/futex.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/host/segment.h"

enum {
    SWITCH_NS = 1500,       /* shorter than a switch to another thread and back */
    LONG_YIELD_NS = 200000, /* longer than a member takes to post */
    /* for members that wait to look around, on a busy machine; and when this begins */
    ANSWER_MS = 1000,
    NOTE_MS = ANSWER_MS + 2 * CT_SLICE_MS,
};

static int futex_wait(_Atomic uint32_t *word, uint32_t value, int ms)
{
    struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    return (int)syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

void ct_segment_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL,
                  0); /* cannot fail */
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_died(const struct ct_segment *segment, int member)
{
    struct pollfd entry = {.fd = segment->pidfds[member], .events = POLLIN};

    return entry.fd >= 0 && poll(&entry, 1, 0) > 0;
}

void ct_segment_ring(struct ct_segment *segment, int member)
{
    atomic_fetch_add(&segment->members[member].bell, 1);
    ct_segment_wake_all(&segment->members[member].bell);
}

/* Called after the change that a sleeper waits for. sleepers is stored before the sleeper checks
 * for the last time (ct_segment_wait), and read here after the change: either the sleeper sees the
 * change, or we see that it sleeps. A bell that rings in between changes the value that the futex
 * compares. */
void ct_segment_wake(struct ct_segment *segment, int member)
{
    if (member != segment->me && atomic_load(&segment->members[member].sleepers))
        ct_segment_ring(segment, member);
}

/* For the others' messages, if they reach their deadline. */
static void show_wait(struct ct_segment *segment, const struct ct_wait *wait)
{
    struct ct_shm_member *self = &segment->members[segment->me];
    int i = 0;

    while (i < segment->size &&
           (i == segment->me || !wait->is_awaited(segment, wait, i)))
        i++;
    atomic_store(&self->waits_in, wait->call ? (uint32_t)wait->call->kind : 0);
    atomic_store(&self->waits_for, i < segment->size ? (uint32_t)i + 1 : 0);
}

/* " in recv, which waits for rank 0", or nothing. */
static void format_wait(char *dst, size_t size, const struct ct_segment *segment,
                        int member)
{
    const uint32_t in = segment->members
                            ? atomic_load(&segment->members[member].waits_in)
                            : 0;
    const uint32_t other = in ? atomic_load(&segment->members[member].waits_for) : 0;

    dst[0] = '\0';
    if (other && other <= (uint32_t)segment->size)
        (void)ct_format(dst, size, " in %s, which waits for rank %d",
                        ct_call_name((enum ct_call_kind)in),
                        segment->peers[other - 1]->rank);
}

/* Names the members for which is_named() holds: "rank 1 (pid 12 on a), rank 3 (...)", and for whom these wait
 * themselves. */
static void format_members(char *dst, size_t size, const struct ct_segment *segment,
                           const struct ct_wait *wait,
                           bool (*is_named)(const struct ct_segment *segment,
                                            const struct ct_wait *wait, int member))
{
    char who[CT_PEER_TEXT_MAX], waits[80];
    size_t used = 0;

    dst[0] = '\0';
    for (int i = 0; i < segment->size; i++) {
        if (i == segment->me || !is_named(segment, wait, i))
            continue;
        ct_peer_format(who, segment->peers[i]);
        format_wait(waits, sizeof waits, segment, i);
        int n = ct_format(dst + used, size - used, "%s%s%s", used ? ", " : "", who,
                          waits);
        if (n < 0)
            return; /* further names are left out */
        used += (size_t)n;
    }
}

/* The helper looks also while the program is in no call, and so would not answer. */
static void count_look(struct ct_segment *segment)
{
    if (!segment->has_helper || !pthread_equal(segment->helper, pthread_self()))
        atomic_fetch_add(&segment->members[segment->me].looks, 1);
}

/* Before a deadline, so that it is known at the deadline who has looked since. */
static void note_looks(struct ct_segment *segment, const struct ct_wait *wait)
{
    if (!wait->is_in_row || segment->noted_for_ms == wait->deadline_ms ||
        ct_left_ms(wait->deadline_ms) > NOTE_MS)
        return;
    segment->noted_for_ms = wait->deadline_ms;
    segment->noted_ms = ct_now_ms();
    for (int i = 0; i < segment->size; i++)
        segment->noted[i] = atomic_load(&segment->members[i].looks);
}

/* It has not looked around since note_looks(): its program waits for nobody in this group. */
static bool is_busy(const struct ct_segment *segment, const struct ct_wait *wait,
                    int member)
{
    (void)wait;
    return member != segment->me && !atomic_load(&segment->members[member].has_left) &&
           atomic_load(&segment->members[member].looks) == segment->noted[member];
}

static bool is_any_busy(const struct ct_segment *segment, const struct ct_wait *wait,
                        bool is_awaited)
{
    for (int i = 0; i < segment->size; i++)
        if (is_busy(segment, wait, i) &&
            (!is_awaited || wait->is_awaited(segment, wait, i)))
            return true;
    return false;
}

/* Gives all members time to look around. Returns the code of the verdict, after which a member
 * waits no more. */
static int find_busy(struct ct_segment *segment, const struct ct_wait *wait,
                     struct ctrun_error *err)
{
    const uint64_t end_ms = segment->noted_ms + ANSWER_MS;
    _Atomic uint32_t *bell = &segment->members[segment->me].bell;
    int rc = 0;

    while (rc == 0 && is_any_busy(segment, wait, false) && ct_left_ms(end_ms) > 0) {
        (void)futex_wait(bell, atomic_load(bell), CT_SLICE_MS);
        count_look(segment);
        rc = ct_verdict_get(segment->verdict, err);
    }
    return rc;
}

/* In a row of members that wait for each other the last one does not wait: it is the cause, stopped
 * or late. Who is in the row is not known, and a member beside it may compute while its helper moves
 * its messages: so all that do not wait are named, unless one of them is awaited itself. */
static int fail_waiting(struct ct_segment *segment, const struct ct_wait *wait,
                        struct ctrun_error *err)
{
    char names[320];
    char busy[320] = "";
    char call[CT_CALL_TEXT_MAX] = "open group";
    int rc = wait->is_in_row ? find_busy(segment, wait, err) : 0;

    if (rc < 0)
        return rc;
    if (wait->call)
        ct_call_format(call, wait->call);
    format_members(names, sizeof names, segment, wait, wait->is_awaited);
    if (wait->is_in_row && !is_any_busy(segment, wait, true))
        format_members(busy, sizeof busy, segment, wait, is_busy);
    return ct_fail(
        err, CTRUN_E_TIMEOUT, "%s: no answer in time from: %s%s%s", call, names,
        *busy ? "; computing or stopped, not waiting in this group: " : "", busy);
}

/* The first member that is gone although the wait still needs it, or -1. */
static int find_gone(const struct ct_segment *segment, const struct ct_wait *wait)
{
    for (int i = 0; i < segment->size; i++) {
        bool is_gone = i != segment->me &&
                       ((segment->members &&
                         atomic_load(&segment->members[i].has_left)) ||
                        has_died(segment, i));
        /* Checked last: what the member published before it went still counts. */
        if (is_gone && wait->is_awaited(segment, wait, i))
            return i;
    }
    return -1;
}

static int fail_gone(const struct ct_segment *segment, const struct ct_wait *wait,
                     int gone, struct ctrun_error *err)
{
    bool has_left = segment->members && atomic_load(&segment->members[gone].has_left);
    char call[CT_CALL_TEXT_MAX] = "open group";
    char who[CT_PEER_TEXT_MAX];

    if (wait->call)
        ct_call_format(call, wait->call);
    ct_peer_format(who, segment->peers[gone]);
    return ct_fail(err, CTRUN_E_PEER_LOST, "%s: %s %s", call, who,
                   has_left ? "has left the group" : CT_PEER_ENDED);
}

/* The slow checks of a wait, before each sleep. Members that are gone are checked before the
 * verdict is read: a member that fails sets the verdict before it goes. */
static int look_around(struct ct_segment *segment, const struct ct_wait *wait,
                       struct ctrun_error *err)
{
    int gone = find_gone(segment, wait);
    int rc = segment->verdict ? ct_verdict_get(segment->verdict, err) : 0;

    if (segment->members) {
        count_look(segment);
        note_looks(segment, wait);
    }
    if (rc == 0 && segment->watch.check)
        rc = segment->watch.check(segment->watch.context, err);
    if (rc == 0 && gone >= 0)
        rc = fail_gone(segment, wait, gone, err);
    if (rc == 0 && wait->check)
        rc = wait->check(segment, wait, err);
    if (rc == 0 && ct_now_ms() >= wait->deadline_ms)
        rc = fail_waiting(segment, wait, err);
    return rc;
}

int ct_segment_look(struct ct_segment *segment, const struct ct_wait *wait,
                    struct ctrun_error *err)
{
    const uint64_t now_ms = ct_now_ms();
    int rc;

    if (now_ms - segment->looked_ms < CT_SLICE_MS)
        return 0;
    segment->looked_ms = now_ms;
    rc = look_around(segment, wait, err);
    /* a peer that finished this call may have failed in its next */
    return rc < 0 && wait->is_met(segment, wait) ? 0 : rc;
}

/* Sleeps until the bell rings or a slice is over; on the ready word while there are no bells. */
static void sleep_a_slice(struct ct_segment *segment, const struct ct_wait *wait,
                          uint32_t bell)
{
    int left_ms = ct_left_ms(wait->deadline_ms);
    int slice_ms = left_ms < CT_SLICE_MS ? left_ms : CT_SLICE_MS;

    if (segment->members)
        (void)futex_wait(&segment->members[segment->me].bell, bell, slice_ms);
    else
        (void)futex_wait(segment->ready, 0, slice_ms);
}

/* Doubles the limit if the last checks have ended a wait, else halves it; at least 1, to notice
 * when they are useful again. `most` 0: always 0. */
static void adapt(int *now, int most, bool has_paid)
{
    const int next = has_paid ? *now * 2 : *now / 2;

    *now = next < 1 ? 1 : next;
    *now = *now < most ? *now : most;
}

/* True: the condition is met. */
static bool spin(struct ct_segment *segment, const struct ct_wait *wait)
{
    for (int i = 0; i < segment->spins_now; i++) {
        if (wait->is_met(segment, wait)) {
            adapt(&segment->spins_now, segment->spins, true);
            return true;
        }
        cpu_relax();
    }
    return false;
}

/* True: the condition is met. *alone: no other thread has used the processor meanwhile. A long
 * yield has given it to another program, perhaps for a whole time slice: then stop and sleep,
 * because a sleeper is woken ahead of such a program. */
static bool yield(struct ct_segment *segment, const struct ct_wait *wait, bool *alone)
{
    uint64_t now_ns = ct_now_ns();

    *alone = true;
    for (int i = 0; i < segment->yields_now; i++) {
        const uint64_t before_ns = now_ns;

        sched_yield();
        now_ns = ct_now_ns();
        *alone = *alone && now_ns - before_ns < SWITCH_NS;
        if (now_ns - before_ns > LONG_YIELD_NS)
            break;
        if (wait->is_met(segment, wait)) {
            adapt(&segment->yields_now, segment->yields, true);
            return true;
        }
    }
    adapt(&segment->yields_now, segment->yields, false);
    return wait->is_met(segment, wait);
}

/* Waits without sleeping. Spins count as useful when they end the wait, and also when they were too
 * few: then yields end it although no other thread ran. Two members may share one processor while
 * the other one is busy. */
static bool wait_awake(struct ct_segment *segment, const struct ct_wait *wait)
{
    bool is_met, alone;

    if (wait->is_met(segment, wait) || spin(segment, wait))
        return true;
    is_met = yield(segment, wait, &alone);
    adapt(&segment->spins_now, segment->spins, is_met && alone);
    return is_met;
}

/* Spins, then yields, then sleeps in slices of CT_SLICE_MS, because the death of a peer rings no
 * bell. */
int ct_segment_wait(struct ct_segment *segment, const struct ct_wait *wait,
                    struct ctrun_error *err)
{
    struct ct_shm_member *self = segment->members ? &segment->members[segment->me]
                                                  : NULL;
    bool has_slept = false;
    int rc = 0;

    if (wait_awake(segment, wait))
        return 0;
    while (rc == 0) {
        uint32_t bell = self ? atomic_load(&self->bell) : 0;
        if (self)
            atomic_fetch_or(&self->sleepers, CT_SLEEPER_CALL);
        if (wait->is_met(segment, wait))
            break;
        if (self && has_slept)
            show_wait(segment, wait);
        has_slept = true;
        if ((rc = look_around(segment, wait, err)) == 0) {
            sleep_a_slice(segment, wait, bell);
        } else if (wait->is_met(segment, wait)) {
            rc = 0; /* a peer that finished this call may have failed in its next */
            break;
        }
    }
    if (self) {
        atomic_fetch_and(&self->sleepers, ~(uint32_t)CT_SLEEPER_CALL);
        if (rc ==
            0) /* else the group has failed, and the others may reach their deadlines, too */
            atomic_store(&self->waits_in, 0);
    }
    return rc;
}

/* The bell is read first, as in ct_segment_wait(). */
uint32_t ct_segment_arm(struct ct_segment *segment)
{
    struct ct_shm_member *self = &segment->members[segment->me];
    const uint32_t bell = atomic_load(&self->bell);

    segment->helper = pthread_self();
    segment->has_helper = true;
    atomic_fetch_or(&self->sleepers, CT_SLEEPER_HELPER);
    return bell;
}

void ct_segment_rest(struct ct_segment *segment, uint32_t bell, bool sleeps)
{
    struct ct_shm_member *self = &segment->members[segment->me];

    if (sleeps)
        (void)futex_wait(&self->bell, bell, CT_SLICE_MS);
    atomic_fetch_and(&self->sleepers, ~(uint32_t)CT_SLEEPER_HELPER);
}

static bool all_posted(const struct ct_segment *segment, uint64_t number)
{
    for (int i = 0; i < segment->size; i++)
        if (atomic_load(&ct_segment_get_post(segment, i, number)->number) < number)
            return false;
    return true;
}

/* Only the last member to post wakes the others: a wake-up for each post would need size squared of
 * them. */
void ct_segment_post(struct ct_segment *segment, uint64_t number)
{
    atomic_store(&ct_segment_get_post(segment, segment->me, number)->number, number);
    if (!all_posted(segment, number))
        return; /* the last member wakes the others */
    for (int i = 0; i < segment->size; i++)
        ct_segment_wake(segment, i);
}

const struct ct_post *ct_segment_find_next_post(const struct ct_segment *segment,
                                                int member)
{
    const struct ct_post *own = segment->members[segment->me].post;
    const uint64_t a = atomic_load(&own[0].number), b = atomic_load(&own[1].number);
    const uint64_t next = (a > b ? a : b) + 1;
    const struct ct_post *post = ct_segment_get_post(segment, member, next);

    return atomic_load(&post->number) == next ? post : NULL;
}

static bool posts_are_there(const struct ct_segment *segment,
                            const struct ct_wait *wait)
{
    return all_posted(segment, wait->number);
}

static bool has_not_posted(const struct ct_segment *segment, const struct ct_wait *wait,
                           int member)
{
    return atomic_load(&ct_segment_get_post(segment, member, wait->number)->number) <
           wait->number;
}

struct ct_wait ct_segment_posts_wait(uint64_t number, const struct ct_call *call)
{
    return (struct ct_wait){.is_met = posts_are_there,
                            .is_awaited = has_not_posted,
                            .number = number,
                            .call = call,
                            .deadline_ms = call->deadline_ms};
}
