/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/hardware/gpus.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"

static const struct gpus three = {
    .count = 3,
    .pci = {"0000:17:00.0", "0000:65:00.0", "0000:ca:00.0"},
    .uuid = {"GPU-aaaa1111-0000", "GPU-aabb2222-0000", "GPU-cccc3333-0000"},
};

TEST(visible_devices_choose_and_order)
{
    static const struct {
        const char *visible;
        const char *pci; /* NULL: refused */
    } rows[] = {
        {NULL, "0000:17:00.0 0000:65:00.0 0000:ca:00.0 "},
        {"", ""},
        {"2,0", "0000:ca:00.0 0000:17:00.0 "},
        {" 1 , 2", "0000:65:00.0 0000:ca:00.0 "},
        {"0,-1,2", "0000:17:00.0 "}, /* as in CUDA, -1 ends the list */
        {"GPU-cccc3333-0000", "0000:ca:00.0 "},
        {"GPU-aab,GPU-c", "0000:65:00.0 0000:ca:00.0 "},
        {"MIG-GPU-cccc3333-0000/1/0,0", "0000:ca:00.0 0000:17:00.0 "},
        {"GPU-aa", NULL}, /* matches several GPUs */
        {"GPU-dddd", NULL},
        {"3", NULL},
        {"gpu0", NULL},
        {"MIG-0a1b2c3d-0000", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ctrun_error err = {0};
        struct gpus out;
        char text[128] = "";
        int rc = gpus_select(&out, &three, rows[i].visible, &err);

        if (!rows[i].pci) {
            assert_int_equal(rc, -EINVAL);
            assert_non_null(strstr(err.text, rows[i].visible));
            continue;
        }
        assert_int_equal(rc, 0);
        for (int k = 0; k < out.count; k++)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s ",
                           out.pci[k]);
        assert_string_equal(text, rows[i].pci);
    }
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

TEST(the_drivers_entries_are_read_in_bus_order)
{
    char root[] = "/tmp/gpus_test.XXXXXX";
    char name[2][16] = {"0000:CA:00.0", "0000:17:00.0"};
    struct gpus out;
    char path[128];

    assert_non_null(mkdtemp(root));
    (void)snprintf(path, sizeof path, "%s/gpus", root);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < 2; i++) {
        char text[256];

        (void)snprintf(path, sizeof path, "%s/gpus/%s", root, name[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        (void)snprintf(path, sizeof path, "%s/gpus/%s/information", root, name[i]);
        (void)snprintf(text, sizeof text,
                       "Model: \t\t H\nGPU UUID: \t GPU-%d\nDevice Minor: \t %d\n", i,
                       i);
        put(path, text);
        (void)snprintf(path, sizeof path, "%s/nvidia%d", root, i);
        put(path, "");
    }
    gpus_read(&out, root, root);
    assert_int_equal(out.count, 2);
    assert_string_equal(out.pci[0], "0000:17:00.0");
    assert_string_equal(out.uuid[0], "GPU-1");
    assert_string_equal(out.pci[1], "0000:ca:00.0");
    assert_int_equal(unlink(path), 0); /* nvidia1: this process does not have it */
    gpus_read(&out, root, root);
    assert_int_equal(out.count, 1);
    assert_string_equal(out.uuid[0], "GPU-0");
    assert_int_equal(test_remove_tree(root), 0);
    gpus_read(&out, root, root);
    assert_int_equal(out.count, 0);
}
