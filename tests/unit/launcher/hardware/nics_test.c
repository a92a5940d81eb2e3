/* SPDX-License-Identifier: Apache-2.0 */
/* Which network devices are near a GPU, on invented machines: sysfs trees in a temporary folder,
 * with the links and files that the kernel makes. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/hardware/nic_hints.h"
#include "launcher/run/dry_run.h"
#include "launcher/run/plan.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/alloc.h"

static char root[64];

/* ---- Distance ---------------------------------------------------------------------------- */

static const char gpu_path[] = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/"
                               "0000:18:00.0";

TEST(a_device_is_as_far_as_the_bridges_between)
{
    static const struct {
        const char *path;
        int node;
        enum pci_link link;
        int hops;
    } rows[] = {
        {gpu_path, 0, PCI_LINK_PIX, 0},
        /* The other function of the same slot, then another port of the same switch. */
        {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.1", 0,
         PCI_LINK_PIX, 2},
        {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", 0,
         PCI_LINK_PIX, 4},
        /* A switch behind a switch. */
        {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0/0000:1b:00.0/"
         "0000:1c:00.0",
         0, PCI_LINK_PXB, 6},
        {"pci0000:15/0000:15:02.0/0000:20:00.0", 0, PCI_LINK_PHB, 6},
        {"pci0000:30/0000:30:01.0/0000:31:00.0", 0, PCI_LINK_NODE, 8},
        {"pci0000:30/0000:30:01.0/0000:31:00.0", 1, PCI_LINK_SYS, 8},
        /* A name with the same beginning is another device. */
        {"pci0000:15/0000:15:01.00/0000:16:00.0", 0, PCI_LINK_PHB, 6},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pci_distance there = pci_path_distance(gpu_path, 0, rows[i].path,
                                                            rows[i].node);
        const struct pci_distance back = pci_path_distance(rows[i].path, rows[i].node,
                                                           gpu_path, 0);

        assert_int_equal(there.link, rows[i].link);
        assert_int_equal(there.hops, rows[i].hops);
        assert_int_equal(pci_distance_compare(there, back), 0);
    }
    assert_true(pci_distance_compare((struct pci_distance){PCI_LINK_PXB, 9},
                                     (struct pci_distance){PCI_LINK_PHB, 2}) < 0);
    assert_true(pci_distance_compare((struct pci_distance){PCI_LINK_PIX, 4},
                                     (struct pci_distance){PCI_LINK_PIX, 2}) > 0);
    assert_string_equal(pci_link_name(PCI_LINK_NODE), "NODE");
}

TEST(a_path_is_cut_out_of_a_link)
{
    static const struct {
        const char *link;
        const char *below;
        const char *path; /* NULL: not on a PCI bus */
    } rows[] = {
        {"../../devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0",
         "infiniband", "pci0000:15/0000:15:01.0/0000:18:00.0"},
        {"../../../devices/pci0000:15/0000:15:01.0", NULL, "pci0000:15/0000:15:01.0"},
        {"../../devices/platform/soc/3c00000.pcie/pci0000:00/0000:00:00.0/net/eth0",
         "net", "pci0000:00/0000:00:00.0"},
        {"../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth0", "net",
         "pci0000:00/0000:00:03.0"},
        {"../../devices/virtual/net/lo", "net", NULL},
        {"../../devices/platform/eth/net/eth0", "net", NULL},
        {"../../devices/pci0000:15/0000:15:01.0", "net", NULL},
        {"/pci0000:15/0000:15:01.0", NULL, NULL},
        {"", NULL, NULL},
    };
    char long_link[PCI_PATH_MAX + 64];
    char path[PCI_PATH_MAX];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = pci_path_of_link(path, rows[i].link, rows[i].below);

        assert_int_equal(rc, rows[i].path ? 0 : -ENOENT);
        if (rows[i].path)
            assert_string_equal(path, rows[i].path);
    }
    memset(long_link, 'x', sizeof long_link);
    memcpy(long_link, "../devices/pci", 14);
    long_link[sizeof long_link - 1] = '\0';
    assert_int_equal(pci_path_of_link(path, long_link, NULL), -ENAMETOOLONG);
    assert_string_equal(pci_path_address("pci0000:15/0000:15:01.0"), "0000:15:01.0");
    assert_string_equal(pci_path_address("pci0000:15"), "");
}

