/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/straggler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

enum {
    PART_OF_LONG = 4, /* a wait is long if it is at least this part of the usual one */
    DROP_PARTS = 16, /* so many of the longest waits may be unusual ones: checkpoints */
    PAIRS_MAX = 256  /* kinds of calls that follow one another */
};

struct given {
    int count, capacity;
    struct straggler_call *calls;
};

/* The time from one point at which all have waited for all to the next. */
struct wait {
    int call;    /* index of the last joined call before all waited */
    double ns;   /* time since the previous point */
    bool is_new; /* the previous calls are not known: ns is not valid */
};

struct straggler {
    int ranks;
    struct given *given; /* of each rank */

    /* The group that is compared: member i is rank members[i]. */
    uint64_t group;
    int *members;
    int member_count; /* 0: no group */
    int64_t last;     /* number of the last call that is part of a step */
    uint64_t last_ns; /* when the last rank entered it; 0: no step yet */

    /* The last steps, a ring. */
    int step_count, next;
    double *arrivals; /* [LATENESS_STEPS * member_count] */
    double step_ns[LATENESS_STEPS];
    double *late_ns; /* [member_count], of the last straggler_find() */
    double *step;    /* [member_count], sums of the unfinished step */
};

/* Calls that all members have made. */
struct joined {
    int count;
    int64_t *numbers;
    uint64_t *shapes;
    uint64_t *first, *last; /* when the first and the last rank entered */
    uint64_t *entered;      /* [call * member_count + member] */
};

struct straggler *straggler_create(int ranks)
{
    struct straggler *straggler = ct_zalloc(sizeof *straggler);

    if (!straggler)
        return NULL;
    straggler->ranks = ranks;
    straggler->given = ct_zalloc_array((size_t)ranks, sizeof *straggler->given);
    straggler->members = ct_zalloc_array((size_t)ranks, sizeof *straggler->members);
    straggler->late_ns = ct_zalloc_array((size_t)ranks, sizeof *straggler->late_ns);
    straggler->step = ct_zalloc_array((size_t)ranks, sizeof *straggler->step);
    straggler->arrivals = ct_zalloc_array((size_t)ranks * LATENESS_STEPS,
                                          sizeof *straggler->arrivals);
    if (straggler->given && straggler->members && straggler->late_ns &&
        straggler->step && straggler->arrivals)
        return straggler;
    straggler_destroy(straggler);
    return NULL;
}

void straggler_destroy(struct straggler *straggler)
{
    if (!straggler)
        return;
    for (int i = 0; straggler->given && i < straggler->ranks; i++)
        free(straggler->given[i].calls);
    free(straggler->given);
    free(straggler->members);
    free(straggler->late_ns);
    free(straggler->step);
    free(straggler->arrivals);
    free(straggler);
}

void straggler_forget(struct straggler *straggler)
{
    for (int i = 0; i < straggler->ranks; i++)
        straggler->given[i].count = 0;
    straggler->member_count = straggler->step_count = straggler->next = 0;
    straggler->last = 0;
    straggler->last_ns = 0;
}

int straggler_give(struct straggler *straggler, int index,
                   const struct straggler_call *calls, int count)
{
    struct given *to = &straggler->given[index];

    if (count > STRAGGLER_CALLS_MAX) {
        calls += count - STRAGGLER_CALLS_MAX;
        count = STRAGGLER_CALLS_MAX;
    }
    to->count = 0;
    if (count > to->capacity) {
        struct straggler_call *grown = ct_realloc_array(to->calls, (size_t)count,
                                                        sizeof *grown);

        if (!grown)
            return -ENOMEM;
        to->calls = grown;
        to->capacity = count;
    }
    if (count > 0)
        memcpy(to->calls, calls, (size_t)count * sizeof *calls);
    to->count = count;
    return 0;
}

/* ---- The group --------------------------------------------------------------------------- */

struct tally {
    uint64_t group;
    int ranks, calls, last_rank;
};

static void count_call(struct tally list[STRAGGLER_GROUPS_MAX], int *count, int rank,
                       uint64_t group)
{
    int i = 0;

    while (i < *count && list[i].group != group)
        i++;
    if (i == STRAGGLER_GROUPS_MAX)
        return;
    if (i == *count)
        list[(*count)++] = (struct tally){.group = group, .last_rank = -1};
    list[i].calls++;
    list[i].ranks += list[i].last_rank != rank;
    list[i].last_rank = rank;
}

