/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's topology and the devices are folders of the test. */
#include <unistd.h>

#include "launcher/hardware/amd_gpus.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/str.h"

static char root[sizeof "/tmp/ctrun-amd-XXXXXX"];

static int count(char *const *env)
{
    char nodes[64], devices[64];

    (void)ct_format(nodes, sizeof nodes, "%s/nodes", root);
    (void)ct_format(devices, sizeof devices, "%s/dri", root);
    return amd_gpus_count(nodes, devices, env);
}

TEST(what_cannot_be_read_is_no_gpu)
{
    (void)ct_copy(root, sizeof root, "/tmp/ctrun-amd-XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(count((char *[]){NULL}), 0); /* no driver */
    test_put_under(root, "", "nodes/1/other");
    assert_int_equal(count((char *[]){NULL}), 0); /* no properties */
    test_put_under(root, "simd_count 440\n", "nodes/1/properties");
    assert_int_equal(count((char *[]){NULL}), 0); /* no device */
    assert_int_equal(test_remove_tree(root), 0);
}

TEST(gpus_that_may_be_opened_and_are_listed_count)
{
    char hip[] = "HIP_VISIBLE_DEVICES=0,1", rocr[] = "ROCR_VISIBLE_DEVICES=1",
         none[] = "HIP_VISIBLE_DEVICES=-1", more[] = "HIP_VISIBLE_DEVICES=0,1,2,3,4";
    char path[64];

    (void)ct_copy(root, sizeof root, "/tmp/ctrun-amd-XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(count((char *[]){NULL}), 0); /* no driver */
    test_put_under(root, "cpu_cores_count 64\nsimd_count 0\ndrm_render_minor 0\n",
                   "nodes/0/properties");
    for (int i = 1; i <= 3; i++) {
        char text[64];

        (void)ct_format(text, sizeof text,
                        "cpu_cores_count 0\nsimd_count 440\ndrm_render_minor %d\n",
                        127 + i);
        test_put_under(root, text, "nodes/%d/properties", i);
        test_put_under(root, "", "dri/renderD%d", 127 + i);
    }
    test_put_under(root, "simd_count 440\ndrm_render_minor 131\n",
                   "nodes/4/properties");
    assert_int_equal(count((char *[]){NULL}), 3);
    assert_int_equal(count((char *[]){hip, NULL}), 2);
    assert_int_equal(count((char *[]){hip, rocr, NULL}), 1);
    assert_int_equal(count((char *[]){none, NULL}), 0);
    assert_int_equal(count((char *[]){more, NULL}), 3);
    (void)ct_format(path, sizeof path, "%s/dri/renderD128", root);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(count((char *[]){NULL}), 2);
    assert_int_equal(test_remove_tree(root), 0);
}