/* ---- Machines ---------------------------------------------------------------------------- */

/* The path ROOT/path; makes its folders. Static. */
__attribute__((format(printf, 1, 2))) static const char *place(const char *format, ...)
{
    const char *path;
    va_list args;

    va_start(args, format);
    path = test_place(root, format, args);
    va_end(args);
    return path;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fprintf(file, "%s\n", text);
    assert_int_equal(fclose(file), 0);
}

static void put_function(const char *pci_path, const char *node)
{
    const char *address = pci_path_address(pci_path);
    char target[512];

    put(place("devices/%s/numa_node", pci_path), node);
    (void)snprintf(target, sizeof target, "../../../devices/%s", pci_path);
    assert_int_equal(symlink(target, place("bus/pci/devices/%s", address)), 0);
}

static void put_device(const char *pci_path, const char *class, const char *name)
{
    char target[512];

    (void)place("devices/%s/%s/%s/x", pci_path, class, name);
    (void)snprintf(target, sizeof target, "../../devices/%s/%s/%s", pci_path, class,
                   name);
    assert_int_equal(symlink(target, place("class/%s/%s", class, name)), 0);
}

static void put_hca(const char *pci_path, const char *name, const char *layer,
                    const char *port_state)
{
    put_device(pci_path, "infiniband", name);
    put(place("class/infiniband/%s/ports/1/state", name), port_state);
    put(place("class/infiniband/%s/ports/1/link_layer", name), layer);
}

/* An HGX machine with eight GPUs: four root complexes a socket, each with a switch for one GPU and
 * its HCA; another HCA, for storage, at the first GPU's root; IPoIB interfaces of the HCAs;
 * Ethernet on board. The HCAs' names follow the order of another bus. */
static void build_hgx(struct gpus *gpus)
{
    static const int hca_of[] = {0, 3, 4, 5, 6, 9, 10, 11};

    *gpus = (struct gpus){.count = 8};
    for (int i = 0; i < 8; i++) {
        const int bus = 0x10 + 0x10 * i;
        const char *node = i < 4 ? "0" : "1";
        char path[128];
        char name[16];

        (void)snprintf(path, sizeof path,
                       "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:00.0/"
                       "0000:%02x:00.0",
                       bus, bus, bus + 1, bus + 2, bus + 3);
        put_function(path, node);
        memcpy(gpus->pci[i], pci_path_address(path), 13);
        (void)snprintf(path, sizeof path,
                       "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:01.0/"
                       "0000:%02x:00.0",
                       bus, bus, bus + 1, bus + 2, bus + 4);
        put_function(path, node);
        (void)snprintf(name, sizeof name, "mlx5_%d", hca_of[i]);
        put_hca(path, name, "InfiniBand", "4: ACTIVE");
        (void)snprintf(name, sizeof name, "ib%d", i);
        put_device(path, "net", name);
    }
    put_function("pci0000:10/0000:10:02.0/0000:1f:00.0", "0");
    put_hca("pci0000:10/0000:10:02.0/0000:1f:00.0", "mlx5_1", "Ethernet", "4: ACTIVE");
    put_function("pci0000:00/0000:00:1c.0/0000:02:00.0", "0");
    put_device("pci0000:00/0000:00:1c.0/0000:02:00.0", "net", "eno1");
    assert_int_equal(symlink("../../devices/virtual/net/lo", place("class/net/lo")), 0);
}