/* The group with the most ranks, and among equals with the most calls. False: no two ranks are in
 * one group. */
static bool choose_group(const struct straggler *straggler, uint64_t *group)
{
    struct tally list[STRAGGLER_GROUPS_MAX];
    int count = 0, best = 0;

    for (int r = 0; r < straggler->ranks; r++)
        for (int i = 0; i < straggler->given[r].count; i++)
            count_call(list, &count, r, straggler->given[r].calls[i].group);
    for (int i = 1; i < count; i++)
        if (list[i].ranks > list[best].ranks ||
            (list[i].ranks == list[best].ranks && list[i].calls > list[best].calls))
            best = i;
    if (count == 0 || list[best].ranks < 2)
        return false;
    *group = list[best].group;
    return true;
}

static bool has_call(const struct given *given, uint64_t group)
{
    for (int i = 0; i < given->count; i++)
        if (given->calls[i].group == group)
            return true;
    return false;
}

/* Drops the steps if the ranks or the group have changed. */
static void set_group(struct straggler *straggler, uint64_t group)
{
    bool is_same = straggler->member_count > 0 && straggler->group == group;
    int count = 0;

    for (int r = 0; r < straggler->ranks; r++)
        if (has_call(&straggler->given[r], group)) {
            is_same &= count < straggler->member_count &&
                       straggler->members[count] == r;
            straggler->members[count++] = r;
        }
    if (!is_same || count != straggler->member_count) {
        straggler->step_count = straggler->next = 0;
        straggler->last = 0;
        straggler->last_ns = 0;
    }
    straggler->group = group;
    straggler->member_count = count;
}

/* ---- Calls ------------------------------------------------------------------------------- */

static void free_joined(struct joined *joined)
{
    free(joined->numbers);
    free(joined->shapes);
    free(joined->first);
    free(joined->last);
    free(joined->entered);
}

/* The rank's call of that number, from index *at on; NULL: it has none. */
static const struct straggler_call *find_call(const struct given *given, int *at,
                                              uint64_t group, int64_t number)
{
    while (*at < given->count &&
           (given->calls[*at].group != group || given->calls[*at].number < number))
        ++*at;
    return *at < given->count && given->calls[*at].number == number ? &given->calls[*at]
                                                                    : NULL;
}

/* True when all members have entered it; then it is call number joined->count. */
static bool join_one(const struct straggler *straggler, struct joined *joined, int *at,
                     int64_t number)
{
    const int n = joined->count;
    uint64_t *entered = joined->entered + (size_t)n * (size_t)straggler->member_count;
    bool has_all = true;

    joined->first[n] = UINT64_MAX;
    joined->last[n] = 0;
    for (int m = 0; m < straggler->member_count; m++) {
        const struct straggler_call *call = find_call(
            &straggler->given[straggler->members[m]], &at[m], straggler->group, number);

        has_all &= call != NULL;
        if (!call)
            continue;
        entered[m] = call->entered_ns;
        if (call->entered_ns < joined->first[n])
            joined->first[n] = call->entered_ns;
        if (call->entered_ns > joined->last[n])
            joined->last[n] = call->entered_ns;
    }
    joined->numbers[n] = number;
    return has_all;
}

static int join(const struct straggler *straggler, struct joined *joined)
{
    const struct given *one = &straggler->given[straggler->members[0]];
    const size_t most = (size_t)one->count;
    int *at = ct_zalloc_array((size_t)straggler->member_count, sizeof *at);
    int64_t last = straggler->last;

    *joined = (struct joined){
        .numbers = ct_zalloc_array(most, sizeof *joined->numbers),
        .shapes = ct_zalloc_array(most, sizeof *joined->shapes),
        .first = ct_zalloc_array(most, sizeof *joined->first),
        .last = ct_zalloc_array(most, sizeof *joined->last),
        .entered = ct_zalloc_array(most * (size_t)straggler->member_count,
                                   sizeof *joined->entered)};
    if (!at || !joined->numbers || !joined->shapes || !joined->first || !joined->last ||
        !joined->entered) {
        free(at);
        free_joined(joined);
        return -ENOMEM;
    }
    for (int i = 0; i < one->count; i++) {
        const struct straggler_call *call = &one->calls[i];

        if (call->group != straggler->group || call->number <= last)
            continue;
        last = call->number;
        joined->shapes[joined->count] = call->shape;
        joined->count += join_one(straggler, joined, at, last);
    }
    free(at);
    return 0;
}

