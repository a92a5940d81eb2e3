/* SPDX-License-Identifier: Apache-2.0 */
/* Invented machines: sysfs trees in a temporary folder. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/config/placement.h"
#include "launcher/hardware/numa.h"
#include "launcher/hardware/topology.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/alloc.h"

struct machine {
    const char *nodes[4]; /* CPU lists; NULL: no such node */
    int packages[4];      /* of the nodes */
    int cpus;
    int threads_apart; /* distance of the hardware threads of a core; 0: no SMT */
    int complex_size;  /* cores that share a last-level cache */
    int gpus[8];       /* node of each GPU, -1: unknown; END ends the list */
};

enum {
    END = -9
};

/* Two sockets of two nodes, two threads a core; eight GPUs, not equally many at each node. */
static const struct machine big = {
    .nodes = {"0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"},
    .packages = {0, 0, 1, 1},
    .cpus = 32,
    .threads_apart = 16,
    .complex_size = 2,
    .gpus = {0, 2, 0, 2, 0, 3, -1, END},
};
/* One socket, no SMT, one GPU whose firmware does not report its node. */
static const struct machine small = {
    .nodes = {"0-3"}, .cpus = 4, .complex_size = 4, .gpus = {-1, END}};

static char root[64];

__attribute__((format(printf, 2, 3))) static void put(const char *text,
                                                      const char *format, ...)
{
    va_list args;
    FILE *file;

    va_start(args, format);
    file = fopen(test_place(root, format, args), "w");
    va_end(args);
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    assert_int_equal(fclose(file), 0);
}