static void begin(void)
{
    (void)snprintf(root, sizeof root, "/tmp/nics_test.XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void end(void)
{
    assert_int_equal(test_remove_tree(root), 0);
}

static void check(const struct nic_hint *hint, enum pci_link link, const char *names)
{
    char text[256] = "";

    for (int i = 0; i < hint->count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s",
                       i ? " " : "", hint->near[i].name);
    assert_string_equal(text, names);
    if (hint->count)
        assert_int_equal(hint->distance.link, link);
}

/* ---- Hints ------------------------------------------------------------------------------- */

TEST(each_gpu_of_an_hgx_box_has_an_hca_of_its_own)
{
    static const char *const names[] = {"mlx5_0", "mlx5_3", "mlx5_4",  "mlx5_5",
                                        "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"};
    struct nic_hints hints = {0};
    char text[NIC_HINTS_TEXT_MAX];
    struct gpus gpus;

    begin();
    build_hgx(&gpus);
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 8), 0);
    assert_int_equal(hints.count, 8);
    for (int i = 0; i < 8; i++) {
        check(&hints.list[i], PCI_LINK_PIX, names[i]);
        assert_string_equal(hints.list[i].gpu, gpus.pci[i]);
        assert_int_equal(hints.list[i].near[0].kind, NIC_INFINIBAND);
    }
    assert_true(nic_hints_format(text, &hints));
    assert_memory_equal(
        text, "NCCL_IB_HCA: worker 0 mlx5_0 (PIX), worker 1 mlx5_3 (PIX), ", 59);
    hints.list[0].count = 0; /* the bus of its GPU is not known */
    assert_true(nic_hints_format(text, &hints));
    assert_memory_equal(text, "NCCL_IB_HCA: worker 1 mlx5_3 (PIX), ", 36);
    nic_hints_deinit(&hints);
    /* A task with rank 6 on its node. */
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 6, 1), 0);
    check(&hints.list[0], PCI_LINK_PIX, "mlx5_10");
    nic_hints_deinit(&hints);
    end();
}

TEST(the_devices_of_a_machine_are_listed_once_by_kind_and_name)
{
    struct nics *nics = ct_zalloc(sizeof *nics);
    struct gpus gpus;

    assert_non_null(nics);
    begin();
    build_hgx(&gpus);
    nics_read(nics, root);
    assert_int_equal(nics->count, 10); /* ib0... belong to the HCAs; lo is on no bus */
    assert_string_equal(nics->list[1].name, "mlx5_1");
    assert_int_equal(nics->list[1].kind, NIC_ROCE);
    assert_string_equal(nics->list[8].name, "mlx5_11");
    assert_int_equal(nics->list[8].node, 1);
    assert_string_equal(nics->list[9].name, "eno1");
    assert_int_equal(nics->list[9].kind, NIC_ETHERNET);
    nics_read(nics, "/nonexistent");
    assert_int_equal(nics->count, 0);
    free(nics);
    end();
}

TEST(a_port_without_a_link_is_passed_over_unless_there_is_no_other)
{
    struct nic_hints hints = {0};
    struct gpus gpus;

    begin();
    build_hgx(&gpus);
    put(place("class/infiniband/mlx5_0/ports/1/state"), "1: DOWN");
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 1), 0);
    check(&hints.list[0], PCI_LINK_NODE, "mlx5_3 mlx5_4 mlx5_5"); /* no RoCE */
    nic_hints_deinit(&hints);
    put(place("class/infiniband/mlx5_0/ports/2/state"), "4: ACTIVE");
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 1), 0);
    check(&hints.list[0], PCI_LINK_PIX, "mlx5_0");
    nic_hints_deinit(&hints);
    end();
    begin();
    gpus.count = 1;
    put_function(gpu_path, "0");
    memcpy(gpus.pci[0], pci_path_address(gpu_path), 13);
    put_function("pci0000:15/0000:15:02.0/0000:20:00.0", "0");
    put_hca("pci0000:15/0000:15:02.0/0000:20:00.0", "irdma0", "Ethernet", "1: DOWN");
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 1), 0);
    check(&hints.list[0], PCI_LINK_PHB, "irdma0");
    assert_false(hints.list[0].near[0].has_link);
    nic_hints_deinit(&hints);
    /* As many of each kind: InfiniBand is chosen, on every node. */
    put(place("class/infiniband/irdma0/ports/1/state"), "4: ACTIVE");
    put_function("pci0000:30/0000:30:01.0", "0");
    put_hca("pci0000:30/0000:30:01.0", "mlx5_0", "InfiniBand", "4: ACTIVE");
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 1), 0);
    check(&hints.list[0], PCI_LINK_NODE, "mlx5_0");
    nic_hints_deinit(&hints);
    end();
}

