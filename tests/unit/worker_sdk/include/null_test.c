/* SPDX-License-Identifier: Apache-2.0 */
/* Each function that libctrun exports, called with NULL for the object that it is about; and those that take
 * more pointers, with one of these NULL. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/include/ctrun.h"

enum {
    FUNCTIONS_MAX = 256
};
static const char *called[FUNCTIONS_MAX];
static size_t called_count;
static struct ctrun_error err;

static void note(const char *name, bool is_right)
{
    if (!is_right)
        fail_msg("%s(NULL): %d %s", name, err.code, err.text);
    assert_true(called_count < FUNCTIONS_MAX);
    called[called_count++] = name;
    err = (struct ctrun_error){0};
}

/* What the function returns: -EINVAL and why, -EINVAL, nothing (0, false or NULL); or it is void. */
#define FAILS(name, ...)                                                               \
    note(#name, name(__VA_ARGS__, &err) == -EINVAL && err.code == -EINVAL &&           \
                    strstr(err.text, " NULL"))
#define REFUSES(name, ...)    note(#name, name(__VA_ARGS__) == -EINVAL)
#define HAS_NONE(name, ...)   note(#name, !name(__VA_ARGS__))
#define RETURNS(name, ...)    (name(__VA_ARGS__), note(#name, true))
#define TAKES_NO_OBJECT(name) note(#name, name != NULL)

static void *out;
static size_t count;
static uint64_t number;
static float data[4];
static int value;

static int nothing(void *context, int device, struct ctrun_error *why)
{
    return 0;
}

static void call_sessions_and_stores(void)
{
    const char *const key = "key";
    uint32_t epoch;
    int64_t sum;

    FAILS(ctrun_open, NULL, NULL);
    RETURNS(ctrun_close, NULL);
    REFUSES(ctrun_rank, NULL);
    REFUSES(ctrun_world_size, NULL);
    REFUSES(ctrun_local_rank, NULL);
    REFUSES(ctrun_local_world_size, NULL);
    REFUSES(ctrun_node_rank, NULL);
    REFUSES(ctrun_restart_count, NULL);
    HAS_NONE(ctrun_generation, NULL);
    RETURNS(ctrun_step, NULL, 1);
    FAILS(ctrun_metric, NULL, "loss", 1);
    RETURNS(ctrun_batch, NULL, &number, 1);
    HAS_NONE(ctrun_should_stop, NULL);
    HAS_NONE(ctrun_should_grow, NULL);
    HAS_NONE(ctrun_may_shrink, NULL);
    FAILS(ctrun_crash_report, NULL);
    HAS_NONE(ctrun_world_changes, NULL);
    HAS_NONE(ctrun_world_shrinks, NULL);
    FAILS(ctrun_world_next, NULL, 1, &value, 1, &epoch);
    HAS_NONE(ctrun_world_store, NULL, &value);
    FAILS(ctrun_store_open, (struct ctrun_store **)&out, NULL);
    RETURNS(ctrun_store_close, NULL);
    FAILS(ctrun_store_set, NULL, key, "1", 1);
    FAILS(ctrun_store_get, NULL, key, &out, &count);
    FAILS(ctrun_store_add, NULL, key, 1, &sum);
    FAILS(ctrun_store_wait, NULL, &key, 1, 1);
    FAILS(ctrun_store_delete, NULL, key);
}

