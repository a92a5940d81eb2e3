/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the C frames of a rank's first thread are of a library in which it waits for others. */
#include "agent/watch/stack_text.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

static const char text[] =
    "rank 1 has completed gloo:all_reduce 5 of default_pg, called 3.3 s ago\n"
    "rank 1: pid 4711, Python 3.11, sleeping\n"
    "  thread 4711, sleeping\n"
    "    in __poll (libc.so.6)\n"
    "    cuda (/home/me/train.py:3)\n"
    "  2 threads, 4712 4713, sleeping\n"
    "    in gloo::transport::tcp::Loop::run() (libtorch_cpu.so)\n"
    "rank 11: pid 4811, Python 3.11, sleeping\n"
    "  thread 4811, sleeping\n"
    "    in pthread_cond_wait (libc.so.6)\n"
    "    in c10d::Work::wait() (libtorch_cpu.so)\n"
    "    <module> (/home/me/train.py:9)\n"
    "rank 2: pid 4911, Python 3.11, sleeping\n"
    "  thread 4911, sleeping\n"
    "    load (/home/me/train.py:3)\n"
    "  no C frames: Operation not permitted\n"
    "rank 3: no time was left to read it\n"
    "rank 4: pid 5011, Python 3.11, sleeping\n"
    "  thread 5011, sleeping\n"
    "    in __sched_yield (libc.so.6)\n"
    "    in cuStreamSynchronize (libcuda.so.1)\n"
    "rank 6: pid 5111, Python 3.11, sleeping\n"
    "  thread 5111, sleeping\n"
    "    in __poll (libc.so.6)\n"
    "    in c10d::TCPStore::get(std::string) (libtorch_cpu.so)\n";

static enum stack_text judge(int rank)
{
    return stack_text_judge(text, strlen(text), rank);
}

TEST(only_c_frames_of_the_first_thread_count)
{
    assert_int_equal(judge(1), STACK_TEXT_FREE);
}

TEST(a_rank_that_waits_in_c_is_seen)
{
    assert_int_equal(judge(11), STACK_TEXT_WAITS);
}

TEST(a_call_of_the_store_is_no_collective)
{
    assert_int_equal(judge(6), STACK_TEXT_FREE);
}

/* The kernels may be those of a collective, or of the rank itself. */
TEST(what_a_rank_that_waits_for_its_gpu_does_is_not_known)
{
    assert_int_equal(judge(4), STACK_TEXT_UNKNOWN);
}

TEST(what_has_no_c_frame_is_not_known)
{
    assert_int_equal(judge(2), STACK_TEXT_UNKNOWN);
    assert_int_equal(judge(3), STACK_TEXT_UNKNOWN);
    assert_int_equal(judge(5), STACK_TEXT_UNKNOWN);
    assert_int_equal(stack_text_judge("", 0, 0), STACK_TEXT_UNKNOWN);
}

TEST(a_text_may_end_anywhere)
{
    for (size_t length = 0; length < strlen(text); length++) {
        char *part = malloc(length + 1);

        assert_non_null(part);
        memcpy(part + 1, text, length);
        (void)stack_text_judge(part + 1, length, 4); /* the sanitizer looks */
        free(part);
    }
}
