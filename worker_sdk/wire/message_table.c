/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of each message in wire order, and the messages by kind. Both must never change
 * (message.h). */
#include "worker_sdk/wire/message_private.h"

#include <stddef.h>

#define SIZE_OF(s, member) sizeof(((struct s *)NULL)->member)
#define PLAIN(kind, s, member)                                                         \
    {                                                                                  \
        .type = (kind), .offset = offsetof(struct s, member),                          \
        .size = SIZE_OF(s, member)                                                     \
    }
#define U8(s, member)    PLAIN(FIELD_U8, s, member)
#define U16(s, member)   PLAIN(FIELD_U16, s, member)
#define U32(s, member)   PLAIN(FIELD_U32, s, member)
#define I32(s, member)   PLAIN(FIELD_U32, s, member)
#define U64(s, member)   PLAIN(FIELD_U64, s, member)
#define I64(s, member)   PLAIN(FIELD_U64, s, member)
#define STR(s, member)   PLAIN(FIELD_STR, s, member)
#define TEXT(s, member)  PLAIN(FIELD_TEXT, s, member)
#define NAME(s, member)  PLAIN(FIELD_NAME, s, member)
#define BYTES(s, member) PLAIN(FIELD_BYTES, s, member)
#define FACTS(s, member) PLAIN(FIELD_FACTS, s, member)
#define STRUCT(s, member, fields)                                                      \
    {                                                                                  \
        .type = FIELD_STRUCT, .offset = offsetof(struct s, member),                    \
        .size = SIZE_OF(s, member), .element = (fields),                               \
        .element_fields = COUNT_OF(fields)                                             \
    }
#define COUNTED(kind, s, count, member, capacity, fields)                              \
    {.type = (kind), .offset = offsetof(struct s, count), .max = (capacity)},          \
    {                                                                                  \
        .type = FIELD_LIST, .offset = offsetof(struct s, member),                      \
        .size = SIZE_OF(s, member[0]), .max = (capacity), .element = (fields),         \
        .element_fields = COUNT_OF(fields)                                             \
    }
#define LIST(s, count, member, capacity, fields)                                       \
    COUNTED(FIELD_COUNT, s, count, member, capacity, fields)
#define TAIL(s, count, member, capacity, fields)                                       \
    COUNTED(FIELD_TAIL, s, count, member, capacity, fields)

/* `first` is the number in the first element, `s` ends the message. */
#define TAIL_U64(s, first, element_size, capacity)                                     \
    {                                                                                  \
        .type = FIELD_TAIL_U64, .offset = offsetof(struct s, first),                   \
        .size = (element_size), .max = (capacity)                                      \
    }

static const struct field part_failure_fields[] = {
    U64(ct_failure, generation), U8(ct_failure, cause),
    I32(ct_failure, code),       I32(ct_failure, rank),
    I32(ct_failure, local_rank), I32(ct_failure, node_rank),
    I32(ct_failure, pid),        U32(ct_failure, restart_count),
    U64(ct_failure, wall_ns),    U64(ct_failure, uptime_ms),
    I64(ct_failure, step),       STR(ct_failure, host),
    STR(ct_failure, error_file), TEXT(ct_failure, text),
    U8(ct_failure, may_loop),    FACTS(ct_failure, facts),
    I32(ct_failure, end_code),   TEXT(ct_failure, exception),
    I32(ct_failure, error),
};

static const struct field stuck_call_fields[] = {
    STR(ct_stuck_call, group),
    STR(ct_stuck_call, title),
    STR(ct_stuck_call, op),
    STR(ct_stuck_call, sizes),
    I64(ct_stuck_call, number),
    U32(ct_stuck_call, waiting),
    STR(ct_stuck_call, waiting_ranks),
};