static void call_groups(void)
{
    struct ctrun_parts parts = CTRUN_PARTS_INIT;
    struct ctrun_group **group = (struct ctrun_group **)&out;
    struct ctrun_session *session;

    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    parts.counts = &count;
    FAILS(ctrun_group_open, group, NULL, NULL);
    FAILS(ctrun_group_split, group, NULL, NULL, 0, NULL);
    FAILS(ctrun_group_split, group, session, NULL, 0, NULL);
    FAILS(ctrun_group_shrink, group, NULL, NULL, NULL);
    FAILS(ctrun_group_shrink, group, session, NULL, NULL);
    FAILS(ctrun_group_grow, group, NULL, NULL, NULL);
    FAILS(ctrun_metric, session, NULL, 1);
    RETURNS(ctrun_batch, session, NULL, 3);
    FAILS(ctrun_group_split, NULL, session, NULL, 0, NULL);
    FAILS(ctrun_group_open, NULL, session, NULL);
    assert_int_equal(ctrun_group_open(group, session, NULL, NULL), 0);
    FAILS(ctrun_group_alloc, *group, 1, NULL);
    ctrun_group_close(*group);
    ctrun_close(session);
    RETURNS(ctrun_group_close, NULL);
    REFUSES(ctrun_group_rank, NULL);
    REFUSES(ctrun_group_size, NULL);
    RETURNS(ctrun_group_abort, NULL);
    FAILS(ctrun_group_catch_up, NULL, &number, NULL, 0);
    FAILS(ctrun_group_alloc, NULL, 1, &out);
    FAILS(ctrun_group_free, NULL, data);
    FAILS(ctrun_all_reduce, NULL, data, data, 1, CTRUN_F32, CTRUN_SUM, NULL);
    FAILS(ctrun_reduce, NULL, data, data, 1, CTRUN_F32, CTRUN_SUM, 0, NULL);
    FAILS(ctrun_reduce_scatter, NULL, data, data, 1, CTRUN_F32, CTRUN_SUM, NULL);
    FAILS(ctrun_broadcast, NULL, data, data, 1, CTRUN_F32, 0, NULL);
    FAILS(ctrun_all_gather, NULL, data, data, 1, CTRUN_F32, NULL);
    FAILS(ctrun_gather, NULL, data, data, 1, CTRUN_F32, 0, NULL);
    FAILS(ctrun_scatter, NULL, data, data, 1, CTRUN_F32, 0, NULL);
    FAILS(ctrun_all_to_all, NULL, data, data, 1, CTRUN_F32, NULL);
    FAILS(ctrun_all_gather_v, NULL, data, data, &parts, CTRUN_F32, NULL);
    FAILS(ctrun_all_to_all_v, NULL, data, &parts, data, &parts, CTRUN_F32, NULL);
    FAILS(ctrun_barrier, NULL, NULL);
    FAILS(ctrun_send, NULL, data, 1, CTRUN_F32, 0, NULL);
    FAILS(ctrun_recv, NULL, data, 1, CTRUN_F32, 0, NULL);
    FAILS(ctrun_batch_begin, NULL);
    FAILS(ctrun_batch_end, NULL, NULL);
    FAILS(ctrun_work_wait, NULL);
    FAILS(ctrun_work_wait_for, NULL, 1);
    FAILS(ctrun_work_wait_on, NULL, NULL);
    FAILS(ctrun_work_test, NULL);
}

static void call_ddp_and_sums(void)
{
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    char text[8];
    uint64_t end;

    FAILS(ctrun_ddp_create, (struct ctrun_ddp **)&out, NULL, NULL, 0, NULL);
    RETURNS(ctrun_ddp_destroy, NULL);
    HAS_NONE(ctrun_ddp_grad, NULL, 0);
    FAILS(ctrun_ddp_forward_begin, NULL);
    FAILS(ctrun_ddp_backward_begin, NULL, NULL);
    FAILS(ctrun_ddp_grad_ready, NULL, 0, NULL);
    FAILS(ctrun_ddp_backward_end, NULL, NULL);
    RETURNS(ctrun_ddp_no_sync, NULL, true);
    FAILS(ctrun_ddp_zero_grad, NULL, NULL);
    FAILS(ctrun_ddp_clip_grad_norm, NULL, 1, NULL);
    FAILS(ctrun_ddp_check_replicas, NULL);
    FAILS(ctrun_ddp_capture_begin, NULL, NULL);
    FAILS(ctrun_ddp_capture_end, NULL);
    FAILS(ctrun_ddp_replayed, NULL, NULL);
    FAILS(ctrun_ddp_join_begin, NULL, NULL);
    FAILS(ctrun_ddp_join_end, NULL);
    HAS_NONE(ctrun_ddp_grad_is_used, NULL, 0);
    FAILS(ctrun_ddp_get_stats, NULL, &stats);
    FAILS(ctrun_ddp_stats_json, NULL, text, sizeof text);
    TAKES_NO_OBJECT(ctrun_fixed_sum_create); /* group NULL: this process alone */
    RETURNS(ctrun_fixed_sum_destroy, NULL);
    RETURNS(ctrun_fixed_sum_range, NULL, &number, &end);
    FAILS(ctrun_fixed_sum_add, NULL, data);
    FAILS(ctrun_fixed_sum_finish, NULL, data, NULL);
}