/* ---- Waits ------------------------------------------------------------------------------- */

/* A call of one shape, followed by a call of another: how much of the ranks' lateness at the first
 * call is also their lateness at the second. */
struct pair {
    uint64_t first, second; /* shapes */
    double both, one; /* sums over ranks and occurrences: of products, of squares */
};

struct pairs {
    int count;
    struct pair list[PAIRS_MAX];
};

static struct pair *find_pair(struct pairs *pairs, uint64_t first, uint64_t second)
{
    int i = 0;

    while (i < pairs->count &&
           (pairs->list[i].first != first || pairs->list[i].second != second))
        i++;
    if (i == PAIRS_MAX)
        return NULL;
    if (i == pairs->count)
        pairs->list[pairs->count++] = (struct pair){.first = first, .second = second};
    return &pairs->list[i];
}

/* How late member m is at a call, relative to its own mean and to that of all at this call. */
static double deviation(const struct joined *joined, const double *means, double middle,
                        int members, int call, int m)
{
    return (double)(joined->entered[(size_t)call * (size_t)members + (size_t)m] -
                    joined->first[call]) -
           means[m] - middle;
}

static double find_middle(const struct joined *joined, const double *means, int members,
                          int call)
{
    double sum = 0;

    for (int m = 0; m < members; m++)
        sum += deviation(joined, means, 0, members, call, m);
    return sum / members;
}

static void add_pair(struct pair *pair, const struct joined *joined,
                     const double *means, int members, int call)
{
    const double before = find_middle(joined, means, members, call);
    const double after = find_middle(joined, means, members, call + 1);

    for (int m = 0; m < members; m++) {
        const double one = deviation(joined, means, before, members, call, m);

        pair->one += one * one;
        pair->both += one * deviation(joined, means, after, members, call + 1, m);
    }
}

/* `means` is a buffer with one element for each member. */
static void learn_pairs(struct pairs *pairs, const struct joined *joined, double *means,
                        int members)
{
    pairs->count = 0;
    for (int m = 0; m < members; m++) {
        means[m] = 0;
        for (int i = 0; i < joined->count; i++)
            means[m] +=
                (double)(joined->entered[(size_t)i * (size_t)members + (size_t)m] -
                         joined->first[i]) /
                joined->count;
    }
    for (int i = 0; i + 1 < joined->count; i++) {
        struct pair *pair = find_pair(pairs, joined->shapes[i], joined->shapes[i + 1]);

        if (pair)
            add_pair(pair, joined, means, members, i);
    }
}

/* True if all waited for all between this call and the next. */
static bool is_wait(struct pairs *pairs, const struct joined *joined, int call)
{
    const struct pair *pair = find_pair(pairs, joined->shapes[call],
                                        joined->shapes[call + 1]);

    return joined->first[call + 1] >= joined->last[call] &&
           (!pair || pair->both <= pair->one / 2);
}

/* Calls after the last wait are left for the next look. */
static int find_waits(const struct straggler *straggler, struct pairs *pairs,
                      const struct joined *joined, struct wait *waits)
{
    uint64_t before_ns = straggler->last_ns;
    int count = 0;

    if (joined->count > 0 && joined->numbers[0] != straggler->last + 1)
        before_ns = 0; /* so much has happened since that the old steps are dropped */
    for (int i = 0; i + 1 < joined->count; i++) {
        if (!is_wait(pairs, joined, i))
            continue;
        waits[count++] = (struct wait){.call = i,
                                       .ns = before_ns && joined->last[i] > before_ns
                                                 ? (double)(joined->last[i] - before_ns)
                                                 : 0,
                                       .is_new = before_ns == 0};
        before_ns = joined->last[i];
    }
    return count;
}

/* ---- Steps ------------------------------------------------------------------------------- */

/* How long a wait must be to end a step: half of all the time is spent in waits that are four times
 * as long at least. A wait that is longer than all the others together is unusual. -1: no
 * memory. */
static double find_long(const struct wait *waits, int count)
{
    double *list = ct_zalloc_array((size_t)count, sizeof *list);
    double all = 0, sum = 0;
    int most = count, i;

    if (!list)
        return -1;
    for (i = 0; i < count; i++)
        all += list[i] = waits[i].ns;
    qsort(list, (size_t)count, sizeof *list, lateness_compare);
    while (most > 1 && count - most < 1 + count / DROP_PARTS &&
           list[most - 1] > all - list[most - 1])
        all -= list[--most];
    for (i = most; i > 1 && sum + list[i - 1] < all / 2; i--)
        sum += list[i - 1];
    sum = list[i - 1] / PART_OF_LONG;
    free(list);
    return sum;
}