TEST(devices_at_the_same_distance_are_all_named)
{
    struct nic_hints hints = {.sets_env = true};
    struct ct_env env = {0};
    struct gpus gpus = {.count = 1};

    begin();
    put_function(gpu_path, "-1"); /* the firmware does not report the node */
    memcpy(gpus.pci[0], pci_path_address(gpu_path), 13);
    for (int i = 10; i >= 9; i--) {
        char path[64];
        char name[16];

        (void)snprintf(path, sizeof path, "pci0000:30/0000:30:%02d.0", i);
        (void)snprintf(name, sizeof name, "mlx5_%d", i);
        put_function(path, "0");
        put_hca(path, name, "InfiniBand", "4: ACTIVE");
    }
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 1), 0);
    check(&hints.list[0], PCI_LINK_NODE, "mlx5_9 mlx5_10");
    assert_int_equal(nic_hints_set_env(&hints, &env, 0), 0);
    assert_string_equal(ct_env_get(&env, "NCCL_IB_HCA"), "=mlx5_9,mlx5_10");
    assert_int_equal(nic_hints_set_env(&hints, &env, 1), 0); /* no such worker */
    ct_env_deinit(&env);
    nic_hints_deinit(&hints);
    end();
}

TEST(no_memory_is_told_and_nothing_is_named)
{
    struct gpus gpus;
    int rc = -ENOMEM;

    begin();
    build_hgx(&gpus);
    for (size_t n = 1; rc == -ENOMEM; n++) {
        struct nic_hints hints = {.sets_env = true};
        struct ct_env env = {0};

        ct_alloc_fail_at(n);
        rc = nic_hints_fill(&hints, root, &gpus, 0, 2);
        if (rc == 0)
            rc = nic_hints_set_env(&hints, &env, 1);
        ct_alloc_fail_at(0);
        assert_true(rc == -ENOMEM || (rc == 0 && ct_env_get(&env, "NCCL_IB_HCA")));
        ct_env_deinit(&env);
        nic_hints_deinit(&hints);
    }
    assert_int_equal(rc, 0);
    end();
}

TEST(a_box_without_hcas_names_ethernet_and_sets_nothing)
{
    struct nic_hints hints = {.sets_env = true};
    char text[NIC_HINTS_TEXT_MAX];
    struct gpus gpus = {.count = 1};
    struct ct_env env = {0};

    begin();
    put_function("pci0000:00/0000:00:05.0", "-1");
    memcpy(gpus.pci[0], "0000:00:05.0", 13);
    put_function("pci0000:00/0000:00:03.0", "-1");
    put_device("pci0000:00/0000:00:03.0/virtio0", "net", "eth0");
    put(place("class/net/eth0/operstate"), "unknown");
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 2), 0);
    assert_int_equal(hints.count, 2);
    check(&hints.list[0], PCI_LINK_PHB, "eth0");
    assert_true(hints.list[0].near[0].has_link); /* virtio reports no more */
    check(&hints.list[1], PCI_LINK_PIX, "");     /* a worker without a GPU */
    assert_false(nic_hints_has_hca(&hints));
    assert_false(nic_hints_format(text, &hints));
    assert_int_equal(nic_hints_set_env(&hints, &env, 0), 0);
    assert_null(ct_env_get(&env, "NCCL_IB_HCA"));
    nic_hints_deinit(&hints);
    put(place("class/net/eth0/operstate"), "down");
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 1), 0);
    assert_false(hints.list[0].near[0].has_link);
    nic_hints_deinit(&hints);
    end();
    begin(); /* no PCI: a container that hides it */
    assert_int_equal(nic_hints_fill(&hints, root, &gpus, 0, 1), 0);
    check(&hints.list[0], PCI_LINK_PIX, "");
    nic_hints_deinit(&hints);
    end();
}