static void call_dp_and_zero(void)
{
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT, whole = CTRUN_TENSOR_INIT;

    TAKES_NO_OBJECT(ctrun_dp_create);
    TAKES_NO_OBJECT(ctrun_dp_create_on);
    RETURNS(ctrun_dp_destroy, NULL);
    HAS_NONE(ctrun_dp_value, NULL, 0, 0);
    HAS_NONE(ctrun_dp_grad, NULL, 0, 0);
    REFUSES(ctrun_dp_scatter, NULL, 4, 0, NULL, NULL);
    FAILS(ctrun_dp_replicate, NULL, 1);
    FAILS(ctrun_dp_apply, NULL, 1, nothing, NULL);
    FAILS(ctrun_dp_reduce, NULL, 1);
    TAKES_NO_OBJECT(ctrun_dp_gather);
    FAILS(ctrun_dp_collect, NULL, &tensor, 1, data, sizeof data, &whole);
    FAILS(ctrun_zero_create, (struct ctrun_zero **)&out, NULL, NULL, 0, NULL);
    RETURNS(ctrun_zero_destroy, NULL);
    HAS_NONE(ctrun_zero_length, NULL);
    HAS_NONE(ctrun_zero_total, NULL);
    FAILS(ctrun_zero_piece, NULL, 0, &piece);
    FAILS(ctrun_zero_share, NULL, NULL);
    FAILS(ctrun_zero_gather_state, NULL, data, data, CTRUN_F32, 0);
    FAILS(ctrun_zero_pick_state, NULL, data, data, CTRUN_F32);
}

static void call_data(void)
{
    struct ctrun_loader_stats stats = CTRUN_LOADER_STATS_INIT;
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct ctrun_ledger ledger = CTRUN_LEDGER_INIT;
    char text[CTRUN_LEDGER_TEXT_MAX];
    uint8_t label;

    TAKES_NO_OBJECT(ctrun_permutation);
    FAILS(ctrun_sampler_create, (struct ctrun_sampler **)&out, NULL);
    RETURNS(ctrun_sampler_destroy, NULL);
    FAILS(ctrun_sampler_set_epoch, NULL, 0, 0);
    HAS_NONE(ctrun_sampler_length, NULL);
    HAS_NONE(ctrun_sampler_real_length, NULL);
    HAS_NONE(ctrun_sampler_index, NULL, 0);
    HAS_NONE(ctrun_sampler_indices, NULL);
    FAILS(ctrun_batch_plan, NULL, 1, 1, 0, 1);
    FAILS(ctrun_batch_micro, NULL, 0, &count, &count);
    FAILS(ctrun_loader_open, (struct ctrun_loader **)&out, NULL);
    RETURNS(ctrun_loader_close, NULL);
    FAILS(ctrun_loader_set_epoch, NULL, 0, 0);
    FAILS(ctrun_loader_next, NULL, &batch);
    FAILS(ctrun_loader_get_stats, NULL, &stats);
    TAKES_NO_OBJECT(ctrun_records_open);
    RETURNS(ctrun_records_close, NULL);
    HAS_NONE(ctrun_records_count, NULL);
    FAILS(ctrun_records_fetch, NULL, &number, 1, data);
    FAILS(ctrun_ledger_add, NULL, &number, 1);
    FAILS(ctrun_ledger_total, NULL, NULL, &ledger); /* group NULL: of this process */
    FAILS(ctrun_ledger_check, NULL, 0);
    FAILS(ctrun_ledger_format, NULL, text, sizeof text);
    FAILS(ctrun_ledger_parse, NULL, "0 00000000000000000000000000000000");
    TAKES_NO_OBJECT(ctrun_dataset_default_directory);
    FAILS(ctrun_dataset_load, NULL, "/", CTRUN_TRAIN);
    RETURNS(ctrun_dataset_free, NULL);
    RETURNS(ctrun_dataset_gather, NULL, &number, 1, 0, 1, data, &label);
}