static void add_wait(struct straggler *straggler, const struct joined *joined, int call)
{
    const uint64_t *entered = joined->entered +
                              (size_t)call * (size_t)straggler->member_count;

    for (int m = 0; m < straggler->member_count; m++)
        straggler->step[m] += (double)(entered[m] - joined->first[call]);
}

/* The lateness added up since the last call becomes a step of ns; ns 0: no step. The next step
 * begins here. */
static void end_step(struct straggler *straggler, const struct joined *joined, int call,
                     double ns)
{
    const size_t members = (size_t)straggler->member_count;

    straggler->last = joined->numbers[call];
    straggler->last_ns = joined->last[call];
    if (ns > 0) {
        memcpy(straggler->arrivals + (size_t)straggler->next * members, straggler->step,
               members * sizeof *straggler->step);
        straggler->step_ns[straggler->next] = ns;
        straggler->next = (straggler->next + 1) % LATENESS_STEPS;
        straggler->step_count += straggler->step_count < LATENESS_STEPS;
    }
    memset(straggler->step, 0, members * sizeof *straggler->step);
}

/* Calls after the last long wait are left for the next look. */
static int add_steps(struct straggler *straggler, const struct joined *joined,
                     const struct wait *waits, int count)
{
    const double is_long = find_long(waits, count);
    double ns = 0;
    int steps = 0;

    if (is_long < 0)
        return -ENOMEM;
    memset(straggler->step, 0,
           (size_t)straggler->member_count * sizeof *straggler->step);
    for (int i = 0; i < count; i++) {
        if (waits[i].is_new) {
            end_step(straggler, joined, waits[i].call, 0);
            continue;
        }
        add_wait(straggler, joined, waits[i].call);
        ns += waits[i].ns;
        if (waits[i].ns < is_long || ns <= 0)
            continue;
        end_step(straggler, joined, waits[i].call, ns);
        ns = 0;
        steps++;
    }
    return steps;
}

static int take_joined(struct straggler *straggler, const struct joined *joined)
{
    struct wait *waits = ct_zalloc_array((size_t)joined->count + 1, sizeof *waits);
    struct pairs *pairs = ct_zalloc(sizeof *pairs);
    int rc = -ENOMEM;

    if (waits && pairs) {
        learn_pairs(pairs, joined, straggler->step, straggler->member_count);
        rc = find_waits(straggler, pairs, joined, waits);
    }
    if (rc > 0)
        rc = add_steps(straggler, joined, waits, rc);
    free(waits);
    free(pairs);
    return rc;
}

int straggler_ranks(const struct straggler *straggler)
{
    return straggler->ranks;
}

const struct straggler_call *straggler_given(const struct straggler *straggler,
                                             int index, int *count)
{
    *count = straggler->given[index].count;
    return straggler->given[index].calls;
}

int straggler_take(struct straggler *straggler)
{
    struct joined joined;
    uint64_t group;
    int rc;

    if (!choose_group(straggler, &group))
        return 0;
    set_group(straggler, group);
    if ((rc = join(straggler, &joined)) < 0)
        return rc;
    rc = take_joined(straggler, &joined);
    free_joined(&joined);
    for (int i = 0; i < straggler->ranks; i++)
        straggler->given[i].count = 0;
    return rc;
}

/* ---- The verdict ------------------------------------------------------------------------- */

int straggler_find(struct straggler *straggler, struct lateness *out)
{
    int rc;

    if (straggler->step_count == 0)
        return 0;
    rc = lateness_find(straggler->arrivals, straggler->step_ns, straggler->step_count,
                       straggler->member_count, straggler->late_ns, out);
    if (rc >= 0)
        out->rank = straggler->members[out->rank];
    return rc;
}

bool straggler_late_ns(const struct straggler *straggler, int index, double *late_ns)
{
    for (int m = 0; m < straggler->member_count && straggler->step_count > 0; m++)
        if (straggler->members[m] == index) {
            *late_ns = straggler->late_ns[m];
            return true;
        }
    return false;
}

bool straggler_stays(const struct straggler_report *report,
                     const struct lateness *found)
{
    return report->is_set && found->rank == report->found.rank &&
           found->late_ns >= LATENESS_NS_MIN / 2.0 &&
           found->share >= LATENESS_SHARE_MIN / 2;
}
