/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl doctor: checks this machine, a rendezvous endpoint or the network for what may harm a
 * run. */
#include "launcher/ctl/ctl.h"
#include "launcher/doctor/doctor_net.h"
#include "agent/error_file/json.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_option options[] = {
    {.name = "net",
     .help = "as a worker of a run: try all network paths between its nodes"},
    CTL_JSON,
    {0}};

static void print_json(const struct doctor *doctor)
{
    fputs("{\"findings\":[", stdout);
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->list[i];

        printf("%s{\"level\":\"%s\",\"what\":", i ? "," : "",
               doctor_level_name(finding->level));
        json_print_text(stdout, finding->what);
        fputs(",\"value\":", stdout);
        json_print_text(stdout, finding->value);
        fputs(",\"fix\":", stdout);
        json_print_text(stdout, finding->fix);
        fputc('}', stdout);
    }
    fputs("]}\n", stdout);
}

static void print_text(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->list[i];

        printf("%-4s  %-14s  %s%s%s\n", doctor_level_name(finding->level),
               finding->what, finding->value, *finding->fix ? "  -> " : "",
               finding->fix);
    }
}

static int run(const struct ctl_call *call)
{
    struct doctor *doctor = ct_zalloc(sizeof *doctor);
    bool is_complete = true;
    int code;

    if (!doctor) {
        fputs("ctrunctl: out of memory\n", stderr);
        return CT_EXIT_FAILURE;
    }
    if (ctl_value(call, "net")) {
        /* Node 0 prints the findings of all nodes; the others print only their own failure. */
        is_complete = doctor_net(doctor) || doctor_has_failed(doctor);
    } else if (call->word_count > 0) {
        doctor_peer(doctor, call->words[0]);
    } else {
        doctor_machine(doctor);
        doctor_gpus(doctor);
        doctor_libraries(doctor);
    }
    if (is_complete && ctl_value(call, "json"))
        print_json(doctor);
    else if (is_complete)
        print_text(doctor);
    code = doctor_has_failed(doctor) ? CT_EXIT_FAILURE : CT_EXIT_OK;
    free(doctor);
    return code;
}

const struct ctl_verb ctl_doctor = {
    .name = "doctor",
    .words = "[HOST:PORT]",
    .word_max = 1,
    .help =
        "find what on this machine, or on the path to a rendezvous, will harm a run\n"
        "One line a finding: ok, warn or fail; what; its value; the fix. Exit code "
        "1 when\n"
        "one failed. With HOST:PORT: the name, the path, and who answers there.\n"
        "With --net, as the program of a run (ctrun --hosts=a,b ctrunctl doctor "
        "--net): every\n"
        "path from each node to each address of the others, clocks, versions.",
    .options = options,
    .run = run,
};