/* FAILURE as a message, which has more fields than a failure inside another message. */
static const struct field failure_fields[] = {
    {.type = FIELD_STRUCT,
     .size = sizeof(struct ct_failure),
     .element = part_failure_fields,
     .element_fields = COUNT_OF(part_failure_fields)},
    TAIL_U64(ct_failure, age_ms, sizeof(struct ct_failure), 1),
    TAIL(ct_failure, call_count, call, 1, stuck_call_fields),
};

static const struct field job_fields[] = {
    STR(ct_job, program),
    STR(ct_job, user),
    U8(ct_job, is_alone),
    U8(ct_job, wants_launcher),
};

static const struct field hello_fields[] = {
    STR(ct_hello, run_id),
    STR(ct_hello, host),
    I32(ct_hello, pid),
    U32(ct_hello, min_nodes),
    U32(ct_hello, max_nodes),
    U32(ct_hello, max_restarts),
    U64(ct_hello, join_timeout_ms),
    U64(ct_hello, last_call_ms),
    U64(ct_hello, heartbeat_ms),
    U64(ct_hello, lost_after_ms),
    BYTES(ct_hello, nonce),
    U32(ct_hello, node_unit),
    U64(ct_hello, instance),
    U64(ct_hello, generation),
    TAIL(ct_hello, job_count, job, 1, job_fields),
    TAIL_U64(ct_hello, exclude_after, sizeof(struct ct_hello), 1),
};

static const struct field challenge_fields[] = {
    BYTES(ct_challenge, nonce),
};

static const struct field proof_fields[] = {
    BYTES(ct_proof, proof),
};

static const struct field welcome_fields[] = {
    U64(ct_welcome, heartbeat_ms), U64(ct_welcome, lost_after_ms),
    STR(ct_welcome, seen_as),      U64(ct_welcome, wall_ns),
    STR(ct_welcome, host),         U64(ct_welcome, instance),
    U64(ct_welcome, term),
};

static const struct field refuse_fields[] = {
    I32(ct_refuse, code),
    U8(ct_refuse, version),
    TEXT(ct_refuse, text),
};

static const struct field addr_fields[] = {
    {.type = FIELD_STR, .offset = 0, .size = CT_ADDR_TEXT_MAX},
};

static const struct field role_fields[] = {
    STR(ct_role, name),
    U32(ct_role, slots),
};

static const struct field role_place_fields[] = {
    U32(ct_role_place, rank_base),
    U32(ct_role_place, world_size),
};

static const struct field join_fields[] = {
    U32(ct_join, slots),
    I32(ct_join, node_rank_hint),
    U8(ct_join, is_endpoint),
    U16(ct_join, store_port),
    U64(ct_join, fingerprint),
    STR(ct_join, role),
    STR(ct_join, local_addr),
    LIST(ct_join, addr_count, addrs, CT_MESSAGE_ADDRS_MAX, addr_fields),
    U64(ct_join, program),
    U8(ct_join, knows_gloo_scale),
    U64(ct_join, survive_ms),
    U8(ct_join, replaces),
    STR(ct_join, torch),
    STR(ct_join, driver),
    TAIL(ct_join, roles.count, roles.list, CT_ROLES_MAX, role_fields),
};

static const struct field waiting_fields[] = {
    U32(ct_waiting, joined),  U32(ct_waiting, min_nodes), U32(ct_waiting, max_nodes),
    U64(ct_waiting, left_ms), U64(ct_waiting, held_ms),   U8(ct_waiting, is_spare),
    STR(ct_waiting, missing),
};

static const struct field start_peer_fields[] = {
    STR(ct_start_peer, host),
    STR(ct_start_peer, addr),
    U16(ct_start_peer, port),
};

