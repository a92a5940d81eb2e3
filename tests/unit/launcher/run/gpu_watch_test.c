/* SPDX-License-Identifier: Apache-2.0 */
/* With a driver's library of ours (tests/lib/fake_nvml.c), which the dynamic linker finds under the
 * driver's name. */
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "launcher/hardware/gpus.h"
#include "launcher/run/gpu_watch.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

enum {
    MANY_MS = 60000
};

static char hot[] = "/tmp/ctrun-hot-XXXXXX";

/* Renames a complete file, so that a concurrent read never gets a part of it. */
static void set_xid(int xid)
{
    char path[sizeof hot + 4];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s.new", hot);
    assert_non_null(file = fopen(path, "we"));
    (void)fprintf(file, "%d", xid);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(path, hot), 0);
}

static bool has_driver(void)
{
    struct gpus gpus;

    gpus_read(&gpus, "/proc/driver/nvidia", "/dev");
    return gpus.count > 0;
}

/* Looks until the first GPU is reported. */
static void look(struct gpu_watch *watch, struct rank_gpu *out, int count)
{
    const uint64_t until_ms = ct_deadline_ms(MANY_MS);

    do {
        gpu_watch_look(watch, out, count);
        (void)sched_yield();
    } while (out[0].mhz == 0 && ct_left_ms(until_ms) > 0);
    assert_true(out[0].mhz > 0);
}

TEST(where_no_gpu_is_visible_the_driver_is_left_alone)
{
    struct gpu_watch *watch = gpu_watch_create("", 0);
    struct rank_gpu gpus[2] = {{.mhz = 1}};

    assert_non_null(watch);
    for (int i = 0; i < 100; i++) {
        gpu_watch_look(watch, gpus, 2);
        assert_true(gpus[0].mhz == 0 && gpus[0].xid == 0);
        (void)sched_yield();
    }
    gpu_watch_destroy(watch);
    gpu_watch_look(NULL, gpus, 2);
    assert_true(gpus[1].mhz == 0);
    gpu_watch_destroy(NULL);
    assert_null(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD));
}

TEST(clocks_their_reasons_and_errors_are_told_of_each_gpu)
{
    struct gpu_watch *watch = gpu_watch_create(NULL, 0);
    struct rank_gpu gpus[3];

    if (has_driver())
        skip();
    set_xid(63);
    look(watch, gpus, 3);
    assert_true(gpus[0].mhz == 1980 && gpus[0].max_mhz == 1980);
    assert_int_equal(gpus[0].slow, 0);
    assert_int_equal(gpus[0].xid, RANK_GPU_NO_XID);
    assert_true(gpus[1].mhz == 1200 && gpus[1].max_mhz == 1980);
    assert_int_equal(gpus[1].slow, 0x40);
    assert_int_equal(gpus[1].xid, 63);
    assert_true(gpus[2].mhz == 0); /* this worker has no GPU of its own */
    look(watch, gpus, 2);
    assert_int_equal(gpus[1].xid, 63); /* an error stays */
    gpu_watch_destroy(watch);

    watch = gpu_watch_create("1,0", 1); /* another task has the first one */
    look(watch, gpus, 2);
    assert_true(gpus[0].mhz == 1980 && gpus[1].mhz == 0);
    gpu_watch_destroy(watch);

    watch = gpu_watch_create("1", 1); /* each task sees only its own */
    look(watch, gpus, 1);
    assert_true(gpus[0].mhz == 1200);
    gpu_watch_destroy(watch);
}

TEST(errors_of_which_the_driver_does_not_tell_are_not_known)
{
    struct gpu_watch *watch = gpu_watch_create(NULL, 0);
    struct rank_gpu gpus[2];

    if (has_driver())
        skip();
    set_xid(0);
    look(watch, gpus, 2);
    assert_true(gpus[0].xid == 0 && gpus[1].xid == 0 && gpus[1].mhz == 1200);
    gpu_watch_destroy(watch);
}

TEST(an_error_is_still_told_when_the_driver_tells_of_no_more)
{
    struct gpu_watch *watch = gpu_watch_create(NULL, 0);
    struct rank_gpu gpus[2];

    if (has_driver())
        skip();
    set_xid(79); /* "GPU has fallen off the bus" */
    look(watch, gpus, 2);
    assert_true(gpus[0].xid == 0 && gpus[1].xid == 79);
    gpu_watch_destroy(watch);
}

/* Its thread and the memory that it uses are not freed. */
TEST(a_driver_that_hangs_is_not_waited_for)
{
    struct gpu_watch *watch = gpu_watch_create(NULL, 0);
    struct rank_gpu gpus[2];

    if (has_driver())
        skip();
    set_xid(-2);
    for (int i = 0; i < 100; i++) {
        gpu_watch_look(watch, gpus, 2);
        assert_true(gpus[0].mhz == 0);
        (void)sched_yield();
    }
    gpu_watch_destroy(watch);
}

int main(void)
{
    const int fd = mkstemp(hot);
    int rc;

    if (fd < 0 || close(fd) < 0 || setenv("FAKE_NVML_HOT", hot, 1) < 0)
        return 1;
    rc = test_run(NULL, NULL);
    (void)unlink(hot);
    return rc;
}