/* ---- What workers and people get ----------------------------------------------------------- */

static char user_hca[] = "NCCL_IB_HCA=^mlx5_1";
static char *const user_env[] = {user_hca, NULL};
static char *const empty_env[] = {NULL};

TEST(workers_get_theirs_unless_the_user_has_set_it)
{
    struct config config = {.env = empty_env, .run.nproc = 2, .stop.signals_text = ""};
    struct ct_start start = {.world_size = 2};
    struct ct_env env = {0};
    struct gpus gpus;

    begin();
    build_hgx(&gpus);
    assert_int_equal(nic_hints_fill(&config.work.nics, root, &gpus, 0, 2), 0);
    assert_int_equal(plan_environment(&env, &config, &start, 1, NULL), 0);
    assert_null(ct_env_get(&env, "NCCL_IB_HCA")); /* only a hint */
    ct_env_deinit(&env);
    config.work.nics.sets_env = true;
    assert_int_equal(plan_environment(&env, &config, &start, 1, NULL), 0);
    assert_string_equal(ct_env_get(&env, "NCCL_IB_HCA"), "=mlx5_3");
    ct_env_deinit(&env);
    config.env = user_env;
    assert_int_equal(plan_environment(&env, &config, &start, 1, NULL), 0);
    assert_string_equal(ct_env_get(&env, "NCCL_IB_HCA"), "^mlx5_1");
    ct_env_deinit(&env);
    nic_hints_deinit(&config.work.nics);
    end();
}

TEST(dry_run_shows_them)
{
    char *argv[] = {(char[]){"ctrun"}, (char[]){"--no-python"}, (char[]){"true"}, NULL};
    static char path_env[] = "PATH=/usr/bin:/bin";
    char *const env[] = {path_env, NULL};
    struct config *config = ct_zalloc(sizeof *config);
    struct options options;
    struct gpus gpus;
    char *text = NULL;
    size_t size;

    assert_non_null(config);
    begin();
    build_hgx(&gpus);
    assert_int_equal(options_parse(&options, 3, argv, env, NULL), 0);
    assert_int_equal(config_resolve(config, &options, env, NULL), 0);
    nic_hints_deinit(&config->work.nics);
    assert_int_equal(nic_hints_fill(&config->work.nics, root, &gpus, 7, 1), 0);
    for (int as_json = 0; as_json < 2; as_json++) {
        FILE *out = open_memstream(&text, &size);

        assert_non_null(out);
        assert_int_equal(dry_run_print(out, config, as_json, NULL), 0);
        assert_int_equal(fclose(out), 0);
        assert_non_null(strstr(
            text, as_json
                      ? ",\"nics\":{\"gpu\":\"0000:83:00.0\",\"distance\":\"PIX\","
                        "\"nearest\":[{\"name\":\"mlx5_11\",\"kind\":\"InfiniBand\","
                        "\"has_link\":true}]}"
                      : "    GPU 0000:83:00.0, nearest mlx5_11 (InfiniBand, PIX)\n"));
        free(text);
    }
    config_deinit(config);
    free(config);
    end();
}