static const struct field start_fields[] = {
    U64(ct_start, generation),
    U32(ct_start, restart_count),
    U32(ct_start, group_rank),
    U32(ct_start, group_world_size),
    U32(ct_start, rank_base),
    U32(ct_start, world_size),
    U32(ct_start, role_rank_base),
    U32(ct_start, role_world_size),
    U16(ct_start, master_port),
    STR(ct_start, master_addr),
    STR(ct_start, master_host),
    LIST(ct_start, addr_count, addrs, CT_MESSAGE_ADDRS_MAX, addr_fields),
    STR(ct_start, layout),
    STR(ct_start, unlike),
    U8(ct_start, reach),
    LIST(ct_start, peer_count, peers, CT_START_PEERS_MAX, start_peer_fields),
    U8(ct_start, uses_gloo_scale),
    U8(ct_start, is_new),
    STR(ct_start, versions),
    TAIL(ct_start, role_count, roles, CT_ROLES_MAX, role_place_fields),
};

static const struct field key_fields[] = {
    {.type = FIELD_BYTES, .offset = 0, .size = CT_MEMBER_KEY_BYTES},
};

static const struct field members_fields[] = {
    U64(ct_members, generation),
    U8(ct_members, is_last),
    LIST(ct_members, count, keys, CT_MEMBER_KEYS_MAX, key_fields),
};

static const struct field offer_fields[] = {
    BYTES(ct_offer, key),
    U8(ct_offer, has_munge),
    STR(ct_offer, credential),
};

static const struct field heartbeat_fields[] = {
    U64(ct_heartbeat, generation),
    U64(ct_heartbeat, sequence),
    I64(ct_heartbeat, step),
    TAIL_U64(ct_heartbeat, quiet_ms, sizeof(struct ct_heartbeat), 1),
};

static const struct field metric_fields[] = {
    I32(ct_metric_sent, rank),
    STR(ct_metric_sent, name),
    U64(ct_metric_sent, bits),
};

static const struct field metrics_fields[] = {
    U64(ct_metrics, generation),
    LIST(ct_metrics, count, list, CT_METRICS_SENT_MAX, metric_fields),
};

static const struct field stop_fields[] = {
    U64(ct_stop, generation),
    U8(ct_stop, reason),
    U8(ct_stop, is_final),
    U32(ct_stop, restart_count),
    U32(ct_stop, max_restarts),
    STRUCT(ct_stop, cause, part_failure_fields),
    U8(ct_stop, culprit_fate),
    STR(ct_stop, culprit),
    TAIL(ct_stop, cause.call_count, cause.call, 1, stuck_call_fields),
};

static const struct field more_fields[] = {
    U32(ct_more, failed),
    U32(ct_more, stopped),
};

static const struct field hang_view_fields[] = {
    U32(ct_hang_view, ranks),         U32(ct_hang_view, waiting),
    I64(ct_hang_view, lowest),        I64(ct_hang_view, furthest),
    STR(ct_hang_view, waiting_ranks),
};

static const struct field stopped_fields[] = {
    U64(ct_stopped, generation),
    STRUCT(ct_stopped, more, more_fields),
    STRUCT(ct_stopped, hang, hang_view_fields),
    LIST(ct_stopped, failure_count, failures, CT_FAILURES_MAX, part_failure_fields),
    TAIL_U64(ct_stopped, failures[0].age_ms, sizeof(struct ct_failure),
             CT_FAILURES_MAX),
};

static const struct field succeeded_fields[] = {
    U64(ct_succeeded, generation),
};

static const struct field stopping_fields[] = {
    U64(ct_stopping, generation),
    U64(ct_stopping, grace_ms),
};

static const struct field resize_fields[] = {
    U32(ct_resize, min_nodes),
    U32(ct_resize, max_nodes),
    STR(ct_resize, by),
};

static const struct field drain_fields[] = {
    STR(ct_drain, host),     STR(ct_drain, reason),  U32(ct_drain, ticket),
    U8(ct_drain, is_answer), U32(ct_drain, sent_to), STR(ct_drain, hosts),
};

static const struct field stacks_fields[] = {
    U8(ct_stacks, what),      U32(ct_stacks, ticket), U64(ct_stacks, asker),
    U32(ct_stacks, rank),     U32(ct_stacks, most),   U32(ct_stacks, nodes),
    U32(ct_stacks, left_out), U32(ct_stacks, node),   STR(ct_stacks, host),
    TEXT(ct_stacks, text),
};