static void put_cpu(const struct machine *machine, int cpu, int package)
{
    int cores = machine->threads_apart ? machine->threads_apart : machine->cpus;
    int core = cpu % cores;
    int first = core - core % machine->complex_size;
    int last = first + machine->complex_size - 1;
    char text[64];

    (void)snprintf(text, sizeof text, "%d", package);
    put(text, "devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    if (machine->threads_apart)
        (void)snprintf(text, sizeof text, "%d,%d", core, core + cores);
    else
        (void)snprintf(text, sizeof text, "%d", core);
    put(text, "devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    put("1", "devices/system/cpu/cpu%d/cache/index0/level", cpu);
    put("Data", "devices/system/cpu/cpu%d/cache/index0/type", cpu);
    put(text, "devices/system/cpu/cpu%d/cache/index0/shared_cpu_list", cpu);
    put("4", "devices/system/cpu/cpu%d/cache/index1/level", cpu);
    put("Instruction", "devices/system/cpu/cpu%d/cache/index1/type", cpu);
    put("3", "devices/system/cpu/cpu%d/cache/index2/level", cpu);
    put("Unified", "devices/system/cpu/cpu%d/cache/index2/type", cpu);
    if (machine->threads_apart)
        (void)snprintf(text, sizeof text, "%d-%d,%d-%d", first, last, first + cores,
                       last + cores);
    else
        (void)snprintf(text, sizeof text, "%d-%d", first, last);
    put(text, "devices/system/cpu/cpu%d/cache/index2/shared_cpu_list", cpu);
}

static void remove_root(void)
{
    assert_int_equal(test_remove_tree(root), 0);
}

/* Writes the tree, and the GPUs' addresses into gpus[]. Returns how many GPUs there are. */
static int build(const struct machine *machine, char (*gpus)[16])
{
    char text[64];
    int count = 0;

    (void)snprintf(root, sizeof root, "/tmp/numa_test.XXXXXX");
    assert_non_null(mkdtemp(root));
    for (int node = 0; node < 4 && machine->nodes[node]; node++) {
        struct cpuset cpus;

        put(machine->nodes[node], "devices/system/node/node%d/cpulist", node);
        assert_int_equal(cpuset_parse(&cpus, machine->nodes[node]), 0);
        for (int cpu = cpuset_next(&cpus, 0); cpu >= 0;
             cpu = cpuset_next(&cpus, cpu + 1))
            put_cpu(machine, cpu, machine->packages[node]);
        (void)snprintf(text, sizeof text, node ? "0-%d" : "%d", node);
        put(text, "devices/system/node/online");
    }
    for (; machine->gpus[count] != END; count++) {
        (void)snprintf(gpus[count], 16, "0000:%02x:00.0",
                       (unsigned char)(0x10 + count));
        (void)snprintf(text, sizeof text, "%d", machine->gpus[count]);
        put(text, "bus/pci/devices/%s/numa_node", gpus[count]);
    }
    return count;
}

struct row {
    const char *allowed;
    enum numa_mode mode;
    int local_rank;
    const char *cpus; /* NULL: refused; the next member says why */
    const char *why;
};

enum {
    WORKERS = 3 /* of NUMA_CORES */
};

static void check(const struct machine *machine, const struct row *rows, size_t count)
{
    char gpus[8][16];
    int gpu_count = build(machine, gpus);

    for (size_t i = 0; i < count; i++) {
        struct ctrun_error err = {0};
        struct cpuset allowed;
        struct cpuset cpus;
        char text[128];
        const struct numa_machine here = {.sysfs = root,
                                          .allowed = &allowed,
                                          .gpus = (const char(*)[16])gpus,
                                          .gpu_count = gpu_count,
                                          .workers = WORKERS};
        int rc;

        assert_int_equal(cpuset_parse(&allowed, rows[i].allowed), 0);
        rc = numa_cpus(&cpus, &here, rows[i].mode, rows[i].local_rank, &err);
        if (!rows[i].cpus) {
            assert_true(rc < 0);
            if (!strstr(err.text, rows[i].why))
                fail_msg("row %zu: '%s' is not in '%s'", i, rows[i].why, err.text);
            continue;
        }
        if (rc < 0)
            fail_msg("row %zu: %s", i, err.text);
        cpuset_format(&cpus, text, sizeof text);
        if (strcmp(text, rows[i].cpus) != 0)
            fail_msg("row %zu: %s, not %s", i, text, rows[i].cpus);
    }
    remove_root();
}

/* 16 cores of two threads each, i and i + 16, four a node: 0-3, 4-7, 8-11, 12-15. */
TEST(cores_are_shared_by_all_workers_node_after_node)
{
    static const struct row rows[] = {
        {"0-31", NUMA_CORES, 0, "0-5,16-21", NULL},
        {"0-31", NUMA_CORES, 1, "6-10,22-26", NULL},
        {"0-31", NUMA_CORES, 2, "11-15,27-31", NULL},
        {"2,9,20,25", NUMA_CORES, 0, "2", NULL},
        {"2,9,20,25", NUMA_CORES, 1, "20", NULL},
        {"2,9,20,25", NUMA_CORES, 2, "9,25", NULL},
        {"0,1,16", NUMA_CORES, 0, NULL, "2 usable cores for 3 workers"},
    };

    check(&big, rows, sizeof rows / sizeof *rows);
}

TEST(node_is_the_gpus_node_within_what_is_allowed)
{
    static const struct row rows[] = {
        {"0-31", NUMA_NODE, 0, "0-3,16-19", NULL},
        {"0-31", NUMA_NODE, 1, "8-11,24-27", NULL},
        {"0-31", NUMA_NODE, 5, "12-15,28-31", NULL},
        {"0-31", NUMA_NODE, 6, "0-3,16-19", NULL}, /* no node reported: 0 */
        {"1-9", NUMA_NODE, 0, "1-3", NULL},
        {"0-7", NUMA_NODE, 1, NULL, "bound to 0-7"},
        {"0-31", NUMA_NODE, 7, NULL, "worker 7 has no accelerator"},
    };

    check(&big, rows, sizeof rows / sizeof *rows);
}

TEST(socket_takes_all_nodes_of_the_socket)
{
    static const struct row rows[] = {
        {"0-31", NUMA_SOCKET, 0, "0-7,16-23", NULL},
        {"0-31", NUMA_SOCKET, 5, "8-15,24-31", NULL},
        {"2-5,30", NUMA_SOCKET, 0, "2-5", NULL},
    };

    check(&big, rows, sizeof rows / sizeof *rows);
}

TEST(exclusive_splits_cores_and_keeps_their_threads_together)
{
    static const struct row rows[] = {
        /* Four cores of node 0 for its four GPUs (0, 2, 4, 6). */
        {"0-31", NUMA_EXCLUSIVE, 0, "0,16", NULL},
        {"0-31", NUMA_EXCLUSIVE, 2, "1,17", NULL},
        {"0-31", NUMA_EXCLUSIVE, 6, "3,19", NULL},
        /* Three cores of node 2 for two GPUs: the first gets one more. */
        {"8-10,24-26", NUMA_EXCLUSIVE, 1, "8-9,24-25", NULL},
        {"8-10,24-26", NUMA_EXCLUSIVE, 3, "10,26", NULL},
        /* A mask that has only some threads of a core. */
        {"8-11", NUMA_EXCLUSIVE, 3, "10-11", NULL},
        {"0-31", NUMA_EXCLUSIVE, 5, "12-15,28-31", NULL},
        {"0-2", NUMA_EXCLUSIVE, 0, NULL, "3 usable cores for 4 GPUs"},
    };

    check(&big, rows, sizeof rows / sizeof *rows);
}

TEST(core_complexes_take_turns_larger_ones_first)
{
    static const struct row rows[] = {
        {"0-31", NUMA_CORE_COMPLEX, 0, "0-1,16-17", NULL},
        {"0-31", NUMA_CORE_COMPLEX, 2, "2-3,18-19", NULL},
        {"0-31", NUMA_CORE_COMPLEX, 4, "0-1,16-17", NULL},
        {"0,2-3,16-19", NUMA_CORE_COMPLEX, 0, "2-3,18-19", NULL},
        {"0,2-3,16-19", NUMA_CORE_COMPLEX, 2, "0,16-17", NULL},
    };

    check(&big, rows, sizeof rows / sizeof *rows);
}

TEST(a_plain_machine_has_one_node)
{
    static const struct row rows[] = {
        {"0-3", NUMA_NODE, 0, "0-3", NULL},
        {"1-2", NUMA_SOCKET, 0, "1-2", NULL},
        {"0-3", NUMA_EXCLUSIVE, 0, "0-3", NULL},
        {"0-3", NUMA_CORE_COMPLEX, 0, "0-3", NULL},
        {"1", NUMA_NONE, 0, "1", NULL},
    };

    check(&small, rows, sizeof rows / sizeof *rows);
}

TEST(cores_are_counted_not_threads)
{
    static const struct {
        const char *cpus;
        int cores;
    } rows[] = {{"0-31", 16}, {"0,16", 1}, {"0-1,16", 2}, {"", 0}, {"100", 1}};
    char gpus[8][16];

    (void)build(&big, gpus);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cpuset cpus;

        assert_int_equal(cpuset_parse(&cpus, rows[i].cpus), 0);
        assert_int_equal(topology_count_cores(root, &cpus), rows[i].cores);
    }
    remove_root();
}

TEST(a_tree_that_lacks_files_is_told_not_guessed)
{
    char gpus[8][16];
    struct cpuset cpus;
    struct cpuset allowed;
    struct ctrun_error err;
    const struct numa_machine here = {.sysfs = root,
                                      .allowed = &allowed,
                                      .gpus = (const char(*)[16])gpus,
                                      .gpu_count = 1};

    (void)build(&small, gpus);
    assert_int_equal(cpuset_parse(&allowed, "0-3"), 0);
    put("rubbish", "devices/system/node/node0/cpulist");
    assert_int_equal(numa_cpus(&cpus, &here, NUMA_NODE, 0, &err), -EINVAL);
    (void)snprintf(gpus[0], sizeof gpus[0], "0000:99:00.0");
    assert_int_equal(numa_cpus(&cpus, &here, NUMA_NODE, 0, &err), -ENOENT);
    assert_non_null(strstr(err.text, "0000:99:00.0"));
    remove_root();
}

TEST(every_worker_is_given_its_own_cpus)
{
    static const char *const expected[] = {"0,16", "8-9,24-25", "1,17"};
    struct placement placement = {.mode = NUMA_EXCLUSIVE, .raises_files = true};
    struct ctrun_error err = {0};
    struct cpuset allowed;
    char gpus[8][16];
    char text[64];
    struct numa_machine here = {.sysfs = root,
                                .allowed = &allowed,
                                .gpus = (const char(*)[16])gpus,
                                .gpu_count = build(&big, gpus)};

    assert_int_equal(cpuset_parse(&allowed, "0-31"), 0);
    assert_int_equal(placement_bind_all(&placement, &here, 3, &err), 0);
    for (int i = 0; i < 3; i++) {
        struct bind bind;

        placement_bind(&bind, &placement, i);
        assert_true(bind.has_cpus && bind.raises_files && !bind.raises_core);
        cpuset_format(&bind.cpus, text, sizeof text);
        assert_string_equal(text, expected[i]);
        assert_string_equal(placement.gpus[i], gpus[i]);
    }
    placement_deinit(&placement);
    /* For seven GPUs. */
    assert_true(placement_bind_all(&placement, &here, 8, &err) < 0);
    placement_deinit(&placement);
    remove_root();
}

TEST(no_memory_is_told_and_nobody_is_bound)
{
    struct cpuset allowed;
    char gpus[8][16];
    struct numa_machine here = {.sysfs = root,
                                .allowed = &allowed,
                                .gpus = (const char(*)[16])gpus,
                                .gpu_count = build(&big, gpus)};
    int rc = -ENOMEM;

    assert_int_equal(cpuset_parse(&allowed, "0-31"), 0);
    for (size_t n = 1; rc == -ENOMEM; n++) {
        struct placement placement = {.mode = NUMA_CORE_COMPLEX};
        struct ctrun_error err = {0};

        ct_alloc_fail_at(n);
        rc = placement_bind_all(&placement, &here, 2, &err);
        assert_true(rc == 0 || (rc == -ENOMEM && strstr(err.text, "memory")));
        placement_deinit(&placement);
    }
    ct_alloc_fail_at(0);
    assert_int_equal(rc, 0);
    remove_root();
}
