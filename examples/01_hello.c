/* SPDX-License-Identifier: Apache-2.0 */
/* Who am I? The smallest worker: it opens the session, prints its rank, and ends.
 *
 *     cc 01_hello.c -o hello $(pkg-config --cflags --libs ctrun)
 *     ctrun --standalone --nproc-per-node=2 ./hello
 *
 * Where ctrun is installed under another prefix than /usr: PKG_CONFIG_PATH=PREFIX/lib/pkgconfig for
 * the first line, LD_LIBRARY_PATH=PREFIX/lib for the second. Built here: build/release/examples. */
#include <ctrun.h>
#include <stdio.h>

int main(void)
{
    struct ctrun_session *session;
    struct ctrun_error err;

    if (ctrun_open(&session, NULL, &err) < 0)
        return ctrun_fail_worker(&err); /* the launcher shows the reason */
    printf("hello from rank %d of %d (local %d of %d, node %d, restart %d)\n",
           ctrun_rank(session), ctrun_world_size(session), ctrun_local_rank(session),
           ctrun_local_world_size(session), ctrun_node_rank(session),
           ctrun_restart_count(session));
    ctrun_close(session);
    return 0;
}