static const struct field grow_fields[] = {
    U64(ct_grow, generation),
    I32(ct_grow, rank),
};

static const struct field clock_fields[] = {
    U64(ct_clock, agent_ns),
    U64(ct_clock, server_ns),
};

static const struct field call_fields[] = {
    U64(ct_call, group),
    I64(ct_call, number),
    U64(ct_call, entered_ns),
    U64(ct_call, shape),
};

static const struct field calls_fields[] = {
    U64(ct_calls, generation),
    U32(ct_calls, node),
    STR(ct_calls, host),
    I32(ct_calls, rank),
    U64(ct_calls, doubt_ns),
    U32(ct_calls, wait_permille),
    U32(ct_calls, steal_permille),
    U32(ct_calls, faults),
    U32(ct_calls, mhz),
    U32(ct_calls, resent),
    U32(ct_calls, gpu_mhz),
    U32(ct_calls, gpu_max_mhz),
    U32(ct_calls, gpu_slow),
    I32(ct_calls, gpu_xid),
    LIST(ct_calls, count, list, CT_CALLS_MAX, call_fields),
};

static const struct field absent_fields[] = {
    U64(ct_absent, generation), U32(ct_absent, node),  STR(ct_absent, host),
    U32(ct_absent, count),      STR(ct_absent, ranks),
};

static const struct field fault_fields[] = {
    U8(ct_fault, kind),    I32(ct_fault, target), I32(ct_fault, signal),
    U32(ct_fault, for_ms), U32(ct_fault, by),     U32(ct_fault, line),
};

static const struct field chaos_fields[] = {
    U8(ct_chaos, is_answer), U32(ct_chaos, ticket),
    U64(ct_chaos, asker),    STRUCT(ct_chaos, fault, fault_fields),
    STR(ct_chaos, host),     TEXT(ct_chaos, text),
};

static const struct field restart_fields[] = {
    STR(ct_restart, reason),     U32(ct_restart, ticket),  U8(ct_restart, is_answer),
    U64(ct_restart, generation), STR(ct_restart, refusal),
};

static const struct field peer_fields[] = {
    U16(ct_peer, port),
};

static const struct field verdict_fields[] = {
    U64(ct_verdict, generation),
    U8(ct_verdict, outcome),
    U8(ct_verdict, exit_code),
    U32(ct_verdict, restart_count),
    STRUCT(ct_verdict, more, more_fields),
    LIST(ct_verdict, failure_count, failures, CT_FAILURES_MAX, part_failure_fields),
    TAIL_U64(ct_verdict, failures[0].later_ms, sizeof(struct ct_failure),
             CT_FAILURES_MAX),
};

static const struct field leave_fields[] = {
    U64(ct_leave, generation),
    STR(ct_leave, reason),
};

static const struct field ticket_fields[] = {
    U64(ct_ticket, id),
    U64(ct_ticket, key),
};

static const struct field resume_fields[] = {
    U64(ct_resume, id),   U64(ct_resume, key),     U64(ct_resume, generation),
    U8(ct_resume, state), U64(ct_resume, attempt),
};

static const struct field resumed_fields[] = {
    U64(ct_resumed, generation),
    U8(ct_resumed, is_in_world),
};

static const struct field signal_fields[] = {
    U64(ct_signal, generation),
    I32(ct_signal, signal),
    U32(ct_signal, count),
    STR(ct_signal, host),
};

static const struct field worker_hello_fields[] = {
    I32(ct_worker_hello, rank),
    U64(ct_worker_hello, generation),
};

static const struct field worker_step_fields[] = {
    U64(ct_worker_step, step),
};

static const struct field worker_should_stop_fields[] = {
    STR(ct_worker_should_stop, reason),
};

static const struct field worker_node_lost_fields[] = {
    TEXT(ct_worker_node_lost, text),
};

static const struct field worker_crash_record_fields[] = {
    U32(ct_worker_crash_record, size),
};

