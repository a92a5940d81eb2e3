/* SPDX-License-Identifier: Apache-2.0 */
/* With a library of ours, which the dynamic linker finds under the driver's name. On a machine with
 * GPUs the driver's own entries are read instead. */
#include "launcher/hardware/nvml.h"

#include <errno.h>
#include <stdlib.h>

#include "launcher/doctor/doctor.h"
#include "launcher/hardware/gpu_memory.h"
#include "launcher/hardware/gpus.h"
#include "tests/lib/test.h"

TEST(gpus_are_found_in_the_order_of_the_bus)
{
    struct gpus gpus;

    gpus_read(&gpus, "/proc/driver/nvidia", "/dev");
    if (gpus.count > 0)
        skip();
    gpus_find(&gpus);
    assert_int_equal(gpus.count, 2);
    assert_string_equal(gpus.pci[0], "0000:17:00.0");
    assert_string_equal(gpus.uuid[0], "GPU-a");
    assert_string_equal(gpus.pci[1], "0000:81:00.0");
}

TEST(a_driver_from_before_mig_has_no_mig_devices)
{
    struct gpus all;
    struct gpus selected;
    struct ctrun_error err = {0};

    gpus_find(&all);
    assert_int_equal(gpus_select(&selected, &all, "MIG-1234", &err), -EINVAL);
}

TEST(a_driver_that_refuses_is_told_in_its_words)
{
    struct nvml nvml;
    char why[NVML_TEXT_MAX];
    struct doctor doctor = {0};

    assert_int_equal(setenv("FAKE_NVML_REFUSES", "1", 1), 0);
    assert_int_equal(nvml_open(&nvml, why, sizeof why), 9);
    assert_string_equal(why, "Driver Not Loaded");
    doctor_gpus(&doctor);
    assert_int_equal(doctor.list[0].level, DOCTOR_FAIL);
    assert_string_equal(doctor.list[0].value, "Driver Not Loaded");
    assert_int_equal(unsetenv("FAKE_NVML_REFUSES"), 0);
}

/* `used` MiB on each of two GPUs, and the pid that has all of the second one's; 0: none. */
static struct gpu_memory memory_of(unsigned first, unsigned second, unsigned pid)
{
    struct gpu_memory memory = {.count = 2};

    memory.list[0].used = (unsigned long long)first << 20;
    memory.list[1].gpu = 1;
    memory.list[1].used = (unsigned long long)second << 20;
    memory.list[1].holder_count = pid > 0;
    memory.list[1].holders[0].pid = pid;
    return memory;
}

TEST(memory_that_is_held_is_more_than_before_and_has_a_holder)
{
    const struct gpu_memory before = memory_of(1000, 3000, 7);
    const struct {
        struct gpu_memory now;
        int gpu; /* -1: no GPU is in use */
        unsigned pid;
    } rows[] = {
        {memory_of(1000, 3000, 7), -1, 0},
        {memory_of(500, 3000 + GPU_MEMORY_SLACK_MIB, 8), -1, 0}, /* the driver's own */
        {memory_of(1000, 3001 + GPU_MEMORY_SLACK_MIB, 8), 1, 8},
        {memory_of(1000, 9000, 7), 1, 0}, /* it was there before: not reported */
        {memory_of(9000, 4000, 8), 0, 0}, /* the GPU with the most used memory counts */
    };
    struct gpu_memory_held held;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(gpu_memory_find_held(&held, &before, &rows[i].now),
                         rows[i].gpu >= 0);
        assert_int_equal(held.pid, rows[i].pid);
        assert_true(rows[i].gpu < 0 || held.gpu == rows[i].gpu);
    }
}
