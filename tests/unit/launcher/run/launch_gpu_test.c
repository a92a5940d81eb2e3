/* SPDX-License-Identifier: Apache-2.0 */
/* What is done about GPUs before the first workers start. */
#include "launcher/run/launch_private.h"

#include <string.h>
#include <unistd.h>

#include "launcher/hardware/own_gpu.h"
#include "tests/lib/test.h"

static bool has_driver;
static int looks; /* at the GPUs of this machine */

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
void __wrap_own_gpu_look(void);

int __wrap_access(const char *path, int mode)
{
    if (strcmp(path, "/proc/driver/nvidia") == 0)
        return has_driver ? 0 : -1;
    return __real_access(path, mode);
}

void __wrap_own_gpu_look(void)
{
    looks++;
}

static void begin(bool has)
{
    static const struct config config;
    static struct launch launch;

    has_driver = has;
    launch = (struct launch){.config = &config};
    launch_begin_gpu(&launch);
    launch_end_gpu(&launch);
}

/* One that falls off its bus later is known as this run's, or as another's. */
TEST(the_gpus_of_this_machine_are_read_before_the_first_start)
{
    begin(true);
    assert_int_equal(looks, 1);
}

TEST(without_nvidias_driver_nothing_is_read)
{
    looks = 0;
    begin(false);
    assert_int_equal(looks, 0);
}