static const struct field worker_progress_fields[] = {
    U32(ct_worker_progress, size),
};

static const struct field worker_flight_fields[] = {
    U32(ct_worker_flight, size),
};

static const struct field worker_rank_lost_fields[] = {
    U32(ct_worker_rank_lost, losses),
    TEXT(ct_worker_rank_lost, text),
};

static const struct field worker_shrink_fields[] = {
    U32(ct_worker_shrink, epoch),
};

static const struct field worker_world_fields[] = {
    U32(ct_worker_world, epoch),      U32(ct_worker_world, losses),
    BYTES(ct_worker_world, ranks),    U16(ct_worker_world, store_port),
    STR(ct_worker_world, store_addr),
};

static const struct field loss_fields[] = {
    U64(ct_loss, generation), U32(ct_loss, losses),   I32(ct_loss, rank),
    U32(ct_loss, count),      U8(ct_loss, has_store), TEXT(ct_loss, text),
};

static const struct field still_fields[] = {
    U64(ct_still, generation),
    U32(ct_still, epoch),
    BYTES(ct_still, ranks),
};

static const struct field world_fields[] = {
    U64(ct_world, generation), U32(ct_world, epoch),      U32(ct_world, losses),
    BYTES(ct_world, ranks),    U32(ct_world, store_node), U16(ct_world, store_port),
    STR(ct_world, store_addr),
};

static const struct field worker_grow_fields[] = {
    U32(ct_worker_grow, epoch),
};

static const struct field worker_hold_fields[] = {
    U8(ct_worker_hold, verb),    U64(ct_worker_hold, bytes), U32(ct_worker_hold, crc),
    U64(ct_worker_hold, device), U64(ct_worker_hold, inode), NAME(ct_worker_hold, name),
    STR(ct_worker_hold, path),
};

static const struct field worker_hold_reply_fields[] = {
    I32(ct_worker_hold_reply, code),     U64(ct_worker_hold_reply, bytes),
    U32(ct_worker_hold_reply, crc),      U64(ct_worker_hold_reply, inode),
    U64(ct_worker_hold_reply, mtime_ns), STR(ct_worker_hold_reply, text),
};

static const struct field command_fields[] = {
    TEXT(ct_command, text),
};

static const struct field ctl_request_fields[] = {
    U8(ct_ctl_request, verb),
    I32(ct_ctl_request, signal),
    I32(ct_ctl_request, rank),
    STR(ct_ctl_request, reason),
    TAIL(ct_ctl_request, command_count, command, 1, command_fields),
    TAIL(ct_ctl_request, fault_count, fault, 1, fault_fields),
};

static const struct field ha_report_fields[] = {
    U64(ct_ha_report, key),         STR(ct_ha_report, addr),
    U16(ct_ha_report, client_port), U16(ct_ha_report, peer_port),
    U8(ct_ha_report, is_running),   U64(ct_ha_report, follows),
};

static const struct field ha_member_fields[] = {
    U64(ct_ha_member, key),         STR(ct_ha_member, addr),
    U16(ct_ha_member, client_port), U16(ct_ha_member, peer_port),
    U8(ct_ha_member, is_learner),
};

static const struct field ha_plan_fields[] = {
    U64(ct_ha_plan, epoch),
    U8(ct_ha_plan, phase),
    U8(ct_ha_plan, nodes),
    U8(ct_ha_plan, survives),
    BYTES(ct_ha_plan, seed),
    LIST(ct_ha_plan, count, members, CT_HA_MEMBERS_MAX, ha_member_fields),
};

static const struct field ctl_reply_fields[] = {
    I32(ct_ctl_reply, code),
    U8(ct_ctl_reply, is_last),
    NAME(ct_ctl_reply, text),
};

static const struct field reachability_fields[] = {
    U64(ct_reachability, generation),
    STR(ct_reachability, cut),
};

static const struct field sample_fields[] = {
    U64(ct_sample, id),
};