static void call_checkpoints_and_the_rest(void)
{
    struct ctrun_shards_stats stats = CTRUN_SHARDS_STATS_INIT;
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;

    TAKES_NO_OBJECT(ctrun_checkpoint_save);
    TAKES_NO_OBJECT(ctrun_checkpoint_open);
    RETURNS(ctrun_checkpoint_close, NULL);
    HAS_NONE(ctrun_checkpoint_metadata, NULL, "key");
    FAILS(ctrun_checkpoint_load, NULL, &tensor);
    TAKES_NO_OBJECT(ctrun_shards_open); /* group NULL: this process alone */
    RETURNS(ctrun_shards_close, NULL);
    FAILS(ctrun_shards_save, NULL, 1, &tensor, 1, NULL, 0);
    FAILS(ctrun_shards_reserve, NULL, &tensor, 1);
    FAILS(ctrun_shards_wait, NULL);
    FAILS(ctrun_shards_get_stats, NULL, &stats);
    FAILS(ctrun_hold_open, (struct ctrun_hold **)&out, NULL, "/tmp/file", NULL);
    FAILS(ctrun_hold_write, NULL, data, 1);
    FAILS(ctrun_hold_commit, NULL);
    RETURNS(ctrun_hold_close, NULL);
    FAILS(ctrun_hold_wait, NULL, 1);
    FAILS(ctrun_hold_find, NULL, "/tmp/file", 1, &value);
    TAKES_NO_OBJECT(ctrun_dtype_size);
    TAKES_NO_OBJECT(ctrun_fail_worker);
    TAKES_NO_OBJECT(ctrun_log_to);
    TAKES_NO_OBJECT(ctrun_strerror);
    TAKES_NO_OBJECT(ctrun_version);
}

static bool was_called(const char *name)
{
    for (size_t i = 0; i < called_count; i++)
        if (strcmp(called[i], name) == 0)
            return true;
    return false;
}

TEST(an_object_that_is_null_is_an_error_in_every_exported_function)
{
    FILE *map = fopen(LIBCTRUN_MAP, "r");
    char line[128], name[64];
    size_t exported = 0;

    call_sessions_and_stores();
    call_groups();
    call_ddp_and_sums();
    call_dp_and_zero();
    call_data();
    call_checkpoints_and_the_rest();
    assert_non_null(map);
    while (fgets(line, sizeof line, map)) {
        if (sscanf(line, " ctrun_%48[a-z0-9_];", name + 6) != 1)
            continue;
        memcpy(name, "ctrun_", 6);
        exported++;
        if (!was_called(name))
            fail_msg("%s() is exported: call it here with NULL", name);
    }
    (void)fclose(map);
    assert_true(exported > 100);
}

static const char file[] = "/proc/self/exe"; /* any file that can be read */

static void refuse_to_open_nothing(struct ctrun_session *session,
                                   struct ctrun_group *group)
{
    struct ctrun_sampler_options sampler = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_loader_options loader = CTRUN_LOADER_OPTIONS_INIT;
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;

    FAILS(ctrun_store_open, NULL, session);
    FAILS(ctrun_group_shrink, NULL, session, group, NULL);
    FAILS(ctrun_group_grow, NULL, session, group, NULL);
    FAILS(ctrun_ddp_create, NULL, group, NULL, 0, NULL);
    FAILS(ctrun_zero_create, NULL, group, NULL, 0, NULL);
    FAILS(ctrun_fixed_sum_create, NULL, group, 1, 1, CTRUN_F32);
    FAILS(ctrun_dp_create, NULL, NULL, 0, 1);
    FAILS(ctrun_dp_create_on, NULL, NULL, 0, 1, NULL);
    FAILS(ctrun_sampler_create, NULL, &sampler);
    FAILS(ctrun_loader_open, NULL, &loader);
    FAILS(ctrun_records_open, NULL, file, 0, 1);
    FAILS(ctrun_records_open, (struct ctrun_records **)&out, NULL, 0, 1);
    FAILS(ctrun_checkpoint_save, NULL, &tensor, 1, NULL, 0);
    FAILS(ctrun_checkpoint_open, NULL, file);
    FAILS(ctrun_checkpoint_open, (struct ctrun_checkpoint **)&out, NULL);
    FAILS(ctrun_shards_open, NULL, "/tmp", group, NULL);
    FAILS(ctrun_shards_open, (struct ctrun_shards **)&out, NULL, group, NULL);
    FAILS(ctrun_hold_open, NULL, session, "/tmp/file", NULL);
    FAILS(ctrun_hold_open, (struct ctrun_hold **)&out, session, NULL, NULL);
    FAILS(ctrun_hold_find, session, NULL, 1, &value);
    FAILS(ctrun_hold_find, session, "/tmp/file", 1, NULL);
}

