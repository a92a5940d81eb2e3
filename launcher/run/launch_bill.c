/* SPDX-License-Identifier: Apache-2.0 */
/* What starts and restarts have cost, and --budget. */
#include "launcher/report/messages.h"
#include "launcher/run/launch_private.h"
#include "worker_sdk/base/log.h"

/* Only the first node prints the cost of a restart or recovery; everything else goes to the log. */
static void print(const struct launch *launch, const struct bills_item *item)
{
    const bool is_printed = item->of != BILL_OF_START && launch->group_rank == 0 &&
                            !launch->config->run.task.is_quiet;
    char text[BILLS_TEXT_MAX];

    bills_format(text, item);
    if (is_printed && item->is_over)
        messages_warn(CTRUN_E_BUDGET, "%s; longer than --budget=%.3f", text,
                      (double)launch->config->stop.budget_ms / 1000);
    else if (is_printed)
        messages_notice("%s", text);
    else
        ct_info("%s", text);
}

void launch_on_bill(void *context, const struct agent_bill *bill)
{
    struct launch *launch = context;
    struct bills_item item = {.generation = bill->generation,
                              .restart_count = bill->restart_count,
                              .lost_steps = bill->lost_steps,
                              .of = bill->of,
                              .is_whole = bill->is_whole,
                              .is_one_of_many = launch->is_one_of_many};

    bill_add_up(&item.sum, &bill->bill);
    if (bill->of != BILL_OF_RECOVERY) {
        bills_add(&launch->bills, &item, launch->config->stop.budget_ms);
        bills_set_ranks(&launch->bills, bill->ranks, bill->rank_count);
    }
    print(launch, &item);
}

/* Turns success into CTRUN_E_BUDGET; any other failure of the run takes precedence. */
void launch_check_budget(const struct launch *launch, struct agent_result *result)
{
    const struct bills *bills = &launch->bills;

    if (bills->over == 0 || result->signal || result->passed_signal ||
        result->error.code || result->verdict.outcome != CT_OUTCOME_SUCCEEDED)
        return;
    (void)ct_fail(
        &result->error, CTRUN_E_BUDGET,
        "%u of %u restart%s took longer than --budget=%.3f on %s, the longest "
        "%.3f s; the run has succeeded",
        bills->over, bills->count, bills->count == 1 ? "" : "s",
        (double)launch->config->stop.budget_ms / 1000, launch->config->run.host,
        (double)bills->longest_ms / 1000);
}
