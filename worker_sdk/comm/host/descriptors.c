/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

enum {
    MESH_DESCRIPTORS = 3 /* epoll and wake of the mesh, bell of the exchange */
};

/* How many of `count` more files this process may open. */
static int count_descriptors(int count, rlim_t limit)
{
    int found = 0;

    for (int fd = 0; found < count && (rlim_t)fd < limit; fd++)
        found += fcntl(fd, F_GETFD) < 0;
    return found;
}

/* Members on this node, who may share memory with this one. */
static int count_near(const struct ct_backend_setup *setup)
{
    const struct ct_group_place *place = setup->place;
    int near = 0;

    if (place->host_id || place->local_count == 0)
        return setup->size; /* not known yet */
    for (int i = 0; i < setup->size; i++)
        near += setup->ranks[i] >= place->local_first &&
                setup->ranks[i] < place->local_first + place->local_count;
    return near;
}

int ct_descriptors_check(const struct ct_peer *self,
                         const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const int others = setup->size - 1;
    const int near = ct_peer_is_alone(self) ? 1 : count_near(setup);
    const int tcp = near < setup->size ? 2 * others + MESH_DESCRIPTORS : 1;
    const int count = near - 1 + tcp;
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    int found;

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    if ((found = count_descriptors(count, limit.rlim_cur)) == count)
        return 0;
    return ct_fail(
        err, -EMFILE,
        "open group: a group of %d members needs %d more descriptors, %d are "
        "free of the limit %llu: raise it (ulimit -n)",
        setup->size, count, found, (unsigned long long)limit.rlim_cur);
}