static void refuse_to_read_or_write_nothing(struct ctrun_session *session,
                                            struct ctrun_group *group)
{
    struct ctrun_param param = CTRUN_PARAM_INIT;
    struct ctrun_batch_plan plan = CTRUN_BATCH_PLAN_INIT;
    struct ctrun_dataset set = CTRUN_DATASET_INIT;
    struct ctrun_ledger ledger = CTRUN_LEDGER_INIT;
    struct ctrun_fixed_sum *sum;
    struct ctrun_records *records;
    struct ctrun_ddp *ddp;
    struct ctrun_hold *hold;
    uint32_t epoch;
    uint64_t end;

    param.name = "w";
    param.data = data;
    assert_int_equal(ctrun_ddp_create(&ddp, group, &param, 1, NULL, NULL), 0);
    FAILS(ctrun_ddp_stats_json, ddp, NULL, 8);
    ctrun_ddp_destroy(ddp);
    assert_int_equal(ctrun_fixed_sum_create(&sum, group, 1, 1, CTRUN_F32, NULL), 0);
    RETURNS(ctrun_fixed_sum_range, sum, NULL, &end);
    RETURNS(ctrun_fixed_sum_range, sum, &number, NULL);
    FAILS(ctrun_fixed_sum_add, sum, NULL);
    ctrun_fixed_sum_destroy(sum);
    assert_int_equal(ctrun_records_open(&records, file, 0, 1, NULL), 0);
    FAILS(ctrun_records_fetch, records, NULL, 1, data);
    FAILS(ctrun_records_fetch, records, &number, 1, NULL);
    ctrun_records_close(records);
    assert_int_equal(ctrun_hold_open(&hold, session, "/tmp/null_test", NULL, NULL), 0);
    FAILS(ctrun_hold_write, hold, NULL, 1);
    ctrun_hold_close(hold);
    FAILS(ctrun_group_catch_up, group, NULL, NULL, 0);
    FAILS(ctrun_world_next, session, 1, NULL, 1, &epoch);
    FAILS(ctrun_world_next, session, 1, &value, 1, NULL);
    RETURNS(ctrun_world_store, session, NULL);
    RETURNS(ctrun_permutation, 1, NULL, 3);
    assert_int_equal(ctrun_batch_plan(&plan, 4, 2, 0, 1, NULL), 0);
    FAILS(ctrun_batch_micro, &plan, 0, NULL, &count);
    FAILS(ctrun_batch_micro, &plan, 0, &count, NULL);
    FAILS(ctrun_ledger_add, &ledger, NULL, 1);
    FAILS(ctrun_ledger_format, &ledger, NULL, 8);
    FAILS(ctrun_ledger_parse, &ledger, NULL);
    FAILS(ctrun_dataset_load, &set, NULL, CTRUN_TRAIN);
    RETURNS(ctrun_dataset_gather, &set, NULL, 1, 0, 1, data, NULL);
}

TEST(a_pointer_that_is_null_is_an_error_where_something_must_be)
{
    struct ctrun_session *session;
    struct ctrun_group *group;

    called_count = 0;
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    assert_int_equal(ctrun_group_open(&group, session, NULL, NULL), 0);
    refuse_to_open_nothing(session, group);
    refuse_to_read_or_write_nothing(session, group);
    ctrun_group_close(group);
    ctrun_close(session);
}