static const struct field samples_fields[] = {
    U64(ct_samples, generation),
    I32(ct_samples, rank),
    U64(ct_samples, total),
    LIST(ct_samples, count, list, CT_SAMPLES_MAX, sample_fields),
};

static const struct field reload_fields[] = {
    U64(ct_reload, number),   U8(ct_reload, step), U32(ct_reload, ticket),
    U64(ct_reload, program),  STR(ct_reload, by),  STR(ct_reload, text),
    TEXT(ct_reload, command),
};

/* The kind, and the struct whose name its fields have. */
#define LAYOUT(kind, s)                                                                \
    [CT_MESSAGE_##kind] = {.name = #kind,                                              \
                           .size = sizeof(struct ct_##s),                              \
                           .fields = s##_fields,                                       \
                           .field_count = COUNT_OF(s##_fields)}

const struct layout ct_message_layouts[UINT8_MAX + 1] = {
    LAYOUT(HELLO, hello),
    LAYOUT(WELCOME, welcome),
    LAYOUT(REFUSE, refuse),
    LAYOUT(CHALLENGE, challenge),
    LAYOUT(PROOF, proof),
    LAYOUT(SERVER_PROOF, proof),
    LAYOUT(JOIN, join),
    LAYOUT(WAITING, waiting),
    LAYOUT(START, start),
    LAYOUT(HEARTBEAT, heartbeat),
    LAYOUT(HEARTBEAT_ACK, heartbeat),
    LAYOUT(METRICS, metrics),
    LAYOUT(CLOCK, clock),
    LAYOUT(CALLS, calls),
    LAYOUT(ABSENT, absent),
    LAYOUT(FAILURE, failure),
    LAYOUT(STOP, stop),
    LAYOUT(STOPPED, stopped),
    LAYOUT(SUCCEEDED, succeeded),
    LAYOUT(VERDICT, verdict),
    LAYOUT(LEAVE, leave),
    LAYOUT(STOPPING, stopping),
    LAYOUT(RESUME, resume),
    LAYOUT(RESUMED, resumed),
    LAYOUT(TICKET, ticket),
    LAYOUT(MEMBERS, members),
    LAYOUT(OFFER, offer),
    LAYOUT(PEER, peer),
    LAYOUT(RESIZE, resize),
    LAYOUT(DRAIN, drain),
    LAYOUT(STACKS, stacks),
    LAYOUT(RESTART, restart),
    LAYOUT(SAMPLES, samples),
    LAYOUT(CHAOS, chaos),
    LAYOUT(RELOAD, reload),
    LAYOUT(LOSS, loss),
    LAYOUT(STILL, still),
    LAYOUT(WORLD, world),
    LAYOUT(GROW, grow),
    LAYOUT(REACHABILITY, reachability),
    LAYOUT(SIGNAL, signal),
    LAYOUT(WORKER_HELLO, worker_hello),
    LAYOUT(WORKER_STEP, worker_step),
    LAYOUT(WORKER_SHOULD_STOP, worker_should_stop),
    LAYOUT(WORKER_NODE_LOST, worker_node_lost),
    LAYOUT(WORKER_CRASH_RECORD, worker_crash_record),
    LAYOUT(WORKER_PROGRESS, worker_progress),
    LAYOUT(WORKER_FLIGHT, worker_flight),
    LAYOUT(WORKER_RANK_LOST, worker_rank_lost),
    LAYOUT(WORKER_SHRINK, worker_shrink),
    LAYOUT(WORKER_WORLD, worker_world),
    LAYOUT(WORKER_GROW, worker_grow),
    LAYOUT(WORKER_HOLD, worker_hold),
    LAYOUT(WORKER_HOLD_REPLY, worker_hold_reply),
    LAYOUT(CTL_REQUEST, ctl_request),
    LAYOUT(CTL_REPLY, ctl_reply),
    LAYOUT(HA_REPORT, ha_report),
    LAYOUT(HA_PLAN, ha_plan),
};
