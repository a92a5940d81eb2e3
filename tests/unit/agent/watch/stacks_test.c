/* SPDX-License-Identifier: Apache-2.0 */
/* --wrap=live_stack_write: the files of the worker, which frames need, are on a file system that
 * hangs. */
#include "agent/watch/stacks.h"

#include <unistd.h>

#include "agent/watch/live_stack.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

int __wrap_live_stack_write(struct ct_buf *out, int rank, pid_t pid,
                            struct live_room *room);

static int hung[2]; /* readable when the file system is back */

int __wrap_live_stack_write(struct ct_buf *out, int rank, pid_t pid,
                            struct live_room *room)
{
    char byte;

    (void)out;
    (void)rank;
    (void)pid;
    (void)room;
    return read(hung[0], &byte, 1) == 1 ? 0 : -1;
}

static void on_done(void *context, bool is_saved)
{
    *(int *)context = is_saved;
}

/* Returns whether the file of this process was saved, and checks what is in it. */
static int save(struct stacks *stacks, const char *path)
{
    struct stacks_target *target = ct_zalloc(sizeof *target);
    char text[256], label[32];
    int saved = -1;

    assert_non_null(target);
    *target = (struct stacks_target){
        .pid = getpid(), .rank = 3, .dump = ct_strdup("dump")};
    (void)ct_copy(target->path, sizeof target->path, path);
    stacks_save(stacks, target, 1, on_done, &saved);
    if (saved == 0)
        return saved;
    assert_true(ct_small_file_read(text, sizeof text, path) > 0);
    (void)ct_format(label, sizeof label, "rank 3 pid %d\n", (int)getpid());
    assert_true(ct_starts_with(text, label));
    assert_int_equal(unlink(path), 0);
    return saved;
}

TEST(what_proc_says_is_saved_though_frames_cannot_be_read_and_through_no_link)
{
    char folder[] = "/tmp/ctrun-stacks-XXXXXX", path[64], dump[64], made[64];
    struct stacks *stacks;
    struct loop *loop;

    assert_non_null(mkdtemp(folder));
    assert_int_equal(pipe(hung), 0);
    (void)ct_format(path, sizeof path, "%s/stack.txt", folder);
    assert_int_equal(loop_create(&loop), 0);
    assert_int_equal(stacks_create(&stacks, loop), 0);
    (void)ct_format(dump, sizeof dump, "%s/flight_recorder.json", folder);
    (void)ct_format(made, sizeof made, "%s/made", folder);
    assert_int_equal(symlink("made", path), 0);
    assert_int_equal(symlink("made", dump), 0);
    assert_int_equal(save(stacks, path), 0); /* not through a link */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(save(stacks, path), 1);
    assert_int_equal(access(made, F_OK), -1);
    assert_int_equal(unlink(dump), 0);
    assert_int_equal(save(stacks, path),
                     1); /* the thread of the first one hangs still */
    assert_int_equal(write(hung[1], "", 1), 1);
    stacks_destroy(stacks);
    loop_run(loop);
    assert_int_equal(loop_destroy(loop), 0);
    assert_int_equal(unlink(dump), 0);
    assert_int_equal(rmdir(folder), 0);
}
